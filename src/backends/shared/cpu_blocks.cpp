#include "backends/shared/cpu_blocks.hpp"

#include <algorithm>

#include "base/math.hpp"
#include "kernels/paged_decode/policy.hpp"
#include "kernels/ragged_prefill/policy.hpp"
#include "plan/split_kv.hpp"
#include "plan/tile_schedule.hpp"

namespace attune::backends::shared {
namespace {

namespace dense = kernels::dense;
using attention::KeyRange;

/// Fewer rows would pack the same keys too often.
constexpr std::int64_t kMinBlockRows = 48;
/// What fetching or packing a key costs, in rows that multiply it.
constexpr double kReadingRows = 8.0;

// What the cost test of shared prefixes counts, in nanoseconds of a Zen 5 core with both operands a
// memory away (docs/performance/cascade.md). Other cores differ in speed more than in ratios.
constexpr double kDecodeByte = 0.025;      ///< of keys and values read in place
constexpr double kBlockByte = 0.05;        ///< of those read head by head, to be packed
constexpr double kPacking = 0.16;          ///< a packed number
constexpr double kPairedProduct = 0.0055;  ///< a number of a key met by a row, in bf16 pairs
constexpr double kFloatProduct = 0.011;    ///< likewise in fp32
constexpr double kMerging = 1.5;           ///< a number of a state

/// KV heads of one decode item: all of them, so that tiles are read from end to end, unless there
/// are too few keys to give every thread some; then the heads must.
std::int64_t decode_kv_heads(const Setup& setup, std::int64_t total_keys) {
  const AttentionSpec& spec = setup.spec;
  const std::int64_t most = std::clamp<std::int64_t>(
      kernels::paged_decode::kMaxRows / spec.gqa_group_size(), 1, spec.num_kv_heads);
  if (setup.batch_invariant) return most;
  const std::int64_t wanted = kPartsPerThread * setup.num_threads;
  const std::int64_t parts = std::max<std::int64_t>(total_keys / plan::SplitPolicy{}.min_chunk, 1);
  if (setup.num_threads == 1 || parts >= wanted) return most;
  const std::int64_t groups = base::ceil_div(wanted, parts);
  return std::clamp<std::int64_t>(spec.num_kv_heads / groups, 1, most);
}

/// Keys that the batch's requests and levels read.
std::int64_t keys_read(const BatchView& batch, const plan::Cascade& cascade) {
  std::int64_t keys = std::int64_t{batch.kv_indptr.back()} *
                      (batch.source == KvSource::paged ? batch.page_size : 1);
  for (const plan::SharedLevel& level : cascade.levels)
    keys -= (level.num_requests - 1) * (level.keys.end - level.keys.begin);
  return keys;
}

/// The keys of `limit` that any of the block's rows sees, and what the block costs: row-key
/// products, packing.
void survey(const AttentionSpec& spec, std::span<const KeyRange> visible, KeyRange limit,
            Block& block) {
  KeyRange all{INT64_MAX, 0};
  KeyRange shared = limit;
  double products = 0.0;
  for (std::int64_t t = 0; t < block.item.num_tokens; ++t) {
    KeyRange range = visible[static_cast<std::size_t>(block.item.first_token + t)];
    range.begin = std::max(range.begin, limit.begin);
    range.end = std::min(range.end, limit.end);
    shared.begin = std::max(shared.begin, range.begin);
    shared.end = std::min(shared.end, range.end);
    if (range.begin >= range.end) continue;
    all.begin = std::min(all.begin, range.begin);
    all.end = std::max(all.end, range.end);
    products += static_cast<double>(range.end - range.begin);
  }
  if (all.begin >= all.end) all = {};
  block.item.shared = shared;
  block.item.kv_begin = all.begin;
  block.item.kv_end = all.end;
  const double reading =
      kReadingRows * static_cast<double>(all.end - all.begin) * block.item.num_kv_heads;
  // A decode item's heads are spread over its KV heads: each product is of one head and its keys.
  block.cost = (products * block.item.num_heads + reading) * (spec.head_dim_qk + spec.head_dim_vo);
}

}  // namespace

HeadBlocks head_blocks(const AttentionSpec& spec) {
  const std::int64_t group = spec.gqa_group_size();
  const std::int64_t count = base::ceil_div<std::int64_t>(group, kernels::ragged_prefill::kMaxRows);
  return {base::ceil_div(group, count), count};
}

bool decodes(const AttentionSpec& spec, std::int64_t qo_len) {
  return qo_len == 1 && spec.gqa_group_size() <= kernels::paged_decode::kMaxGroup &&
         !spec.custom_mask && !spec.block_mask;
}

std::vector<Block> own_blocks(const Setup& setup, const BatchView& batch,
                              std::span<const KeyRange> visible, const plan::Cascade& cascade) {
  const AttentionSpec& spec = setup.spec;
  const std::int64_t group = spec.gqa_group_size();
  const HeadBlocks heads = head_blocks(spec);
  const std::int64_t max_rows = kernels::ragged_prefill::kMaxRows;
  // Where neighbours may not matter, a block is as large as it can be.
  const std::int64_t block_tokens =
      setup.batch_invariant ? std::max<std::int64_t>(max_rows / heads.heads, 1)
                            : plan::query_block_tokens(heads.heads, max_rows, kMinBlockRows,
                                                       batch.num_qo_tokens() * spec.num_qo_heads,
                                                       kPartsPerThread * setup.num_threads);
  const std::int64_t decode_heads = decode_kv_heads(setup, keys_read(batch, cascade));
  std::vector<Block> blocks;
  const auto add = [&](Block block) {
    survey(spec, visible, {cascade.own_begin(block.item.request), INT64_MAX}, block);
    blocks.push_back(block);
  };
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t first_token = batch.qo_indptr[static_cast<std::size_t>(i)];
    const std::int64_t qo_len = batch.qo_len(i);
    // The last token of a prompt gets the bits that it would get among the others.
    const bool of_prompt = setup.batch_invariant && batch.form == BatchForm::extend;
    if (decodes(spec, qo_len) && !of_prompt) {
      for (std::int64_t kv_head = 0; kv_head < spec.num_kv_heads; kv_head += decode_heads) {
        const std::int64_t count = std::min(decode_heads, spec.num_kv_heads - kv_head);
        add({.item = {.request = i,
                      .first_token = first_token,
                      .num_tokens = 1,
                      .kv_head = static_cast<int>(kv_head),
                      .num_kv_heads = static_cast<int>(count),
                      .first_head = static_cast<int>(kv_head * group),
                      .num_heads = static_cast<int>(count * group),
                      .kv_len = batch.kv_len(i)},
             .decodes = true});
      }
      continue;
    }
    for (std::int64_t t = 0; t < qo_len; t += block_tokens) {
      for (int kv_head = 0; kv_head < spec.num_kv_heads; ++kv_head) {
        for (std::int64_t h = 0; h < group; h += heads.heads) {
          add({.item = {.request = i,
                        .first_token = first_token + t,
                        .num_tokens = std::min(block_tokens, qo_len - t),
                        .request_token = t,
                        .kv_head = kv_head,
                        .first_head = static_cast<int>(kv_head * group + h),
                        .num_heads = static_cast<int>(std::min(heads.heads, group - h)),
                        .kv_len = batch.kv_len(i)},
               .decodes = false});
        }
      }
    }
  }
  return blocks;
}

