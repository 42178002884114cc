// What this machine can do at most, measured in the same run as everything compared with it (layer
// bench): read bandwidth and the rate of products per instruction set.
#pragma once

#include <cstdint>
#include <string>

#include <attune/device.hpp>
#include <attune/tensor.hpp>

namespace attune::bench {

struct Ceiling {
  double rate = 0.0;  ///< bytes/s or flop/s over all threads
  std::string how;    ///< the instruction, or the size read
};

/// Bytes/s of reading `bytes` once, in pieces claimed by the executor's threads, each in order or as
/// several streams, whichever is faster; far beyond the caches it is the memory's, within them the
/// caches'. The best of `repeats`.
[[nodiscard]] Ceiling read_bandwidth(Executor& executor, CpuIsa isa, std::int64_t bytes,
                                     int repeats = 5);

/// Whether product_rate of DType::i8 is of products of signed bytes.
[[nodiscard]] bool has_int8_products(CpuIsa isa);

/// Flop/s of independent products of `input` (fp32 multiply-add, or bf16 pairs or signed bytes
/// where there are any). The best of `repeats`.
[[nodiscard]] Ceiling product_rate(Executor& executor, CpuIsa isa, DType input, int repeats = 5);

}  // namespace attune::bench
