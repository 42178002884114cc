#include "runtime.hpp"

#include <cuda.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "machine.hpp"
#include "tensor_map.hpp"

struct CUstream_st {
  CUgraph_st* capturing = nullptr;
};
struct CUevent_st {
  std::chrono::steady_clock::time_point when;
};
struct CUgraphNode_st {
  cudaGraphNodeType type;
};
struct CUgraph_st {
  std::vector<std::function<cudaError_t()>> nodes;
  std::vector<CUgraphNode_st> types;  ///< one a node
};
struct CUgraphExec_st {
  std::vector<std::function<cudaError_t()>> nodes;
};

namespace attune::emulated {
namespace {

// The facts of an H200 that kernels and planners ask for.
constexpr int kSharedPerBlock = 227 << 10;
constexpr int kSharedPerSm = 228 << 10;

/// An H200's 132, or ATTUNE_EMULATED_SMS: plans for fewer are carried out sooner.
int num_sms() {
  const char* given = std::getenv("ATTUNE_EMULATED_SMS");
  return given == nullptr ? 132 : std::max(1, std::atoi(given));
}

/// Of these, what the process may use: all, or ATTUNE_EMULATED_USABLE_SMS, as in a green context.
int usable_sms() {
  const char* given = std::getenv("ATTUNE_EMULATED_USABLE_SMS");
  return given == nullptr ? num_sms() : std::clamp(std::atoi(given), 1, num_sms());
}

CUresult current_context(CUcontext* context) {
  static char any;
  *context = reinterpret_cast<CUcontext>(&any);
  return CUDA_SUCCESS;
}

CUresult resource_of_context(CUcontext, CUdevResource* resource, CUdevResourceType type) {
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  resource->type = type;
  resource->sm.smCount = static_cast<unsigned>(usable_sms());
  return CUDA_SUCCESS;
}

struct Runtime {
  std::unordered_map<const void*, Bind> kernels;
  std::map<const unsigned char*, std::size_t> device_memory;
  cudaError_t last = cudaSuccess;
};

Runtime& runtime() {
  static Runtime the_runtime;
  return the_runtime;
}

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) runtime().last = error;
  return error;
}

cudaError_t do_or_record(cudaStream_t stream, std::function<cudaError_t()> work,
                         cudaGraphNodeType type = cudaGraphNodeTypeKernel) {
  if (stream != nullptr && stream->capturing != nullptr) {
    stream->capturing->nodes.push_back(std::move(work));
    stream->capturing->types.push_back({type});
    return cudaSuccess;
  }
  return remember(work());
}

cudaError_t run(dim3 grid, dim3 block, std::size_t shared_bytes,
                const std::function<void()>& thread, unsigned side_by_side) {
  try {
    run_grid(grid, block, shared_bytes, thread, side_by_side);
    return cudaSuccess;
  } catch (const Trap& trap) {
    std::fprintf(stderr, "emulated kernel: %s\n", trap.what());
    return cudaErrorLaunchFailure;
  }
}

/// From this size memory is mapped, not allocated, and costs nothing until it is touched: the
/// suite's largest pools are meant for a card's hundred gigabytes.
constexpr std::size_t kSparseBytes = 32 << 20;

void fill(void* to, int byte, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  if (byte == 0 && bytes >= kSparseBytes && reinterpret_cast<std::uintptr_t>(to) % kPage == 0) {
    // Dropped pages of an anonymous mapping read as zero.
    const std::size_t whole = bytes / kPage * kPage;
    if (madvise(to, whole, MADV_DONTNEED) == 0) {
      std::memset(static_cast<unsigned char*>(to) + whole, 0, bytes - whole);
      return;
    }
  }
  std::memset(to, byte, bytes);
}

bool is_device(const void* pointer) {
  const auto* const p = static_cast<const unsigned char*>(pointer);
  auto after = runtime().device_memory.upper_bound(p);
  if (after == runtime().device_memory.begin()) return false;
  --after;
  return p < after->first + after->second;
}

}  // namespace

void know_kernel(const void* handle, Bind bind) { runtime().kernels[handle] = std::move(bind); }

void enqueue(cudaStream_t stream, std::function<void()> work) {
  (void)do_or_record(stream, [work = std::move(work)] {
    work();
    return cudaSuccess;
  });
}

void launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes,
            std::function<void()> thread, unsigned side_by_side) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 ||
      block.x * block.y * block.z == 0 || block.x * block.y * block.z > 1024) {
    (void)remember(cudaErrorInvalidConfiguration);
    return;
  }
  (void)do_or_record(stream, [grid, block, shared_bytes, thread = std::move(thread), side_by_side] {
    return run(grid, block, shared_bytes, thread, side_by_side);
  });
}

}  // namespace attune::emulated

using namespace attune::emulated;

