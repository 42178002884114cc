// Who takes a batch's requests of several query tokens: Hopper's tiles or the plain kernel. The one
// place that decides, with the reason.
//
// The plain kernel has every option and cuts keys where there are few rows. The Hopper kernels are
// several times faster where both can (docs/performance/cuda-prefill.md), on cards of compute
// capability 9.0.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <attune/backend.hpp>

#include "backends/shared/cuda/hopper_tiles.hpp"
#include "backends/shared/cuda/paged_attention.hpp"
#include "kernels/ragged_prefill/sm80/launch.hpp"

namespace attune::backends::shared::paged {

/// Settled by a plan, kept by its refreshes.
struct PrefillChoice {
  bool tiled = false;
  hopper::Choice tiles{};  ///< where tiled
  std::string_view reason;
};

class PrefillKernels {
 public:
  /// `sm`: the card's capability.
  [[nodiscard]] static Result<PrefillKernels> make(
      const BackendContext& context, const kernels::ragged_prefill::sm80::Instance* plain,
      const PagedOptions& options, int sm, int num_sms);

  [[nodiscard]] PrefillChoice choose(const BatchView& batch, bool writes_states) const;

  /// Defined where some choice is tiled.
  [[nodiscard]] const hopper::Tiler* tiler() const { return tiler_ ? &*tiler_ : nullptr; }

 private:
  [[nodiscard]] std::int64_t plain_cycles(const BatchView& batch) const;

  AttentionSpec spec_;
  const kernels::ragged_prefill::sm80::Instance* plain_ = nullptr;
  int num_sms_ = 1;
  bool by_cost_ = true;
  std::optional<hopper::Tiler> tiler_;
  std::string_view reason_;  ///< why there is no tiler
};

}  // namespace attune::backends::shared::paged
