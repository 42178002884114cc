#include "bench/ceilings.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/join.hpp"
#include "base/math.hpp"
#include "device/host_memory.hpp"
#include "kernels/probe/table.hpp"

namespace attune::bench {
namespace {

namespace probe = kernels::probe;

constexpr std::int64_t kPiece = 1 << 20;
constexpr std::int64_t kFetchAhead = 8192;  ///< the probe touches no byte there, it asks for it

double seconds_of(Executor& executor, std::int64_t items, void (*body)(void*, std::int64_t, int),
                  void* context) {
  const auto begin = std::chrono::steady_clock::now();
  executor.run(items, body, context);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Ceiling read_bandwidth(Executor& executor, CpuIsa isa, std::int64_t bytes, int repeats) {
  struct Work {
    probe::ReadProbe::Run read;
    char* memory;
    std::int64_t piece;
    float sink[1024];
  } work{.read = nullptr,
         .memory = nullptr,
         .piece = std::min<std::int64_t>(
             kPiece, base::round_up<std::int64_t>(bytes / executor.num_threads() + 1, 4096)),
         .sink = {}};
  const std::int64_t pieces = base::ceil_div(bytes, work.piece);
  const std::shared_ptr<void> memory =
      device::host_memory(static_cast<std::size_t>(pieces * work.piece + kFetchAhead));
  if (memory == nullptr) return {};
  work.memory = static_cast<char*>(memory.get());
  // Written by the threads that read it, so that pages lie near them; zero pages would all be one.
  const auto touch = [](void* context, std::int64_t item, int) {
    const Work& w = *static_cast<const Work*>(context);
    std::memset(w.memory + item * w.piece, 1, static_cast<std::size_t>(w.piece));
  };
  const auto read = [](void* context, std::int64_t item, int thread) {
    Work& w = *static_cast<Work*>(context);
    w.read(w.memory + item * w.piece, w.piece, &w.sink[thread % 1024]);
  };
  executor.run(pieces, touch, &work);
  const probe::ReadProbe& probe = probe::read_probe(static_cast<kernels::simd::Isa>(isa));
  double in_order = 1e30;
  double in_streams = 1e30;
  for (int i = 0; i < repeats + 1; ++i) {
    work.read = probe.in_order;
    in_order = std::min(in_order, seconds_of(executor, pieces, read, &work));
    work.read = probe.in_streams;
    in_streams = std::min(in_streams, seconds_of(executor, pieces, read, &work));
  }
  return {.rate = static_cast<double>(pieces * work.piece) / std::min(in_order, in_streams),
          .how = base::join("reading ", pieces * work.piece >> 20, " MiB",
                            in_streams < in_order ? " in streams" : "")};
}

bool has_int8_products(CpuIsa isa) {
  return probe::product_probe(static_cast<kernels::simd::Isa>(isa), DType::i8).input == DType::i8;
}

Ceiling product_rate(Executor& executor, CpuIsa isa, DType input, int repeats) {
  struct Work {
    const probe::ProductProbe* product;
    std::int64_t rounds;
    float sink[1024];
  } work{.product = &probe::product_probe(static_cast<kernels::simd::Isa>(isa), input),
         .rounds = 1 << 14,
         .sink = {}};
  // Many short items: with one a thread, whoever wakes first would do them all.
  const int items = 16 * executor.num_threads();
  const auto multiply = [](void* context, std::int64_t, int thread) {
    Work& w = *static_cast<Work*>(context);
    w.product->run(w.rounds, &w.sink[thread % 1024]);
  };
  double best = 1e30;
  for (int i = 0; i < repeats + 1; ++i)
    best = std::min(best, seconds_of(executor, items, multiply, &work));
  const double flops = work.product->flops_per_round * static_cast<double>(work.rounds) * items;
  return {.rate = flops / best, .how = work.product->instruction};
}

}  // namespace attune::bench