extern "C" {

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** arguments) {
  const auto known = runtime().kernels.find(kernel);
  if (known == runtime().kernels.end()) return remember(cudaErrorInvalidDeviceFunction);
  runtime().last = cudaSuccess;
  bool cooperative = false;
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeCooperative)
      cooperative = attribute.val.cooperative != 0;
    if (attribute.id == cudaLaunchAttributeClusterDimension) cluster = attribute.val.clusterDim.x;
  }
  if (cluster == 0 || config->gridDim.x % cluster != 0)
    return remember(cudaErrorInvalidClusterSize);
  const auto blocks = std::int64_t{config->gridDim.x} * config->gridDim.y * config->gridDim.z;
  const auto fit = static_cast<std::int64_t>(kSharedPerSm / (config->dynamicSmemBytes + 1024));
  if (cooperative && blocks > fit * usable_sms())
    return remember(cudaErrorCooperativeLaunchTooLarge);
  launch(config->stream, config->gridDim, config->blockDim, config->dynamicSmemBytes,
         known->second(arguments), cooperative ? kAllBlocks : cluster);
  return runtime().last;
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (runtime().kernels.count(kernel) == 0) return remember(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value > kSharedPerBlock)
    return remember(cudaErrorInvalidValue);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                          std::size_t shared_bytes) {
  const auto by_memory = static_cast<int>(kSharedPerSm / (shared_bytes + 1024));
  *blocks = std::min(by_memory, 2048 / std::max(1, threads));
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(runtime().last, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return runtime().last; }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
    default: return "cudaError";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the emulated runtime";
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : remember(cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = num_sms(); return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = kSharedPerBlock; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = kSharedPerSm; return cudaSuccess;
    default: return remember(cudaErrorInvalidValue);
  }
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + 255) / 256 * 256;
  if (rounded >= kSparseBytes) {
    *memory = mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*memory == MAP_FAILED) *memory = nullptr;
  } else {
    *memory = std::aligned_alloc(256, rounded);
  }
  if (*memory == nullptr) return remember(cudaErrorMemoryAllocation);
  runtime().device_memory[static_cast<unsigned char*>(*memory)] = rounded;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const auto owned = runtime().device_memory.find(static_cast<unsigned char*>(memory));
  if (owned == runtime().device_memory.end()) return remember(cudaErrorInvalidValue);
  if (owned->second >= kSparseBytes)
    (void)munmap(memory, owned->second);
  else
    std::free(memory);
  runtime().device_memory.erase(owned);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = std::aligned_alloc(4096, (std::max<std::size_t>(bytes, 1) + 4095) / 4096 * 4096);
  return *memory != nullptr ? cudaSuccess : remember(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  *attributes = {};
  attributes->type = is_device(pointer) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const auto copy = [to, from, bytes] {
    std::memmove(to, from, bytes);
    return cudaSuccess;
  };
  return do_or_record(stream, copy, cudaGraphNodeTypeMemcpy);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream) {
  const auto set = [to, byte, bytes] {
    fill(to, byte, bytes);
    return cudaSuccess;
  };
  return do_or_record(stream, set, cudaGraphNodeTypeMemset);
}
cudaError_t cudaMemset(void* to, int byte, std::size_t bytes) {
  return cudaMemsetAsync(to, byte, bytes, nullptr);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return stream != nullptr && stream->capturing != nullptr
             ? remember(cudaErrorStreamCaptureUnsupported)
             : cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
// Everything before it is done already.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->when = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = std::chrono::duration<float, std::milli>(end->when - begin->when).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->capturing != nullptr)
    return remember(cudaErrorStreamCaptureUnsupported);
  stream->capturing = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream->capturing == nullptr) return remember(cudaErrorIllegalState);
  *graph = std::exchange(stream->capturing, nullptr);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (nodes == nullptr) {
    *count = graph->types.size();
    return cudaSuccess;
  }
  for (std::size_t i = 0; i < *count; ++i)
    nodes[i] = i < graph->types.size() ? &graph->types[i] : nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = node->type;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (stream != nullptr && stream->capturing != nullptr)
    return remember(cudaErrorStreamCaptureUnsupported);
  for (const auto& node : exec->nodes)
    if (const cudaError_t error = node(); error != cudaSuccess) return remember(error);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const struct {
    const char* name;
    void* function;
  } known[] = {{"cuTensorMapEncodeTiled", reinterpret_cast<void*>(&encode_tensor_map)},
               {"cuCtxGetCurrent", reinterpret_cast<void*>(&current_context)},
               {"cuCtxGetDevResource", reinterpret_cast<void*>(&resource_of_context)}};
  *function = nullptr;
  for (const auto& row : known)
    if (std::strcmp(symbol, row.name) == 0) *function = row.function;
  *found = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // extern "C"
