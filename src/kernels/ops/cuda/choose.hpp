// The next token from every row of logits, on a GPU (layer kernels): kernels/ops/choose.hpp's rule.
//
// Nothing is sorted. The order of tokens is that of 64-bit keys (the logit's bits in the order of
// numbers, then the id). A row's weights are added up by bins, by as many blocks as it is worth; a
// cut lies in one of them, whose tokens are few or split into bins again. Weights are whole
// multiples of a power of two: their sums do not depend on the order, so that the token is the same
// in every run. Against the host's doubles a cut or a draw may go the other way where it meets a
// border within about 1e-6 of the sum.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/ops/choose.hpp"
#include "kernels/ops/cuda/rows.hpp"

namespace attune::kernels::ops::cuda {

/// What choose() needs for so many rows, aligned to 8 bytes.
[[nodiscard]] std::size_t choose_bytes(std::int64_t rows);

/// ids[t] is the token of logits[t] (fp32) by choices[t] (device memory).
void choose(const Rows& logits, const Choice* choices, void* workspace, std::int32_t* ids,
            cudaStream_t stream);

}  // namespace attune::kernels::ops::cuda
