#include "plan/cascade.hpp"

#include <algorithm>
#include <numeric>

#include "base/math.hpp"

namespace attune::plan {
namespace {

using attention::KeyRange;

/// The part of `keys` that any of the tokens [first, end) sees.
KeyRange seen(std::span<const KeyRange> visible, std::int64_t first, std::int64_t end,
              KeyRange keys) {
  KeyRange all{keys.end, keys.begin};
  for (std::int64_t t = first; t < end; ++t) {
    const KeyRange& range = visible[static_cast<std::size_t>(t)];
    const std::int64_t begin = std::max(range.begin, keys.begin);
    const std::int64_t stop = std::min(range.end, keys.end);
    if (begin >= stop) continue;
    all.begin = std::min(all.begin, begin);
    all.end = std::max(all.end, stop);
  }
  return all.begin < all.end ? all : KeyRange{};
}

double length(KeyRange keys) { return static_cast<double>(keys.end - keys.begin); }

class Finder {
 public:
  Finder(const BatchView& batch, std::span<const KeyRange> visible, const CascadeCosts& costs,
         CascadeMode mode, std::int64_t max_states)
      : batch_(batch), visible_(visible), costs_(costs), mode_(mode), states_left_(max_states) {}

  Cascade find() {
    found_.innermost.assign(static_cast<std::size_t>(batch_.batch_size()), -1);
    for (const std::size_t g : outermost_first()) consider(batch_.prefix_groups[g]);
    return std::move(found_);
  }

 private:
  /// Of groups that nest, the outer one has fewer pages; of equal ones, the wider comes first.
  [[nodiscard]] std::vector<std::size_t> outermost_first() const {
    const auto groups = batch_.prefix_groups;
    std::vector<std::size_t> order(groups.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      if (groups[a].num_pages != groups[b].num_pages)
        return groups[a].num_pages < groups[b].num_pages;
      return groups[a].num_requests > groups[b].num_requests;
    });
    return order;
  }

  void consider(const PrefixGroup& group) {
    const auto first = static_cast<std::size_t>(group.first_request);
    const auto end = first + static_cast<std::size_t>(group.num_requests);
    const std::int32_t outer = found_.innermost[first];
    for (std::size_t i = first; i < end; ++i)
      if (found_.innermost[i] != outer) return;
    SharedLevel level{.first_request = group.first_request,
                      .num_requests = group.num_requests,
                      .first_token = batch_.qo_indptr[first],
                      .num_tokens = batch_.qo_indptr[end] - batch_.qo_indptr[first],
                      .keys = {found_.own_begin(group.first_request),
                               std::int64_t{group.num_pages} * batch_.page_size},
                      .outer = outer};
    if (level.keys.begin >= level.keys.end || level.num_tokens == 0) return;
    const KeyRange read =
        seen(visible_, level.first_token, level.first_token + level.num_tokens, level.keys);
    if (read.begin >= read.end) return;
    const std::int64_t states =
        level.num_tokens * costs_.rows_a_token * costs_.units * new_states(level);
    if (states > states_left_) return;
    if (mode_ == CascadeMode::by_cost && !pays(level, read)) return;
    states_left_ -= states;
    std::fill(found_.innermost.begin() + static_cast<std::ptrdiff_t>(first),
              found_.innermost.begin() + static_cast<std::ptrdiff_t>(end),
              static_cast<std::int32_t>(found_.levels.size()));
    found_.levels.push_back(level);
  }

  [[nodiscard]] bool pays(const SharedLevel& level, KeyRange read) const {
    double flat = 0.0;
    std::int64_t flat_blocks = 0;
    for (std::int64_t i = level.first_request; i < level.first_request + level.num_requests; ++i) {
      const std::int64_t first = batch_.qo_indptr[static_cast<std::size_t>(i)];
      const std::int64_t tokens = batch_.qo_len(i);
      const double keys = length(seen(visible_, first, first + tokens, level.keys));
      const std::int64_t rows = tokens * costs_.rows_a_token;
      const std::int64_t blocks = base::ceil_div(rows, costs_.block_rows);
      const bool decode = tokens == 1 && costs_.decodes;
      flat += keys * (decode ? costs_.decode_read + costs_.decode_row * static_cast<double>(rows)
                             : costs_.block_read * static_cast<double>(blocks) +
                                   costs_.block_row * static_cast<double>(rows));
      flat_blocks += blocks;
    }
    const std::int64_t rows = level.num_tokens * costs_.rows_a_token;
    const std::int64_t blocks = base::ceil_div(rows, costs_.block_rows);
    const double products = length(read) * (costs_.block_read * static_cast<double>(blocks) +
                                            costs_.block_row * static_cast<double>(rows));
    const double merging = costs_.merge_row * static_cast<double>(new_states(level) * rows);
    const double shared =
        products * idle(blocks, read) + merging + (found_.levels.empty() ? costs_.any_level : 0.0);
    return shared < costs_.most_of_flat * flat * idle(flat_blocks, read);
  }

  /// States a row has more for it: the first level of a request makes one of the rest, too.
  static std::int64_t new_states(const SharedLevel& level) { return level.outer < 0 ? 2 : 1; }

  /// How much longer work takes that makes fewer items than there are workers.
  [[nodiscard]] double idle(std::int64_t blocks, KeyRange read) const {
    const std::int64_t cuts =
        std::max<std::int64_t>((read.end - read.begin) / costs_.least_keys, 1);
    const std::int64_t items = blocks * costs_.units * cuts;
    return static_cast<double>(costs_.workers) /
           static_cast<double>(std::min(items, costs_.workers));
  }

  const BatchView& batch_;
  std::span<const KeyRange> visible_;
  const CascadeCosts& costs_;
  CascadeMode mode_;
  std::int64_t states_left_;
  Cascade found_;
};

}  // namespace

Cascade find_levels(const BatchView& batch, std::span<const KeyRange> visible,
                    const CascadeCosts& costs, CascadeMode mode, std::int64_t max_states) {
  if (mode == CascadeMode::off || batch.prefix_groups.empty()) return {};
  Cascade found = Finder(batch, visible, costs, mode, max_states).find();
  if (found.levels.empty()) found.innermost.clear();
  return found;
}

}  // namespace attune::plan
