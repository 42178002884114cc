// Starting a kernel by its handle (layer base). For CUDA sources alone.
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

namespace attune::base::cuda {

/// A grid of blocks in one row.
struct Start {
  const void* kernel = nullptr;
  int blocks = 0;
  int threads = 0;
  int shared_bytes = 0;
  int cluster = 1;  ///< neighbouring blocks that see each other's shared memory
};

/// `overlap`: cards of compute capability 9.0 and newer start a kernel while the one before ends.
[[nodiscard]] inline cudaError_t start(const Start& what, void** arguments, bool overlap,
                                       cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(what.blocks));
  config.blockDim = dim3(static_cast<unsigned>(what.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(what.shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (overlap) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (what.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(what.cluster);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  return cudaLaunchKernelExC(&config, what.kernel, arguments);
}

}  // namespace attune::base::cuda
