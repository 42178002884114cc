// ggml's CPU flash attention (f16 KV, its best) on the cases of `attune bench`: 32 query and 8 KV
// heads of 128, cold caches, the median of repeats, one line of JSON a case.
//
// Build: pip download --no-deps --no-binary llama-cpp-python llama-cpp-python, unpack, and in its
// vendor/llama.cpp: cmake -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON, target ggml; for a
// build forced to AVX2, -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON. Then compile
// this file with -Iggml/include -Lbuild/bin -lggml -lggml-cpu -lggml-base.
//
// Run: ggml_attention THREADS PHASE BATCH LENGTH [REPEATS], as ggml_attention 1 decode 1 16384
//
// The same file compiled against ik_llama.cpp (its own library `ggml`, from
// -Iggml/include -Lbuild/ggml/src -lggml) times that project's kernels.
#include <ggml.h>
#if __has_include(<ggml-cpu.h>)
#include <ggml-cpu.h>
#define PEER "ggml"
#else  // the older interface: the library keeps its threads between graphs itself (OpenMP)
#define PEER "ik_llama.cpp"
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace {

constexpr int kHeads = 32;
constexpr int kKvHeads = 8;
constexpr int kDim = 128;

void fill(ggml_tensor* t, std::vector<float>& noise) {
  const auto n = static_cast<std::size_t>(ggml_nelements(t));
  for (std::size_t i = 0; i < n; ++i) {
    const float x = noise[i % noise.size()];
    if (t->type == GGML_TYPE_F16)
      static_cast<ggml_fp16_t*>(t->data)[i] = ggml_fp32_to_fp16(x);
    else
      static_cast<float*>(t->data)[i] = x;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int threads = std::atoi(argv[1]);
  const bool prefill = std::strcmp(argv[2], "prefill") == 0;
  const std::int64_t batch = std::atoll(argv[3]);
  const std::int64_t length = std::atoll(argv[4]);
  const int repeats = argc > 5 ? std::atoi(argv[5]) : 9;
  const std::int64_t queries = prefill ? length : 1;

  const std::size_t bytes = static_cast<std::size_t>(
      batch * (length * kKvHeads * kDim * 4 + queries * kHeads * kDim * 8) +
      (prefill ? length * length * 2 : 0) + (std::int64_t{64} << 20));
  ggml_context* context = ggml_init({bytes, nullptr, false});
  ggml_tensor* q = ggml_new_tensor_4d(context, GGML_TYPE_F32, kDim, queries, kHeads, batch);
  ggml_tensor* k = ggml_new_tensor_4d(context, GGML_TYPE_F16, kDim, length, kKvHeads, batch);
  ggml_tensor* v = ggml_new_tensor_4d(context, GGML_TYPE_F16, kDim, length, kKvHeads, batch);
  ggml_tensor* mask = nullptr;
  if (prefill) {
    mask = ggml_new_tensor_2d(context, GGML_TYPE_F16, length, length);
    auto* m = static_cast<ggml_fp16_t*>(mask->data);
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t j = 0; j < length; ++j)
        m[i * length + j] = ggml_fp32_to_fp16(j <= i ? 0.0f : -INFINITY);
  }
  std::vector<float> noise(1000003);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (float& x : noise) x = normal(random);
  fill(q, noise);
  fill(k, noise);
  fill(v, noise);

  ggml_cgraph* graph = ggml_new_graph(context);
  ggml_build_forward_expand(graph, ggml_flash_attn_ext(context, q, k, v, mask,
                                                       1.0f / std::sqrt(float{kDim}), 0.0f, 0.0f));
#if __has_include(<ggml-cpu.h>)
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  ggml_threadpool* pool = ggml_threadpool_new(&params);
  ggml_cplan plan = ggml_graph_plan(graph, threads, pool);
#else
  ggml_cplan plan = ggml_graph_plan(graph, threads);
#endif
  std::vector<std::uint8_t> work(plan.work_size);
  plan.work_data = work.data();

  std::vector<char> flush(std::size_t{192} << 20, 1);
  std::vector<double> ms;
  for (int i = 0; i < repeats + 1; ++i) {
    for (std::size_t at = 0; at < flush.size(); at += 64)
      static_cast<void>(static_cast<volatile char*>(flush.data())[at]);
    const auto start = std::chrono::steady_clock::now();
    ggml_graph_compute(graph, &plan);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (i > 0) ms.push_back(took.count());
  }
  std::sort(ms.begin(), ms.end());
  std::printf("{\"peer\": \"" PEER
              "\", \"phase\": \"%s\", \"batch\": %lld, \"length\": %lld, "
              "\"threads\": %d, \"ms\": %.4g, \"ms_min\": %.4g}\n",
              argv[2], static_cast<long long>(batch), static_cast<long long>(length), threads,
              ms[ms.size() / 2], ms.front());
#if __has_include(<ggml-cpu.h>)
  ggml_threadpool_free(pool);
#endif
  ggml_free(context);
}