plan::CascadeCosts cascade_costs(const Setup& setup) {
  const AttentionSpec& spec = setup.spec;
  const double dims = spec.head_dim_qk + spec.head_dim_vo;
  const double bytes = dims * static_cast<double>(size_of(spec.kv_dtype));
  const double row = dims * (setup.prefill->number_bytes == 4 ? kFloatProduct : kPairedProduct);
  return {.decode_read = bytes * kDecodeByte,
          .decode_row = row,
          .block_read = dims * kPacking + bytes * kBlockByte,
          .block_row = row,
          .merge_row = spec.head_dim_vo * kMerging,
          .rows_a_token = spec.gqa_group_size(),
          .block_rows = kernels::ragged_prefill::kMaxRows,
          .decodes = decodes(spec, 1),
          .units = spec.num_kv_heads,
          .workers = setup.num_threads,
          .least_keys = plan::SplitPolicy{}.min_chunk};
}

std::vector<Block> level_blocks(const Setup& setup, const plan::SharedLevel& level,
                                std::span<const KeyRange> visible) {
  const AttentionSpec& spec = setup.spec;
  const std::int64_t group = spec.gqa_group_size();
  const HeadBlocks heads = head_blocks(spec);
  const std::int64_t most =
      std::max<std::int64_t>(kernels::ragged_prefill::kMaxRows / heads.heads, 1);
  // Of nearly equal sizes, so that one split of the keys suits them all.
  const std::int64_t block_tokens =
      base::ceil_div(level.num_tokens, base::ceil_div(level.num_tokens, most));
  std::vector<Block> blocks;
  for (std::int64_t t = 0; t < level.num_tokens; t += block_tokens) {
    for (int kv_head = 0; kv_head < spec.num_kv_heads; ++kv_head) {
      for (std::int64_t h = 0; h < group; h += heads.heads) {
        // The first request's pages are everybody's.
        Block block{.item = {.request = level.first_request,
                             .first_token = level.first_token + t,
                             .num_tokens = std::min(block_tokens, level.num_tokens - t),
                             .kv_head = kv_head,
                             .first_head = static_cast<int>(kv_head * group + h),
                             .num_heads = static_cast<int>(std::min(heads.heads, group - h))}};
        survey(spec, visible, level.keys, block);
        blocks.push_back(block);
      }
    }
  }
  return blocks;
}

}  // namespace attune::backends::shared
