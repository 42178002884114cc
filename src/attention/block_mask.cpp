#include <attune/flex.hpp>

#include <algorithm>
#include <limits>

#include "attention/block_table.hpp"
#include "attention/validate_blocks.hpp"
#include "base/join.hpp"

namespace attune {
namespace {

using attention::BlockTable;
using base::join;

/// A block of queries by a block of keys of one request and head.
struct Corner {
  FlexPair at{};  ///< its first query and key
  std::int64_t queries = 0;
  std::int64_t keys = 0;
};

/// Fills `bits` (zero before), and says of how many pairs.
std::int64_t ask(const MaskMod& mask, const Corner& corner, std::uint8_t* bits) {
  std::int64_t seen = 0;
  FlexPair at = corner.at;
  for (std::int64_t r = 0; r < corner.queries; ++r) {
    at.q_position = corner.at.q_position + r;
    for (std::int64_t c = 0; c < corner.keys; ++c) {
      at.kv_position = corner.at.kv_position + c;
      if (!mask.sees(at, mask.context)) continue;
      const std::int64_t bit = BlockTable::first_bit(r, c);
      bits[bit / 8] |= static_cast<std::uint8_t>(1u << (bit % 8));
      ++seen;
    }
  }
  return seen;
}

}  // namespace

Result<BlockMask> make_block_mask(const MaskMod& mask, const BatchView& batch, int num_heads) {
  if (mask.sees == nullptr) return invalid_argument("make_block_mask wants a mask function");
  if (num_heads < 1)
    return invalid_argument(
        join("a block mask is of one head for all, or of num_qo_heads; have ", num_heads));
  const std::int64_t requests = batch.batch_size();
  if (batch.kv_indptr.size() != batch.qo_indptr.size())
    return invalid_argument("a block mask is made from lengths on the host: give kv_indptr");
  BlockMask made;
  made.num_heads_ = num_heads;
  made.indptr_ = {0};
  for (std::int64_t i = 0; i < requests; ++i) {
    const std::int64_t queries = batch.qo_len(i);
    const std::int64_t keys = batch.kv_len(i);
    const std::int64_t first = batch.first_kv_position(i);
    for (int head = 0; head < num_heads; ++head) {
      for (std::int64_t q = 0; q < queries; q += kMaskBlock) {
        for (std::int64_t k = 0; k < keys; k += kMaskBlock) {
          const Corner corner{.at = {.request = i,
                                     .qo_head = head,
                                     .q_position = first + keys - queries + q,
                                     .kv_position = first + k},
                              .queries = std::min(kMaskBlock, queries - q),
                              .keys = std::min(kMaskBlock, keys - k)};
          // Bits are kept where they tell more than the block does.
          const std::size_t room = made.bits_.size();
          made.bits_.resize(room + static_cast<std::size_t>(kMaskBlockBytes));
          const std::int64_t seen = ask(mask, corner, made.bits_.data() + room);
          const auto block = static_cast<std::int64_t>(room) / kMaskBlockBytes;
          if (block > std::numeric_limits<std::int32_t>::max())
            return invalid_argument(
                join("a block mask holds 2^31 blocks of mixed pairs at most; request ", i,
                     " of the batch has more: mask fewer requests, or in larger pieces"));
          if (seen == 0 || seen == corner.queries * corner.keys) made.bits_.resize(room);
          made.blocks_.push_back(seen == 0 ? kHiddenBlock
                                 : seen == corner.queries * corner.keys
                                     ? kWholeBlock
                                     : static_cast<std::int32_t>(block));
        }
      }
    }
    made.indptr_.push_back(static_cast<std::int64_t>(made.blocks_.size()));
  }
  return made;
}

double BlockMask::sparsity() const {
  if (blocks_.empty()) return 0.0;
  const auto hidden = std::count(blocks_.begin(), blocks_.end(), kHiddenBlock);
  return static_cast<double>(hidden) / static_cast<double>(blocks_.size());
}

namespace attention {

Status validate_blocks(const BatchView& batch, const AttentionSpec& spec) {
  const BlockMaskView& mask = batch.block_mask;
  if (!spec.block_mask) {
    if (!mask.given() && mask.blocks.empty() && mask.bits.empty()) return {};
    return invalid_argument("the batch brings a block mask, but the spec says block_mask = false");
  }
  const auto n = static_cast<std::size_t>(batch.batch_size());
  if (mask.indptr.size() != n + 1)
    return invalid_argument(join("block_mask.indptr: want ", n + 1, " entries, have ",
                                 mask.indptr.size(), "; make_block_mask gives them"));
  if (mask.num_heads != 1 && mask.num_heads != spec.num_qo_heads)
    return invalid_argument(join("a block mask has 1 head or all ", spec.num_qo_heads,
                                 " query heads, have ", mask.num_heads));
  if (mask.indptr[0] != 0)
    return invalid_argument(join("block_mask.indptr[0] must be 0, have ", mask.indptr[0]));
  for (std::size_t i = 0; i < n; ++i) {
    const auto request = static_cast<std::int64_t>(i);
    const std::int64_t want = BlockTable::columns(batch.qo_len(request)) *
                              BlockTable::columns(batch.kv_len(request)) * mask.num_heads;
    if (mask.indptr[i + 1] - mask.indptr[i] != want)
      return invalid_argument(join("the block mask was made for other lengths: request ", i, " of ",
                                   batch.qo_len(request), " queries and ", batch.kv_len(request),
                                   " keys has ", want, " blocks of ", kMaskBlock, ", the mask ",
                                   mask.indptr[i + 1] - mask.indptr[i]));
  }
  if (mask.indptr[n] != static_cast<std::int64_t>(mask.blocks.size()))
    return invalid_argument(join("block_mask.indptr ends at ", mask.indptr[n], ", but there are ",
                                 mask.blocks.size(), " blocks"));
  const auto held = static_cast<std::int64_t>(mask.bits.size()) / kMaskBlockBytes;
  for (std::size_t b = 0; b < mask.blocks.size(); ++b)
    if (mask.blocks[b] < kWholeBlock || mask.blocks[b] >= held)
      return invalid_argument(join("block_mask.blocks[", b, "] = ", mask.blocks[b],
                                   " is no block: there are bits of ", held));
  return {};
}

}  // namespace attention
}  // namespace attune
