// oneDNN's graph attention in bf16 on the cases of `attune bench`: 32 query and 8 KV heads of 128,
// cold caches, the median of repeats, one line of JSON a case. Its keys lie dense, head by head.
//
// Build: pip install onednn-devel into a virtual environment ENV, then
// g++ -std=c++17 -O2 -IENV/include onednn_attention.cpp -LENV/lib -ldnnl -Wl,-rpath,ENV/lib
// -Wl,-rpath-link,ENV/lib -o onednn_attention
//
// Run: OCL_ICD_FILENAMES=ENV/lib/libintelocl.so taskset -c 0 ./onednn_attention 1 decode 1 16384;
// arguments THREADS PHASE BATCH LENGTH [REPEATS], THREADS being what taskset leaves it. Its engine
// is a SYCL one, which finds CPUs of other makers only by that name. ONEDNN_VERBOSE=profile shows
// what it fuses.
#include <oneapi/dnnl/dnnl_graph.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

namespace graph = dnnl::graph;
using graph::logical_tensor;
using graph::op;
using Dims = logical_tensor::dims;
using Type = logical_tensor::data_type;

constexpr std::int64_t kHeads = 32;
constexpr std::int64_t kKvHeads = 8;
constexpr std::int64_t kGroup = kHeads / kKvHeads;
constexpr std::int64_t kDim = 128;

std::uint16_t to_bf16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x8000u) >> 16);
}

/// The graph of softmax(q k^T / sqrt(d) + mask) v, built op by op.
class Attention {
 public:
  Attention(std::int64_t batch, std::int64_t queries, std::int64_t keys, bool masked) {
    const Dims q{batch, kKvHeads, kGroup, queries, kDim};
    const Dims k{batch, kKvHeads, 1, keys, kDim};
    const Dims scores{batch, kKvHeads, kGroup, queries, keys};
    const logical_tensor in_q = input(q, Type::bf16);
    const logical_tensor in_k = input(k, Type::bf16);
    const logical_tensor factor = input({1}, Type::bf16);
    logical_tensor x = add(op::kind::MatMul, {in_q, in_k}, scores, Type::f32,
                           [](op& matmul) { matmul.set_attr<bool>(op::attr::transpose_b, true); });
    x = add(op::kind::Multiply, {x, factor}, scores, Type::f32);
    if (masked)
      x = add(op::kind::Add, {x, input({1, 1, 1, queries, keys}, Type::bf16)}, scores, Type::f32);
    x = add(op::kind::SoftMax, {x}, scores, Type::bf16, [](op& softmax) {
      softmax.set_attr<std::int64_t>(op::attr::axis, -1);
      softmax.set_attr<std::string>(op::attr::mode, "inf_as_zero");
    });
    output_ = add(op::kind::MatMul, {x, input(k, Type::bf16)}, q, Type::bf16);
    graph_.finalize();
  }

  [[nodiscard]] graph::compiled_partition compile(const dnnl::engine& engine) {
    const auto parts = graph_.get_partitions();
    if (parts.size() != 1 || !parts[0].is_supported()) {
      std::fprintf(stderr, "oneDNN cuts attention into %zu parts\n", parts.size());
      std::exit(1);
    }
    return parts[0].compile(inputs_, {output_}, engine);
  }
  /// q, k, factor, mask if any, v.
  [[nodiscard]] const std::vector<logical_tensor>& inputs() const { return inputs_; }
  [[nodiscard]] const logical_tensor& output() const { return output_; }

 private:
  logical_tensor input(const Dims& dims, Type type) {
    inputs_.emplace_back(next_++, type, dims, logical_tensor::layout_type::strided);
    return inputs_.back();
  }
  template <class... Set>
  logical_tensor add(op::kind kind, const std::vector<logical_tensor>& from, const Dims& dims,
                     Type type, Set... set) {
    const logical_tensor to(next_++, type, dims, logical_tensor::layout_type::strided);
    op made(next_++, kind, from, {to}, "");
    (set(made), ...);
    graph_.add_op(made);
    return to;
  }

  graph::graph graph_{dnnl::engine::kind::cpu};
  std::size_t next_ = 0;
  std::vector<logical_tensor> inputs_;
  logical_tensor output_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int threads = std::atoi(argv[1]);
  const bool prefill = std::strcmp(argv[2], "prefill") == 0;
  const std::int64_t batch = std::atoll(argv[3]);
  const std::int64_t length = std::atoll(argv[4]);
  const int repeats = argc > 5 ? std::atoi(argv[5]) : 9;

  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  Attention attention(batch, prefill ? length : 1, length, prefill);
  graph::compiled_partition attend = attention.compile(engine);

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> noise(1 << 16);
  for (std::uint16_t& x : noise) x = to_bf16(normal(random));
  std::vector<graph::tensor> in;
  for (std::size_t i = 0; i < attention.inputs().size(); ++i) {
    const logical_tensor& shape = attention.inputs()[i];
    in.emplace_back(shape, engine);
    auto* const data = static_cast<std::uint16_t*>(in.back().get_data_handle());
    const std::size_t count = shape.get_mem_size() / sizeof *data;
    const bool mask = prefill && i == 3;
    for (std::size_t j = 0; j < count; ++j)
      data[j] =
          i == 2 ? to_bf16(1.0f / std::sqrt(static_cast<float>(kDim)))
          : !mask
              ? noise[j % noise.size()]
              : to_bf16(j % length <= j / length ? 0.0f : -std::numeric_limits<float>::infinity());
  }
  const graph::tensor out(attention.output(), engine);

  std::vector<char> flush(std::size_t{192} << 20, 1);
  std::vector<double> ms;
  for (int i = 0; i <= repeats; ++i) {
    const volatile char* line = flush.data();
    for (std::size_t at = 0; at < flush.size(); at += 64) static_cast<void>(line[at]);
    const auto start = std::chrono::steady_clock::now();
    attend.execute(stream, in, {out});
    stream.wait();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (i > 0) ms.push_back(took.count());
  }
  std::sort(ms.begin(), ms.end());
  const dnnl_version_t* version = dnnl_version();
  std::printf(
      "{\"peer\": \"oneDNN %d.%d\", \"phase\": \"%s\", \"batch\": %lld, \"length\": %lld, "
      "\"threads\": %d, \"ms\": %.4f, \"ms_min\": %.4f}\n",
      version->major, version->minor, prefill ? "prefill" : "decode", static_cast<long long>(batch),
      static_cast<long long>(length), threads, ms[ms.size() / 2], ms.front());
}
