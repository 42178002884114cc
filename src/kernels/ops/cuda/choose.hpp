// The next token from every row of logits, on a GPU (layer kernels): kernels/ops/choose.hpp's rule.
//
// Nothing is sorted. The order of tokens is that of 64-bit keys (the logit's bits in the order of
// numbers, then the id), and each cut is a key found by bisection over the row, which an interval
// of few tokens leaves for shared memory. Weights are whole multiples of a power of two: their sums
// do not depend on the order, so that the token is the same in every run. Against the host's
// doubles a cut or a draw may go the other way where it meets a border within about 1e-6 of the
// sum.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/ops/choose.hpp"
#include "kernels/ops/cuda/rows.hpp"

namespace attune::kernels::ops::cuda {

/// ids[t] is the token of logits[t] (fp32) by choices[t] (device memory).
void choose(const Rows& logits, const Choice* choices, std::int32_t* ids, cudaStream_t stream);

}  // namespace attune::kernels::ops::cuda
