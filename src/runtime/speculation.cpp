#include "runtime/speculation.hpp"

#include <algorithm>
#include <string>

namespace attune::runtime {

Status validate_speculation(const SpeculationOptions& o) {
  constexpr std::int64_t kMostDrafts = 64;
  if (o.max_drafts < 0 || o.max_drafts > kMostDrafts)
    return invalid_argument("draft tokens are " + std::to_string(o.max_drafts) + ", wanted 0 to " +
                            std::to_string(kMostDrafts));
  if (o.min_ngram < 1 || o.max_ngram < o.min_ngram)
    return invalid_argument("n-grams of " + std::to_string(o.min_ngram) + " to " +
                            std::to_string(o.max_ngram) + " tokens, wanted 1 <= least <= most");
  return {};
}

void propose_by_lookup(std::span<const std::int32_t> tokens, const SpeculationOptions& options,
                       std::int64_t limit, std::vector<std::int32_t>& drafts) {
  drafts.clear();
  const auto size = static_cast<std::int64_t>(tokens.size());
  const auto at = [&](std::int64_t i) { return tokens[static_cast<std::size_t>(i)]; };
  std::int64_t longest = options.min_ngram - 1;
  std::int64_t follow = 0;  // where the best match ends
  for (std::int64_t end = size - 1; end > longest && longest < options.max_ngram; --end) {
    const std::int64_t most = std::min(options.max_ngram, end);
    std::int64_t length = 0;
    while (length < most && at(end - 1 - length) == at(size - 1 - length)) ++length;
    if (length <= longest) continue;
    longest = length;
    follow = end;
  }
  if (follow == 0) return;
  for (std::int64_t i = 0; i < limit; ++i) {
    const std::int64_t source = follow + i;
    drafts.push_back(source < size ? at(source) : drafts[static_cast<std::size_t>(source - size)]);
  }
}

void DraftPace::record(std::int64_t drafted, std::int64_t accepted) {
  length_ = accepted < drafted ? accepted + 1 : std::max(length_, 2 * drafted);
}

}  // namespace attune::runtime
