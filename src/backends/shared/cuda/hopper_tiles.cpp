#include "backends/shared/cuda/hopper_tiles.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "backends/shared/cuda/cache_keys.hpp"
#include "backends/shared/cuda/outputs.hpp"
#include "backends/shared/cuda/tile_operands.hpp"
#include "base/math.hpp"
#include "device/cuda/memory.hpp"
#include "kernels/gather_kv/sm80/launch.hpp"

namespace attune::backends::shared::hopper {

namespace sm90 = kernels::ragged_prefill::sm90;
namespace gather_kv = kernels::gather_kv::sm80;

namespace {

// Copying first, on an H200: bytes read and written a cycle by the whole card (3.5 TB/s at 1.7
// GHz), and a launch.
constexpr std::int64_t kCopyBytesPerCycle = 2060;
constexpr std::int64_t kCopyBeginning = 6800;
/// More is not copied: room that a workspace may give to it, once for all layers.
constexpr std::int64_t kMostCopiedBytes = std::int64_t{512} << 20;
/// Of fewer query tokens no batch reads its keys often enough; their plans need no room for rows.
constexpr std::int64_t kLeastTokensToCopy = 128;

std::int32_t window(std::int64_t keys) {
  constexpr std::int64_t kFar = std::int64_t{1} << 30;
  return keys < 0 ? -1 : static_cast<std::int32_t>(std::min(keys, kFar));
}

/// fp8 keys without a kernel of their own may still be copied first.
bool serves_keys(const AttentionSpec& spec) {
  return spec.kv_dtype == spec.q_dtype || spec.kv_dtype == DType::fp8_e4m3 ||
         spec.kv_dtype == DType::fp8_e5m2;
}

}  // namespace

std::string_view unserved(const AttentionSpec& spec) {
  const std::array<std::pair<bool, std::string_view>, 11> missing{
      {{spec.variant != Variant::gqa, "latent variants"},
       {spec.alibi, "alibi slopes"},
       {spec.custom_mask, "custom masks"},
       {spec.attention_chunk > 0, "attention chunks"},
       {spec.xai_temperature_len > 0, "temperatures by length"},
       {spec.per_head_scales, "scales by KV head"},
       {spec.relative_bias, "a learned relative bias"},
       {spec.block_mask, "masks by blocks"},
       {spec.score_mod, "functions on logits"},
       {(spec.q_dtype != DType::bf16 && spec.q_dtype != DType::f16) || spec.o_dtype != spec.q_dtype,
        "queries and outputs other than both in bf16 or both in fp16"},
       {!serves_keys(spec), "keys neither of the queries' type nor in fp8"}}};
  for (const auto& [asked, what] : missing)
    if (asked) return what;
  return {};
}

Result<Tiler> Tiler::make(const BackendContext& context, sm90::Strategy strategy, bool decodes_too,
                          Keys keys) {
  Tiler made;
  made.keys_ = keys;
  made.spec_ = context.spec;
  made.page_size_ = context.page_size;
  made.kv_layout_ = context.kv_layout;
  made.batch_invariant_ = context.batch_invariant;
  made.decodes_too_ = decodes_too;
  for (const sm90::Instance& kernel : sm90::instances()) {
    if ((kernel.strategy != strategy && kernel.strategy != sm90::Strategy::both) ||
        kernel.dtype != made.spec_.q_dtype || kernel.head_dim_qk != made.spec_.head_dim_qk ||
        kernel.head_dim_vo != made.spec_.head_dim_vo)
      continue;
    const bool takes_keys = kernel.kv_dtype == made.spec_.kv_dtype;
    const bool takes_rows = kernel.kv_dtype == made.spec_.q_dtype && kernel.boxes;
    if (!takes_keys && !takes_rows) continue;
    const auto blocks = sm90::prepare(kernel);
    if (!blocks.ok()) return blocks.status();
    if (takes_keys) made.ready_.push_back({kernel, *blocks});
    if (takes_rows) made.over_rows_.push_back({kernel, *blocks});
  }
  const auto encoder = kernels::tensor_map::encoder();
  if (!encoder.ok()) return encoder.status();
  made.encoder_ = *encoder;
  return made;
}

/// Boxes where the copy engine can, gathers elsewhere.
bool Tiler::takes(const Ready& ready, KvSource source) const {
  const bool boxes = source == KvSource::ragged || page_size_ % 8 == 0;
  return boxes ? ready.kernel.boxes : ready.kernel.gather;
}

bool Tiler::serves(KvSource source) const {
  return std::any_of(ready_.begin(), ready_.end(),
                     [&](const Ready& ready) { return takes(ready, source); });
}

plan::PrefillRules Tiler::rules(const sm90::Instance& kernel, int pack_shift) const {
  return {.tile_tokens = kernel.query_tile >> pack_shift,
          .tile_heads = 1 << pack_shift,
          .key_tile = kernel.key_tile,
          .num_qo_heads = spec_.num_qo_heads,
          .num_kv_heads = spec_.num_kv_heads,
          .decodes_too = decodes_too_,
          .window_left = spec_.window_left,
          .window_right = spec_.causal ? 0 : spec_.window_right,
          .bytes_per_key = static_cast<std::int64_t>(size_of(kernel.kv_dtype)) *
                           (spec_.head_dim_qk + spec_.head_dim_vo)};
}

std::int64_t Tiler::max_tiles(std::int64_t batch, std::int64_t tokens) const {
  std::int64_t most = 0;
  for (const auto* kernels : {&ready_, &over_rows_})
    for (const Ready& ready : *kernels)
      for (int shift = 0; can_pack(shift); ++shift)
        most = std::max(most, plan::max_prefill_tiles(rules(ready.kernel, shift), batch, tokens));
  return most;
}

std::int64_t Tiler::row_bytes() const {
  return static_cast<std::int64_t>(size_of(spec_.q_dtype)) * spec_.num_kv_heads *
         (spec_.head_dim_qk + spec_.head_dim_vo);
}

/// None where the kernel for stored keys takes boxes of their own 16 bits: those lose 3 to 4 % to
/// ragged rows. None where a token's result must not depend on its neighbours.
std::int64_t Tiler::max_rows(const BatchBounds& bounds) const {
  const bool boxes = spec_.kv_dtype == spec_.q_dtype && page_size_ % 8 == 0;
  const bool unwanted = boxes || bounds.max_qo_tokens < kLeastTokensToCopy;
  if (batch_invariant_ || over_rows_.empty() || bounds.decode_only || keys_ == Keys::as_stored ||
      (unwanted && keys_ == Keys::by_cost))
    return 0;
  return std::min(kMostCopiedBytes / row_bytes(), bounds.max_kv_entries * page_size_);
}

std::int64_t Tiler::rows_of(const BatchView& batch) const {
  const std::int64_t entries = batch.kv_indptr.empty() ? 0 : batch.kv_indptr.back();
  return batch.source == KvSource::ragged ? entries : entries * page_size_;
}

std::int64_t Tiler::copy_cycles(std::int64_t rows) const {
  const auto read = static_cast<std::int64_t>(size_of(spec_.kv_dtype));
  const auto written = static_cast<std::int64_t>(size_of(spec_.q_dtype));
  return kCopyBeginning + rows * row_bytes() / written * (read + written) / kCopyBytesPerCycle;
}

/// How long the batch takes: at least as if all multiprocessors ended together, as the longest
/// tile, and as the shortest ones of whoever has most tiles. What widens keys was measured over
/// pages of 64.
std::int64_t Tiler::cycles(const Ready& ready, int pack_shift, KvSource source,
                           const plan::PrefillCount& one_head) const {
  sm90::Cost cost = ready.kernel.cost;
  if (ready.kernel.kv_dtype != ready.kernel.dtype) {
    if (source == KvSource::ragged)
      cost.key_tile -= cost.key_tile / 8;
    else if (page_size_ % 8 != 0)
      cost.key_tile += cost.key_tile / 8;
  }
  const auto of = [&](std::int64_t tiles, std::int64_t key_tiles) {
    return tiles * cost.tile + key_tiles * cost.key_tile;
  };
  const std::int64_t heads = spec_.num_qo_heads >> pack_shift;
  const std::int64_t most = base::ceil_div<std::int64_t>(one_head.tiles * heads, ready.blocks);
  return std::max({of(one_head.tiles, one_head.key_tiles) * heads / ready.blocks,
                   of(1, one_head.longest), most * of(1, one_head.shortest)});
}

bool Tiler::can_pack(int shift) const {
  constexpr int kWarpgroupRows = 64;
  return spec_.gqa_group_size() % (1 << shift) == 0 && 1 << shift <= kWarpgroupRows;
}

/// The more heads a tile holds, the fewer tokens it spans, so that less of it lies behind the
/// causal edge or the request's end. A batch must not change a token's result where it was promised
/// so: then always the first kernel, no packing, nothing copied.
Choice Tiler::choose(const BatchView& batch) const {
  std::int64_t longest_query = 0;
  for (std::int64_t i = 0; i < batch.batch_size(); ++i)
    longest_query = std::max(longest_query, batch.qo_len(i));
  Choice best;
  for (const Ready& ready : ready_) {
    if (!takes(ready, batch.source) || keys_ == Keys::copied) continue;
    if (batch_invariant_) return {.kernel = ready.kernel, .blocks = ready.blocks};
    consider(ready, batch, longest_query, 0, best);
  }
  const bool as_stored = spec_.kv_dtype == spec_.q_dtype && batch.source == KvSource::ragged;
  const std::int64_t rows = rows_of(batch);
  if (as_stored || rows == 0 || rows > max_rows(attention::bounds_of(batch))) return best;
  const std::int64_t copy = copy_cycles(rows);
  if (best.kernel.kernel != nullptr && copy >= best.cycles) return best;
  for (const Ready& ready : over_rows_) consider(ready, batch, longest_query, copy, best);
  return best;
}

/// `copy`: cycles of copying first; 0: the kernel takes keys as they are stored.
void Tiler::consider(const Ready& ready, const BatchView& batch, std::int64_t longest_query,
                     std::int64_t copy, Choice& best) const {
  plan::PrefillCount one_head;
  for (int shift = 0; can_pack(shift); ++shift) {
    const plan::PrefillRules now = rules(ready.kernel, shift);
    // As long as every request is one tile, fewer tokens a tile change nothing.
    if (shift == 0 || longest_query > now.tile_tokens) one_head = plan::count_prefill(now, batch);
    const KvSource source = copy > 0 ? KvSource::ragged : batch.source;
    const std::int64_t needed = copy + cycles(ready, shift, source, one_head);
    if (best.kernel.kernel != nullptr && needed >= best.cycles) continue;
    best = {ready.kernel, ready.blocks, shift, needed, copy > 0};
  }
}

sm90::WorkList Tiler::schedule(const Choice& choice, const BatchView& batch,
                               plan::PrefillSchedule& schedule) const {
  plan::schedule_prefill(rules(choice.kernel, choice.pack_shift), batch, schedule);
  if (choice.copies_first && batch.source == KvSource::paged)
    for (attention::PrefillTile& tile : schedule.tiles) tile.kv_start *= page_size_;
  return {.num_items = static_cast<std::uint32_t>(schedule.num_items()),
          .num_listed = static_cast<std::uint32_t>(schedule.tiles.size()),
          .heads_together = static_cast<std::uint32_t>(schedule.heads_together)};
}

attention::PagedKv Tiler::stored_keys(const attention::BatchFacts& facts,
                                      const LayerCall& call) const {
  return facts.source == KvSource::ragged ? cuda::ragged_keys(call)
                                          : cuda::cache_keys(call, kv_layout_, page_size_);
}

/// Behind the room for all keys.
std::byte* Tiler::copied_values(const Lists& lists) const {
  return lists.rows + lists.max_rows * spec_.num_kv_heads * spec_.head_dim_qk *
                          static_cast<std::int64_t>(size_of(spec_.q_dtype));
}

attention::PagedKv Tiler::copied_keys(const Lists& lists) const {
  attention::PagedKv kv;
  kv.k_page_stride = kv.k_token_stride = std::int64_t{spec_.num_kv_heads} * spec_.head_dim_qk;
  kv.v_page_stride = kv.v_token_stride = std::int64_t{spec_.num_kv_heads} * spec_.head_dim_vo;
  kv.k_head_stride = spec_.head_dim_qk;
  kv.v_head_stride = spec_.head_dim_vo;
  kv.k = lists.rows;
  kv.v = copied_values(lists);
  return kv;
}

Status Tiler::copy_rows(const Choice& choice, const attention::BatchFacts& facts,
                        const Lists& lists, const LayerCall& call, Stream stream) const {
  const bool ragged = facts.source == KvSource::ragged;
  const attention::PagedKv from = stored_keys(facts, call);
  return gather_kv::launch({.k = {from.k, from.k_page_stride, from.k_token_stride,
                                  from.k_head_stride, spec_.head_dim_qk, lists.rows},
                            .v = {from.v, from.v_page_stride, from.v_token_stride,
                                  from.v_head_stride, spec_.head_dim_vo, copied_values(lists)},
                            .in_dtype = spec_.kv_dtype,
                            .out_dtype = spec_.q_dtype,
                            .kv_indices = ragged ? nullptr : lists.kv_indices,
                            .page_size = from.page_size,
                            .num_pages = (ragged ? call.k : call.k_cache).shape[0],
                            .num_heads = spec_.num_kv_heads,
                            .num_rows = lists.num_rows},
                           choice.blocks, device::cuda::native(stream));
}

Status Tiler::launch(const Choice& choice, const attention::BatchFacts& facts, const Lists& lists,
                     const LayerCall& call, Stream stream) const {
  const bool copied = choice.copies_first;
  if (copied)
    if (Status s = copy_rows(choice, facts, lists, call, stream); !s.ok()) return s;
  const bool ragged = copied || facts.source == KvSource::ragged;
  attention::PagedKv kv = copied ? copied_keys(lists) : stored_keys(facts, call);
  const std::int64_t rows = copied ? lists.max_rows : call.k.shape[0];
  // Without any key no box is fetched, but a box needs an address.
  if (ragged && rows == 0) kv.k = kv.v = lists.list;

  const sm90::Operands operands =
      cuda::tile_operands(call, spec_, facts.num_qo_tokens, ragged ? 1 : call.k_cache.shape[0],
                          ragged ? rows : page_size_);
  sm90::Params p;
  cuda::set_outputs(call, p);
  p.list = lists.list;
  p.items = lists.items;
  p.kv_indices = ragged ? nullptr : lists.kv_indices;
  if (!ragged) p.page = base::FastDivisor(static_cast<std::uint32_t>(page_size_));
  p.box_rows = sm90::box_rows(choice.kernel, operands.tokens_per_page, ragged);
  cuda::set_keys(kv, p);
  p.group = spec_.gqa_group_size();
  p.pack_shift = choice.pack_shift;
  p.scale = spec_.sm_scale * call.q_scale * call.k_scale;
  p.soft_cap = spec_.logits_soft_cap;
  p.v_scale = call.v_scale;
  p.window_left = window(spec_.window_left);
  p.window_right = spec_.causal ? 0 : window(spec_.window_right);
  p.sinks = spec_.sinks ? call.sinks : nullptr;
  return sm90::launch(choice.kernel, encoder_, choice.blocks, operands, p,
                      device::cuda::native(stream));
}

}  // namespace attune::backends::shared::hopper
