// A GPU's memory and graphs for the conformance suite.
#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda/status.hpp"
#include "conformance/cuda_memory_entry.hpp"
#include "device/cuda/memory.hpp"

namespace attune::conformance {
namespace {

using base::cuda::call_status;
using base::cuda::status_of;
using device::cuda::native;

class CudaRecording final : public Recording {
 public:
  CudaRecording(cudaGraph_t graph, cudaGraphExec_t exec, cudaStream_t stream)
      : graph_(graph), exec_(exec), stream_(stream) {}
  ~CudaRecording() override {
    (void)cudaGraphExecDestroy(exec_);
    (void)cudaGraphDestroy(graph_);
  }
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;

  Status replay() override {
    return call_status(cudaGraphLaunch(exec_, stream_), "cudaGraphLaunch");
  }

 private:
  cudaGraph_t graph_;
  cudaGraphExec_t exec_;
  cudaStream_t stream_;
};

Status make_stream(cudaStream_t& stream) {
  return call_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
}

/// Capture takes copies, allocations and calls of the host as nodes; run may make none of them.
Status check_nodes(cudaGraph_t graph) {
  std::size_t count = 0;
  if (Status s = call_status(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
      !s.ok())
    return s;
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0)
    if (Status s = call_status(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
        !s.ok())
      return s;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    if (Status s = call_status(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType"); !s.ok())
      return s;
    if (type != cudaGraphNodeTypeKernel && type != cudaGraphNodeTypeMemset &&
        type != cudaGraphNodeTypeEmpty)
      return internal_error(
          "the recorded work is more than kernels and memsets: it copies, allocates or calls the "
          "host (node type " +
          std::to_string(static_cast<int>(type)) + ")");
  }
  return {};
}

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(cudaStream_t stream) : stream_(stream) {}
  ~CudaMemory() override {
    if (second_ != nullptr) (void)cudaStreamDestroy(second_);
    (void)cudaStreamDestroy(stream_);
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  [[nodiscard]] Stream stream() const override { return {.handle = stream_}; }

  Result<Stream> second_stream() override {
    if (second_ == nullptr)
      if (Status s = make_stream(second_); !s.ok()) return s;
    return Stream{.handle = second_};
  }

  Result<void*> allocate(std::size_t bytes) override {
    void* memory = nullptr;
    if (Status s = call_status(cudaMalloc(&memory, bytes == 0 ? 1 : bytes), "cudaMalloc"); !s.ok())
      return s;
    return memory;
  }

  // A card has room for the suite's largest pools, so they are ordinary memory.
  Result<void*> allocate_sparse(std::size_t bytes) override {
    auto memory = allocate(bytes);
    if (!memory.ok()) return memory;
    if (Status s = fill(*memory, 0, bytes); !s.ok()) {
      release(*memory);
      return s;
    }
    return memory;
  }

  void release(void* memory) override { (void)cudaFree(memory); }

  Status copy_in(void* device, const void* host, std::size_t bytes) override {
    if (Status s =
            call_status(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_),
                        "copy to the device");
        !s.ok())
      return s;
    return synchronize();
  }

  Status copy_out(void* host, const void* device, std::size_t bytes) override {
    if (Status s =
            call_status(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_),
                        "copy from the device");
        !s.ok())
      return s;
    return synchronize();
  }

  Status fill(void* device, unsigned char byte, std::size_t bytes) override {
    return call_status(cudaMemsetAsync(device, byte, bytes, stream_), "cudaMemset");
  }

  Status synchronize() override {
    if (second_ != nullptr)
      if (Status s = call_status(cudaStreamSynchronize(second_), "cudaStreamSynchronize"); !s.ok())
        return s;
    return call_status(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

  Result<std::unique_ptr<Recording>> record(const std::function<Status(Stream)>& work) override {
    if (Status s = call_status(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                               "cudaStreamBeginCapture");
        !s.ok())
      return s;
    const Status worked = work(stream());
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    if (!worked.ok() || ended != cudaSuccess) {
      if (graph != nullptr) (void)cudaGraphDestroy(graph);
      (void)cudaGetLastError();
      return worked.ok() ? status_of(ended, "cudaStreamEndCapture: the work cannot be recorded")
                         : worked;
    }
    if (Status s = check_nodes(graph); !s.ok()) {
      (void)cudaGraphDestroy(graph);
      return s;
    }
    cudaGraphExec_t exec = nullptr;
    if (Status s = call_status(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
        !s.ok()) {
      (void)cudaGraphDestroy(graph);
      return s;
    }
    return std::unique_ptr<Recording>(std::make_unique<CudaRecording>(graph, exec, stream_));
  }

 private:
  cudaStream_t stream_;
  cudaStream_t second_ = nullptr;
};

Result<std::unique_ptr<DeviceMemory>> make_memory(const DeviceInfo& device) {
  if (Status s = call_status(cudaSetDevice(device.index), "cudaSetDevice"); !s.ok()) return s;
  cudaStream_t stream = nullptr;
  if (Status s = make_stream(stream); !s.ok()) return s;
  return std::unique_ptr<DeviceMemory>(std::make_unique<CudaMemory>(stream));
}

}  // namespace
}  // namespace attune::conformance

extern "C" __attribute__((visibility("default"))) void attune_conformance_memory_v1(
    const attune::DeviceInfo& device,
    attune::Result<std::unique_ptr<attune::conformance::DeviceMemory>>& made) {
  made = attune::conformance::make_memory(device);
}
