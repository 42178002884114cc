// One definition of "visible" (layer attention). Positions are absolute and 64-bit; every backend,
// the planner and the window pool ask these functions and no others. Usable from CUDA
// (--expt-relaxed-constexpr).
#pragma once

#include <cstdint>

namespace attune::attention {

/// The rules of one layer group. Boundaries are inclusive: window_left = W - 1 for Hugging Face's
/// sliding_window = W.
struct MaskRule {
  bool causal = true;
  std::int64_t window_left = -1;     ///< -1 = unbounded
  std::int64_t window_right = -1;    ///< -1 = unbounded
  std::int64_t attention_chunk = 0;  ///< 0 = off
};

/// Half-open range of key positions.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The keys that query position p may see among positions [kv_begin, kv_end): always one contiguous
/// range.
[[nodiscard]] constexpr KeyRange visible_range(const MaskRule& rule, std::int64_t p,
                                               std::int64_t kv_begin, std::int64_t kv_end) {
  std::int64_t begin = kv_begin;
  std::int64_t end = kv_end;
  if (rule.causal && p + 1 < end) end = p + 1;
  if (rule.window_left >= 0 && p - rule.window_left > begin) begin = p - rule.window_left;
  if (rule.window_right >= 0 && p + rule.window_right + 1 < end) end = p + rule.window_right + 1;
  if (rule.attention_chunk > 0) {
    // Positions may be negative where qo_len > kv_len: those rows see nothing, and floor must not
    // round towards zero.
    const std::int64_t c = rule.attention_chunk;
    const std::int64_t start = (p >= 0 ? p / c : (p - c + 1) / c) * c;
    if (start > begin) begin = start;
    if (start + c < end) end = start + c;
  }
  if (end < begin) end = begin;
  return {begin, end};
}

[[nodiscard]] constexpr bool visible(const MaskRule& rule, std::int64_t p, std::int64_t j) {
  const KeyRange r = visible_range(rule, p, j, j + 1);
  return r.begin < r.end;
}

/// Keys before this position are never needed again once every later query sits at position `next`
/// or beyond.
[[nodiscard]] constexpr std::int64_t first_needed_key(const MaskRule& rule, std::int64_t next) {
  return visible_range(rule, next, 0, INT64_MAX).begin;
}

}  // namespace attune::attention
