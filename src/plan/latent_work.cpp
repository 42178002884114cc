#include "plan/latent_work.hpp"

#include <algorithm>
#include <span>

#include "base/math.hpp"

namespace attune::plan {
namespace {

using attention::LatentItem;
using attention::LatentMerge;

/// Blocks of one request.
std::int32_t blocks_of(const LatentShape& shape, std::int64_t qo_len) {
  return static_cast<std::int32_t>(base::ceil_div<std::int64_t>(qo_len, shape.tokens_per_block)) *
         shape.head_blocks;
}

/// Key tiles that some row of the strip sees.
std::int32_t tiles_of(const LatentRules& rules, const LatentShape& shape, std::int64_t qo_len,
                      std::int64_t kv_len, std::int32_t last_block) {
  std::int64_t keys = kv_len;
  if (rules.causal) {
    const std::int64_t last_token =
        std::min<std::int64_t>(
            qo_len, std::int64_t{last_block / shape.head_blocks + 1} * shape.tokens_per_block) -
        1;
    keys = std::clamp<std::int64_t>(kv_len - qo_len + last_token + 1, 0, kv_len);
  }
  return static_cast<std::int32_t>(base::ceil_div<std::int64_t>(keys, rules.tile));
}

/// Calls take(request, first_block, num_blocks, tiles) for every strip, in order.
template <class Take>
void for_each_strip(const BatchView& batch, const LatentRules& rules, const LatentShape& shape,
                    Take take) {
  for (std::int64_t r = 0; r < batch.batch_size(); ++r) {
    const std::int64_t qo_len = batch.qo_len(r);
    const std::int64_t kv_len = batch.kv_len(r);
    const std::int32_t blocks = blocks_of(shape, qo_len);
    for (std::int32_t first = 0; first < blocks; first += shape.lanes) {
      const std::int32_t last = std::min(first + shape.lanes, blocks) - 1;
      take(r, first, blocks, tiles_of(rules, shape, qo_len, kv_len, last));
    }
  }
}

/// Deals strips to groups of `budget` each: calls give(group, from, to) for the tiles of a strip,
/// and answers how many groups were used so far.
class Dealer {
 public:
  Dealer(const LatentRules& rules, std::int64_t budget)
      : item_tiles_(rules.item_tiles),
        least_(std::max(1, rules.least_tiles)),
        budget_(budget),
        room_(budget) {}

  template <class Give>
  void deal(std::int32_t tiles, Give give) {
    std::int32_t at = 0;
    for (bool more = true; more; more = at < tiles) {
      const std::int32_t rest = tiles - at;
      if (room_ < budget_ && room_ - item_tiles_ < std::min(rest, least_)) {
        ++group_;
        room_ = budget_;
      }
      auto count = static_cast<std::int32_t>(std::min<std::int64_t>(rest, room_ - item_tiles_));
      // What is left must be worth a part of its own.
      if (rest - count > 0 && rest - count < least_ && rest >= 2 * least_) count = rest - least_;
      give(group_, at, at + count);
      room_ -= count + item_tiles_;
      at += count;
    }
  }

  [[nodiscard]] std::int32_t groups() const { return group_ + 1; }

