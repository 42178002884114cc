#include "device/cuda/memory.hpp"

#include <string>

#include "base/cuda/status.hpp"

namespace attune::device::cuda {

Memory::~Memory() {
  if (data_ == nullptr) return;
  // Errors of a free have nobody to hear them; the next checked call reports a lost context.
  if (kind_ == MemoryKind::device)
    (void)cudaFree(data_);
  else
    (void)cudaFreeHost(data_);
}

Result<Memory> Memory::allocate(MemoryKind kind, std::size_t bytes) {
  Memory memory;
  memory.kind_ = kind;
  if (bytes == 0) return memory;
  const cudaError_t error = kind == MemoryKind::device
                                ? cudaMalloc(&memory.data_, bytes)
                                : cudaHostAlloc(&memory.data_, bytes, cudaHostAllocDefault);
  if (error != cudaSuccess) {
    const char* what = kind == MemoryKind::device ? "device memory" : "page-locked memory";
    return base::cuda::call_status(error, std::to_string(bytes) + " bytes of " + what);
  }
  memory.bytes_ = bytes;
  return memory;
}

Result<CardFacts> card_facts(int ordinal) {
  CardFacts facts;
  int major = 0;
  int minor = 0;
  const struct {
    cudaDeviceAttr attribute;
    int* value;
  } wanted[] = {
      {cudaDevAttrComputeCapabilityMajor, &major},
      {cudaDevAttrComputeCapabilityMinor, &minor},
      {cudaDevAttrMultiProcessorCount, &facts.num_sms},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, &facts.shared_bytes_per_block},
  };
  for (const auto& row : wanted) {
    const cudaError_t error = cudaDeviceGetAttribute(row.value, row.attribute, ordinal);
    if (error != cudaSuccess)
      return base::cuda::call_status(error, "attributes of CUDA device " + std::to_string(ordinal));
  }
  facts.sm = 10 * major + minor;
#ifdef ATTUNE_PORTABLE_FORM
  facts.sm = 89;
  facts.shared_bytes_per_block = 99 * 1024;
#endif
  return facts;
}

Status copy_to_device(void* to, const void* from, std::size_t bytes, Stream stream,
                      std::string_view what) {
  return base::cuda::call_status(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, native(stream)), what);
}

bool is_device_readable(const void* pointer) {
  if (pointer == nullptr) return false;
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

}  // namespace attune::device::cuda
