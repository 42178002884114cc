#include "plan/split_kv.hpp"

#include <algorithm>
#include <cmath>

#include "base/math.hpp"

namespace attune::plan {

attention::KeyRange KvSplit::part(std::int64_t i) const {
  if (num_parts == 1) return range;
  const std::int64_t unit = parts_of_a_size > 0 ? granule : kv_chunk_size;
  const std::int64_t origin = range.begin / unit * unit;
  return {std::max(range.begin, origin + offset(i)), std::min(range.end, origin + offset(i + 1))};
}

std::int64_t KvSplit::offset(std::int64_t i) const {
  if (parts_of_a_size == 0) return i * kv_chunk_size;
  std::int64_t at = 0;
  for (int halvings = 0;; ++halvings) {
    const bool last = halvings == kShrinks - 1;
    const std::int64_t parts = last ? i : std::min(i, parts_of_a_size);
    at += parts * base::round_up(kv_chunk_size >> halvings, granule);
    i -= parts;
    if (i == 0) return at;
  }
}

namespace {

/// Some `parts`: a quarter of them twice as long as the mean one.
KvSplit shrinking_parts(const SplitPolicy& policy, attention::KeyRange range, double parts) {
  const std::int64_t keys = range.end - range.begin;
  const std::int64_t most = keys / (kShrinks * policy.min_chunk);
  KvSplit split{.range = range, .granule = policy.granule};
  split.parts_of_a_size = std::min(static_cast<std::int64_t>(std::llround(parts / kShrinks)), most);
  split.kv_chunk_size =
      base::round_up(base::ceil_div(keys, 2 * split.parts_of_a_size), policy.granule);
  split.num_parts = kShrinks * split.parts_of_a_size;
  while (split.part(split.num_parts - 1).end < range.end) ++split.num_parts;
  while (split.part(split.num_parts - 2).end >= range.end) --split.num_parts;
  return split;
}

}  // namespace

KvSplit split_kv(const SplitPolicy& policy, attention::KeyRange range, double cost,
                 double total_cost) {
  KvSplit split{.range = range, .granule = policy.granule};
  const std::int64_t keys = range.end - range.begin;
  std::int64_t chunk = policy.fixed_chunk;
  if (chunk == 0) {
    if (policy.target_parts <= 1 || total_cost <= 0.0 || keys <= policy.min_chunk) return split;
    const double parts = cost * static_cast<double>(policy.target_parts) / total_cost;
    if (parts <= policy.whole_parts) return split;
    if (policy.shrinking && parts >= kShrinks && keys >= kShrinks * policy.min_chunk)
      return shrinking_parts(policy, range, parts);
    const auto wanted = static_cast<std::int64_t>(std::ceil(static_cast<double>(keys) / parts));
    chunk = std::max(wanted, policy.min_chunk);
  }
  chunk = base::round_up(chunk, policy.granule);
  const std::int64_t origin = range.begin / chunk * chunk;
  const std::int64_t num_parts = base::ceil_div(range.end - origin, chunk);
  if (keys <= 0 || num_parts <= 1) return split;
  split.kv_chunk_size = chunk;
  split.num_parts = num_parts;
  return split;
}

std::int64_t max_split_parts(const SplitPolicy& policy, std::int64_t blocks_per_request,
                             std::int64_t max_batch, std::int64_t max_kv_len,
                             std::int64_t max_total_keys) {
  if (policy.fixed_chunk > 0) {
    const std::int64_t chunk = base::round_up(policy.fixed_chunk, policy.granule);
    if (max_kv_len <= chunk) return 0;
    // A split request of n keys has at most n / chunk + 1 ≤ 2 n / chunk parts.
    return blocks_per_request * std::min(max_batch * base::ceil_div(max_kv_len, chunk),
                                         base::ceil_div(2 * max_total_keys, chunk));
  }
  if (policy.target_parts <= 1 || max_kv_len <= policy.min_chunk) return 0;
  // A block worth p > 1 parts gets at most p + 2 ≤ 3 p of them (its first and last may be short);
  // of shrinking ones, where p ≥ 4, five for each whole four, rounded, and one: at most 3 p too.
  return 3 * policy.target_parts;
}

}  // namespace attune::plan
