#include "backends/minimax_sparse/cuda/tiles.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "backends/shared/cuda/cache_keys.hpp"
#include "backends/shared/cuda/outputs.hpp"
#include "backends/shared/cuda/tile_operands.hpp"
#include "base/join.hpp"
#include "base/math.hpp"
#include "device/cuda/memory.hpp"
#include "kernels/block_lists/sm80/tiles.hpp"

namespace attune::backends::minimax_sparse {
namespace {

namespace sm90 = kernels::ragged_prefill::sm90;
namespace lists = kernels::block_lists::sm80;
using device::cuda::native;

/// Fewer query tokens are few tiles, each of which walks its blocks alone: there lists, whose blocks
/// are shared out, are faster.
constexpr std::int64_t kLeastTokens = 256;

bool serves(const BackendContext& context, const sm90::Instance& kernel) {
  const AttentionSpec& spec = context.spec;
  const int group = spec.gqa_group_size();
  return kernel.dtype == spec.q_dtype && spec.o_dtype == spec.q_dtype &&
         spec.kv_dtype == kernel.kv_dtype && spec.head_dim_qk == kernel.head_dim_qk &&
         spec.head_dim_vo == kernel.head_dim_vo && spec.index_block_size == kernel.key_tile &&
         context.page_size % 8 == 0 && !spec.per_head_scales &&
         std::has_single_bit(static_cast<unsigned>(group)) && group <= 64 &&
         kernel.query_tile / group <= lists::kMostTileTokens;
}

}  // namespace

Result<std::optional<Tiler>> Tiler::make(const BackendContext& context) {
  for (const sm90::Instance& kernel : sm90::block_instances()) {
    if (!serves(context, kernel)) continue;
    const auto blocks = sm90::prepare(kernel);
    if (!blocks.ok()) return blocks.status();
    const auto encoder = kernels::tensor_map::encoder();
    if (!encoder.ok()) return encoder.status();
    return std::optional(Tiler(context, kernel, *encoder, *blocks));
  }
  return std::optional<Tiler>();
}

plan::PrefillRules Tiler::rules() const {
  const AttentionSpec& spec = context_.spec;
  return {.tile_tokens = tile_tokens(),
          .tile_heads = spec.gqa_group_size(),
          .key_tile = kernel_.key_tile,
          .num_qo_heads = spec.num_qo_heads,
          .num_kv_heads = spec.num_kv_heads,
          .decodes_too = false,
          .window_right = 0,
          .bytes_per_key = static_cast<std::int64_t>(size_of(spec.kv_dtype)) *
                           (spec.head_dim_qk + spec.head_dim_vo)};
}

TileSizes Tiler::sizes(const BatchBounds& bounds) const {
  const std::int64_t blocks =
      base::ceil_div<std::int64_t>(bounds.max_kv_len, context_.spec.index_block_size);
  if (bounds.decode_only || blocks == 0 || blocks > lists::kMostTileBlocks ||
      bounds.max_qo_tokens < kLeastTokens)
    return {};
  return {.max_items = plan::max_prefill_tiles(rules(), bounds.max_batch, bounds.max_qo_tokens),
          .max_blocks = blocks,
          .kept_stride = std::min(std::int64_t{tile_tokens()} * context_.spec.index_topk, blocks)};
}

TileParts Tiler::lay_out(plan::WorkspaceCutter& cut, const TileSizes& n) const {
  const std::int64_t rows = n.max_items * context_.spec.num_kv_heads;
  return {.work = cut.take<sm90::WorkList>(n.max_items > 0 ? 1 : 0),
          .items = cut.take<sm90::PrefillTile>(n.max_items),
          .kept = cut.take<sm90::KeptTile>(rows * n.kept_stride),
          .num_kept = cut.take<std::int32_t>(rows)};
}

bool Tiler::takes(const attention::BatchFacts& facts) const {
  const std::int64_t blocks =
      base::ceil_div<std::int64_t>(facts.max_kv_len, context_.spec.index_block_size);
  return facts.max_qo_len > 1 && blocks > 0 && blocks <= lists::kMostTileBlocks &&
         facts.num_qo_tokens >= kLeastTokens;
}

Status Tiler::list(const BatchView& batch, Tiles& tiles, Stream stream) const {
  plan::schedule_prefill(rules(), batch, tiles.schedule);
  const auto items = static_cast<std::int64_t>(tiles.schedule.tiles.size());
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < batch.batch_size(); ++i)
    longest = std::max(longest, batch.kv_len(i));
  const std::int64_t blocks = base::ceil_div<std::int64_t>(longest, context_.spec.index_block_size);
  if (items > tiles.sizes.max_items || blocks > tiles.sizes.max_blocks)
    return invalid_argument(base::join("the plan has room for ", tiles.sizes.max_items,
                                       " tiles of query rows over ", tiles.sizes.max_blocks,
                                       " blocks, the batch has ", items, " over ", blocks,
                                       ": make a new plan"));
  const auto heads = static_cast<std::uint32_t>(tiles.schedule.heads);
  const auto listed = static_cast<std::uint32_t>(items);
  tiles.image.cover(tiles.parts.work, tiles.parts.items + items);
  tiles.image.put_one(
      tiles.parts.work,
      {.num_items = heads * listed,
       .num_listed = listed,
       .heads_together = static_cast<std::uint32_t>(tiles.schedule.heads_together)});
  tiles.image.put(tiles.parts.items, tiles.schedule.tiles);
  return device::cuda::copy_to_device(tiles.image.place(), tiles.image.data(), tiles.image.bytes(),
                                      stream, "minimax_sparse: copying tiles to the device");
}