 private:
  std::int32_t item_tiles_;
  std::int32_t least_;
  std::int64_t budget_;
  std::int64_t room_;
  std::int32_t group_ = 0;
};

/// The least budget with which the groups suffice.
std::int64_t find_budget(const BatchView& batch, const LatentRules& rules, const LatentShape& shape,
                         std::int32_t groups) {
  std::int64_t cost = 0;
  for_each_strip(batch, rules, shape,
                 [&](std::int64_t, std::int32_t, std::int32_t, std::int32_t tiles) {
                   cost += tiles + rules.item_tiles;
                 });
  std::int64_t budget = std::max<std::int64_t>(base::ceil_div<std::int64_t>(cost, groups),
                                               rules.item_tiles + std::max(1, rules.least_tiles));
  // Each cut costs an item more and each group may end before it is full, so that a few tiles above
  // the mean suffice.
  for (;; ++budget) {
    Dealer dealer(rules, budget);
    for_each_strip(batch, rules, shape,
                   [&](std::int64_t, std::int32_t, std::int32_t, std::int32_t tiles) {
                     dealer.deal(tiles, [](std::int32_t, std::int32_t, std::int32_t) {});
                   });
    if (dealer.groups() <= groups) return budget;
  }
}

}  // namespace

LatentShape latent_shape(const LatentRules& rules, const BatchView& batch) {
  LatentShape shape;
  std::int64_t longest = 1;
  for (std::int64_t r = 0; r < batch.batch_size(); ++r)
    longest = std::max(longest, batch.qo_len(r));
  // The smallest block that holds any request.
  shape.rows = std::min(rules.least_rows, rules.rows);
  while (shape.rows < rules.rows && shape.rows < rules.num_heads * longest) shape.rows *= 2;
  shape.heads_per_block = std::min(rules.num_heads, shape.rows);
  shape.head_blocks = base::ceil_div(rules.num_heads, shape.rows);
  shape.tokens_per_block = static_cast<std::int32_t>(
      std::min<std::int64_t>(shape.rows / shape.heads_per_block, longest));

  std::int32_t fewest = 0;
  for (std::int64_t r = 0; r < batch.batch_size(); ++r) {
    const std::int32_t blocks = blocks_of(shape, batch.qo_len(r));
    if (blocks > 0) fewest = fewest == 0 ? blocks : std::min(fewest, blocks);
  }
  // The most lanes that leave the fewest idle in a request's last strip.
  std::int32_t least_idle = fewest;
  for (std::int32_t lanes = std::min({kMaxLanes, fewest, rules.workers}); lanes > 1; --lanes) {
    const std::int32_t idle = (lanes - fewest % lanes) % lanes;
    if (idle >= least_idle) continue;
    least_idle = idle;
    shape.lanes = lanes;
  }
  return shape;
}

void list_latent_work(const BatchView& batch, const LatentRules& rules, const LatentShape& shape,
                      LatentList& list) {
  list.items.clear();
  list.merges.clear();
  list.places = 0;
  list.meetings = 0;
  list.most_parts = 0;
  const std::int32_t groups = latent_groups(rules, shape);
  list.groups.assign(static_cast<std::size_t>(groups), {});
  Dealer dealer(rules, find_budget(batch, rules, shape, groups));
  for_each_strip(
      batch, rules, shape,
      [&](std::int64_t r, std::int32_t first_block, std::int32_t num_blocks, std::int32_t tiles) {
        const auto n = static_cast<std::size_t>(r);
        LatentItem item{.q_token = batch.qo_indptr[n],
                        .qo_len = static_cast<std::int32_t>(batch.qo_len(r)),
                        .kv_len = static_cast<std::int32_t>(batch.kv_len(r)),
                        .entry_begin = batch.kv_indptr[n],
                        .first_block = first_block,
                        .num_blocks = num_blocks};
        const std::int32_t first_place = list.places;
        dealer.deal(tiles, [&](std::int32_t group, std::int32_t from, std::int32_t to) {
          item.tile_begin = from;
          item.tile_end = to;
          item.place = to - from < tiles ? list.places++ : -1;
          item.last = to == tiles ? 1 : 0;
          item.first_page =
              from < to && batch.page_size == rules.tile
                  ? batch.kv_indices[static_cast<std::size_t>(item.entry_begin + from)]
                  : 0;
          list.items.push_back(item);
          ++list.groups[static_cast<std::size_t>(group)].end;
        });
        const std::int32_t parts = list.places - first_place;
        if (parts == 2 && rules.meetings) {
          for (LatentItem& part : std::span(list.items).last(2)) {
            part.place = first_place;
            part.meeting = list.meetings;
          }
          list.places = first_place + 1;
          ++list.meetings;
        } else if (parts > 0) {
          list.most_parts = std::max(list.most_parts, parts);
          list.merges.push_back({.q_token = item.q_token,
                                 .qo_len = item.qo_len,
                                 .first_block = first_block,
                                 .num_blocks = num_blocks,
                                 .first_place = first_place,
                                 .parts = parts});
        }
      });
  std::int32_t at = 0;
  for (attention::LatentGroup& group : list.groups) {
    group.begin = at;
    at = group.end += at;
    if (group.begin < group.end) group.first = list.items[static_cast<std::size_t>(group.begin)];
  }
}

LatentLimits latent_limits(const LatentRules& rules, std::int64_t max_qo_tokens) {
  const std::int64_t workers = rules.workers;
  // A block has a token at least. A group cuts one strip at most, at its end, so that there are no
  // more parts than cuts and cut strips.
  const std::int64_t blocks = max_qo_tokens * base::ceil_div(rules.num_heads, rules.rows);
  return {.items = blocks + workers,
          .merges = std::min(workers, blocks),
          .counters = std::min(workers, blocks * kMaxLanes),
          .part_blocks = workers + std::min(workers, blocks * kMaxLanes)};
}

}  // namespace attune::plan
