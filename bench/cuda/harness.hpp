// What the stand-alone CUDA drivers share: checked calls, random data, cold and graph timings.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace attune::bench {

/// Whether `word` is on the command line; one without words asks for everything.
inline bool asks_for(int argc, char** argv, const char* word) {
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], word) == 0) return true;
  return argc == 1;
}

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// A device array; freed with its owner.
template <class T>
class Array {
 public:
  Array() = default;
  explicit Array(std::size_t n) : size_(n) {
    check(cudaMalloc(&data_, std::max<std::size_t>(n, 1) * sizeof(T)), "cudaMalloc");
  }
  explicit Array(const std::vector<T>& host) : Array(host.size()) { upload(host); }
  Array(Array&& other) noexcept { swap(other); }
  Array& operator=(Array&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Array() { cudaFree(data_); }
  void upload(const std::vector<T>& host) {
    check(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
          "upload");
  }
  std::vector<T> download() const {
    std::vector<T> host(size_);
    check(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return host;
  }
  void fill_bytes(int byte) { check(cudaMemset(data_, byte, size_ * sizeof(T)), "memset"); }
  T* get() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  void swap(Array& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

__host__ __device__ inline std::uint32_t mix(std::uint64_t x) {
  x ^= x >> 31;
  x *= 0x7fb5d329728ea185ull;
  x ^= x >> 27;
  x *= 0x81dadef4bc2dd44dull;
  x ^= x >> 33;
  return static_cast<std::uint32_t>(x);
}

/// Roughly normal: the sum of four uniforms, scaled to unit variance.
__host__ __device__ inline float random_normal(std::uint64_t seed, std::uint64_t i) {
  float sum = 0.0f;
  for (int k = 0; k < 4; ++k)
    sum += static_cast<float>(mix(seed * 0x9e3779b97f4a7c15ull + 4 * i + k)) * 2.3283064e-10f;
  return (sum - 2.0f) * 1.7320508f;
}

template <class T>
__global__ void fill_normal(T* to, std::size_t n, std::uint64_t seed, float scale) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x)
    to[i] = static_cast<T>(scale * random_normal(seed, i));
}

template <class T>
void randomise(const Array<T>& a, std::uint64_t seed, float scale = 1.0f) {
  fill_normal<<<2048, 256>>>(a.get(), a.size(), seed, scale);
  check(cudaGetLastError(), "fill_normal");
}

static __global__ void read_through(const uint4* from, std::size_t n, uint4* sink) {
  uint4 acc = make_uint4(0, 0, 0, 0);
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const uint4 v = from[i];
    acc.x ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (acc.x == 0x9e3779b9u) *sink = acc;
}

/// What the L2 holds when a timed kernel starts.
enum class Flush {
  clean,  ///< other data, read: the kernel meets an L2 that owes nothing to memory
  dirty,  ///< other data, written: evicting it costs the kernel bandwidth
};

/// Median seconds of `launch`, the L2 filled with four times its size of other data before each
/// run.
template <class Launch>
double time_cold(Launch launch, Flush flush_kind = Flush::clean, int repeats = 15) {
  static Array<char> flush(256u << 20);
  static Array<uint4> other(std::size_t{256u << 20} / 16);
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> ms;
  for (int i = 0; i < repeats + 2; ++i) {
    check(cudaMemsetAsync(flush.get(), i, flush.size()), "flush");
    if (flush_kind == Flush::clean)
      read_through<<<1024, 256>>>(other.get(), other.size(), other.get());
    check(cudaEventRecord(begin), "event");
    launch(cudaStream_t{});
    check(cudaEventRecord(end), "event");
    check(cudaEventSynchronize(end), "timed kernel");
    float t = 0;
    check(cudaEventElapsedTime(&t, begin, end), "event");
    if (i >= 2) ms.push_back(t);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2] * 1e-3;
}

/// Median seconds of one launch among `copies` in a graph, warm.
template <class Launch>
double time_graph(Launch launch, int copies = 20, int repeats = 15) {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < copies; ++i) launch(stream);
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> ms;
  for (int i = 0; i < repeats + 2; ++i) {
    check(cudaEventRecord(begin, stream), "event");
    check(cudaGraphLaunch(exec, stream), "graph");
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "timed graph");
    float t = 0;
    check(cudaEventElapsedTime(&t, begin, end), "event");
    if (i >= 2) ms.push_back(t / copies);
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2] * 1e-3;
}

}  // namespace attune::bench