Status Tiler::keep_tiles(const Tiles& tiles, const TensorView& lists_of, Stream stream) const {
  const AttentionSpec& spec = context_.spec;
  return lists::launch_tiles({.work = tiles.parts.work,
                              .items = tiles.parts.items,
                              .max_items = static_cast<std::int32_t>(tiles.sizes.max_items),
                              .tile_tokens = tile_tokens(),
                              .lists = lists_of.as<std::int32_t>(),
                              .lists_token_stride = lists_of.stride[0],
                              .lists_head_stride = lists_of.stride[1],
                              .num_heads = spec.num_kv_heads,
                              .topk = spec.index_topk,
                              .block_size = spec.index_block_size,
                              .max_blocks = static_cast<std::int32_t>(tiles.sizes.max_blocks),
                              .kept = tiles.parts.kept,
                              .num_kept = tiles.parts.num_kept,
                              .kept_stride = static_cast<std::int32_t>(tiles.sizes.kept_stride)},
                             native(stream));
}

Status Tiler::run(const Tiles& tiles, const attention::BatchFacts& facts,
                  const std::int32_t* kv_indices, const LayerCall& call, Stream stream) const {
  if (Status s = keep_tiles(tiles, call.sparse->topk_indices, stream); !s.ok()) return s;
  const AttentionSpec& spec = context_.spec;
  const sm90::Operands operands = shared::cuda::tile_operands(
      call, spec, facts.num_qo_tokens, call.k_cache.shape[0], context_.page_size);
  sm90::Params p;
  shared::cuda::set_outputs(call, p);
  p.list = tiles.parts.work;
  p.items = tiles.parts.items;
  p.kept = tiles.parts.kept;
  p.num_kept = tiles.parts.num_kept;
  p.kept_stride = static_cast<std::int32_t>(tiles.sizes.kept_stride);
  p.kv_indices = kv_indices;
  p.page = base::FastDivisor(static_cast<std::uint32_t>(context_.page_size));
  p.box_rows = sm90::box_rows(kernel_, context_.page_size, false);
  shared::cuda::set_keys(shared::cuda::cache_keys(call, context_.kv_layout, context_.page_size), p);
  p.group = spec.gqa_group_size();
  p.pack_shift = std::countr_zero(static_cast<unsigned>(spec.gqa_group_size()));
  p.scale = spec.sm_scale * call.q_scale * call.k_scale;
  p.v_scale = call.v_scale;
  p.window_right = 0;
  return sm90::launch(kernel_, encoder_, blocks_, operands, p, native(stream));
}

}  // namespace attune::backends::minimax_sparse
