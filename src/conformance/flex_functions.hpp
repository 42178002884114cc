// The score and mask functions of cases that want them (layer conformance).
#pragma once

#include <cstdint>
#include <vector>

#include <attune/flex.hpp>
#include <attune/spec.hpp>

namespace attune::conformance {

/// What they say of a pair depends on its request in the problem, its head and its positions alone,
/// however the problem is cut into steps.
struct FlexFunctions {
  std::vector<std::int32_t> requests{};  ///< of the problem, by request of the batch

  [[nodiscard]] MaskMod mask() const;
  [[nodiscard]] ScoreMod score() const;
  /// BatchView::block_mask where the spec asks for one, else an empty mask.
  [[nodiscard]] Result<BlockMask> blocks(const AttentionSpec& spec, bool by_head,
                                         const BatchView& batch) const;
};

}  // namespace attune::conformance
