// What a LinearCall must look like for a family, and the kernel's Params made from it (layer
// backends).
#pragma once

#include <cstdint>

#include <attune/backend.hpp>
#include <attune/linear_state.hpp>
#include <attune/spec.hpp>
#include <attune/status.hpp>

#include "kernels/linear/convolution.hpp"
#include "kernels/linear/params.hpp"

namespace attune::backends::shared {

/// Head counts, dims, taps and dtypes that make sense together.
[[nodiscard]] Status validate_linear_spec(const AttentionSpec& spec);

/// Offsets and states of a batch: one slot a request, none named twice, no draft tokens to verify.
[[nodiscard]] Status validate_linear_batch(const AttentionSpec& spec, const BatchView& batch);

/// Every tensor of one layer: `num_tokens` rows, state rows up to `max_slot`.
[[nodiscard]] Status validate_linear_call(const AttentionSpec& spec, const LayerCall& call,
                                          std::int64_t num_tokens, std::int64_t max_slot);

/// Kernel parameters of a checked call; the recurrent families only.
[[nodiscard]] kernels::linear::Params recurrence_params(const AttentionSpec& spec,
                                                        const LayerCall& call);

/// Parameters of the convolution: o is written by short_conv alone.
[[nodiscard]] kernels::linear::ConvolutionParams convolution_params(const AttentionSpec& spec,
                                                                    const LayerCall& call);

/// Drafts are verified as a chain, with a second slot for the state behind them.
[[nodiscard]] Status check_linear_drafts(const BatchView& batch);

}  // namespace attune::backends::shared
