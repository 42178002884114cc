#include "plan/prefill_work.hpp"

#include <algorithm>
#include <iterator>

#include "attention/block_table.hpp"
#include "base/math.hpp"

namespace attune::plan {
namespace {

/// Parts are worth their joining from this many key tiles on.
constexpr std::int32_t kLeastTiles = 4;

/// Keys of the blocks that are not hidden from some query of [first, last].
attention::KeyRange unhidden(const BlockMaskView& mask, std::int64_t request, std::int64_t first,
                             std::int64_t last, std::int64_t kv_len) {
  const attention::BlockTable table{.num_heads = mask.num_heads,
                                    .indptr = mask.indptr.data(),
                                    .blocks = mask.blocks.data(),
                                    .bits = mask.bits.data()};
  const std::int64_t columns = attention::BlockTable::columns(kv_len);
  std::int64_t begin = columns;
  std::int64_t end = 0;
  for (std::int64_t query = first / kMaskBlock * kMaskBlock; query <= last; query += kMaskBlock)
    for (int head = 0; head < mask.num_heads; ++head) {
      const std::int32_t* const row = table.row(request, head, query, kv_len);
      const auto hidden = [](std::int32_t block) { return block == kHiddenBlock; };
      begin = std::find_if_not(row, row + begin, hidden) - row;
      const auto behind = std::find_if_not(std::reverse_iterator(row + columns),
                                           std::reverse_iterator(row + end), hidden);
      end = behind.base() - row;
    }
  return {std::min(begin * kMaskBlock, kv_len), std::min(end * kMaskBlock, kv_len)};
}

attention::PrefillItem block_of(const BatchView& batch, const attention::MaskRule& rule,
                                const PrefillShape& shape, std::int64_t request,
                                std::int32_t row_begin, std::int32_t own_begin) {
  const auto n = static_cast<std::size_t>(request);
  attention::PrefillItem item;
  item.q_row = batch.qo_indptr[n];
  item.o_row = item.q_row;
  item.qo_len = static_cast<std::int32_t>(batch.qo_len(request));
  item.kv_len = static_cast<std::int32_t>(batch.kv_len(request));
  item.entry_begin = batch.kv_indptr[n];
  item.row_begin = row_begin;
  item.first_position = batch.first_kv_position(request);
  if (!batch.custom_mask_indptr.empty()) item.mask_begin = batch.custom_mask_indptr[n];

  // Visible ranges move forward with the query: the block's is from its first row's to its last's.
  const std::int32_t last_row =
      std::min(row_begin + shape.rows, item.qo_len * shape.gqa_group_size) - 1;
  const std::int64_t end = item.first_position + item.kv_len;
  const std::int64_t position = end - item.qo_len;
  const attention::KeyRange first = attention::visible_range(
      rule, position + row_begin / shape.gqa_group_size, item.first_position, end);
  const attention::KeyRange last = attention::visible_range(
      rule, position + last_row / shape.gqa_group_size, item.first_position, end);
  auto begin_key = static_cast<std::int32_t>(first.begin - item.first_position);
  auto end_key = static_cast<std::int32_t>(last.end - item.first_position);
  if (batch.block_mask.given()) {
    item.mask_begin = batch.block_mask.indptr[n];
    const attention::KeyRange seen =
        unhidden(batch.block_mask, request, row_begin / shape.gqa_group_size,
                 last_row / shape.gqa_group_size, item.kv_len);
    begin_key = std::max(begin_key, static_cast<std::int32_t>(seen.begin));
    end_key = std::min(end_key, static_cast<std::int32_t>(seen.end));
  }
  const std::int32_t begin = std::max(begin_key / shape.key_tile * shape.key_tile, own_begin);
  if (end_key > std::max(begin_key, own_begin)) {
    item.kv_begin = begin;
    item.kv_end = end_key;
  }
  return item;
}

}  // namespace

std::int64_t max_prefill_items(const PrefillShape& shape, const BatchBounds& bounds) {
  return base::ceil_div<std::int64_t>(bounds.max_qo_tokens * shape.gqa_group_size, shape.rows) +
         bounds.max_batch + shape.max_parts;
}

void list_prefill_work(const BatchView& batch, const attention::MaskRule& rule,
                       const PrefillShape& shape, const Cascade& cascade, PrefillList& list) {
  list.items.clear();
  std::int64_t tiles = 0;
  const auto tiles_of = [&](const attention::PrefillItem& item) {
    return base::ceil_div(item.kv_end - item.kv_begin, shape.key_tile);
  };
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    if (batch.qo_len(i) == 1 && !shape.decodes_too) continue;
    const std::int64_t rows = batch.qo_len(i) * shape.gqa_group_size;
    const auto own_begin = static_cast<std::int32_t>(cascade.own_begin(i));
    for (std::int64_t row = 0; row < rows; row += shape.rows) {
      list.items.push_back(
          block_of(batch, rule, shape, i, static_cast<std::int32_t>(row), own_begin));
      tiles += tiles_of(list.items.back());
    }
  }

  const auto blocks = static_cast<std::int64_t>(list.items.size());
  const std::int64_t size = std::max<std::int64_t>(
      kLeastTiles, base::ceil_div<std::int64_t>(tiles * shape.num_kv_heads, shape.workers));
  if (blocks * shape.num_kv_heads < shape.workers) {
    std::int32_t places = 0;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const attention::PrefillItem whole = list.items[static_cast<std::size_t>(b)];
      const std::int32_t all = tiles_of(whole);
      const auto parts = static_cast<std::int32_t>(base::ceil_div<std::int64_t>(all, size));
      if (parts < 2 || places + parts > shape.max_parts) continue;
      for (std::int32_t part = 0; part < parts; ++part) {
        const auto edge = [&](std::int32_t k) {
          const auto tile = static_cast<std::int32_t>(static_cast<std::int64_t>(all) * k / parts);
          return std::min(whole.kv_end, whole.kv_begin + tile * shape.key_tile);
        };
        attention::PrefillItem item = whole;
        item.kv_begin = edge(part);
        item.kv_end = edge(part + 1);
        item.part = part;
        item.parts = parts;
        item.first_place = places;
        if (part == 0)
          list.items[static_cast<std::size_t>(b)] = item;
        else
          list.items.push_back(item);
      }
      places += parts;
    }
  }
  std::stable_sort(list.items.begin(), list.items.end(), [&](const auto& a, const auto& b) {
    return a.kv_end - a.kv_begin > b.kv_end - b.kv_begin;
  });
  list.work.num_items = static_cast<std::int32_t>(list.items.size());
}

}  // namespace attune::plan
