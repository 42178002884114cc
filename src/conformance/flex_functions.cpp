#include "conformance/flex_functions.hpp"

#include <cmath>
#include <limits>

namespace attune::conformance {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : (a - b + 1) / b; }

std::int64_t request_of(const FlexFunctions& functions, const FlexPair& at) {
  return functions.requests[static_cast<std::size_t>(at.request)];
}

/// Odd requests hold documents of 150 positions, each with its own keys. In the others every fourth
/// 70 keys are seen from everywhere; the third request sees ahead. Heads differ by a few scattered
/// keys. Blocks of all three kinds, and rows that see nothing: those of every 13th position.
bool sees(const FlexPair& at, const void* context) {
  const std::int64_t request = request_of(*static_cast<const FlexFunctions*>(context), at);
  const std::int64_t q = at.q_position;
  const std::int64_t k = at.kv_position;
  if ((q + request) % 13 == 5) return false;
  if (at.qo_head % 3 == 1 && k % 5 == 2) return false;
  if (k > q && request != 2) return false;
  if (request % 2 == 1) return floor_div(q, 150) == floor_div(k, 150);
  return floor_div(k, 70) % 4 == 0 || floor_div(k, 128) == floor_div(q, 128);
}

/// Steeper heads, a bias by distance, and keys that it hides.
void change(const ScoreRun& run, const void* context) {
  const std::int64_t request = request_of(*static_cast<const FlexFunctions*>(context), run.first);
  for (int i = 0; i < run.count; ++i) {
    const std::int64_t k = run.first.kv_position + i;
    const auto away = static_cast<float>(std::abs(run.first.q_position - k));
    float& s = run.scores[i];
    s = s * (1.0f + 0.25f * static_cast<float>(run.first.qo_head % 3)) - 0.03125f * away;
    if (k % 11 == 7 && request % 2 == 0) s = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace

MaskMod FlexFunctions::mask() const { return {.sees = &sees, .context = this}; }

ScoreMod FlexFunctions::score() const { return {.apply = &change, .context = this}; }

Result<BlockMask> FlexFunctions::blocks(const AttentionSpec& spec, bool by_head,
                                        const BatchView& batch) const {
  if (!spec.block_mask) return BlockMask{};
  return make_block_mask(mask(), batch, by_head ? spec.num_qo_heads : 1);
}

}  // namespace attune::conformance
