#include "backends/shared/cuda/hopper_tiles.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "device/cuda/memory.hpp"

namespace attune::backends::shared::hopper {

namespace sm90 = kernels::ragged_prefill::sm90;

namespace {

std::int32_t window(std::int64_t keys) {
  constexpr std::int64_t kFar = std::int64_t{1} << 30;
  return keys < 0 ? -1 : static_cast<std::int32_t>(std::min(keys, kFar));
}

/// In their own type, or in e4m3 before queries in bf16.
bool serves_keys(const AttentionSpec& spec) {
  return spec.kv_dtype == spec.q_dtype ||
         (spec.kv_dtype == DType::fp8_e4m3 && spec.q_dtype == DType::bf16);
}

}  // namespace

std::string_view unserved(const AttentionSpec& spec) {
  const std::array<std::pair<bool, std::string_view>, 9> missing{
      {{spec.variant != Variant::gqa, "latent variants"},
       {spec.alibi, "alibi slopes"},
       {spec.custom_mask, "custom masks"},
       {spec.attention_chunk > 0, "attention chunks"},
       {spec.xai_temperature_len > 0, "temperatures by length"},
       {spec.per_head_scales, "scales by KV head"},
       {spec.relative_bias, "a learned relative bias"},
       {(spec.q_dtype != DType::bf16 && spec.q_dtype != DType::f16) || spec.o_dtype != spec.q_dtype,
        "queries and outputs other than both in bf16 or both in fp16"},
       {!serves_keys(spec), "keys neither of the queries' type nor in e4m3 before bf16"}}};
  for (const auto& [asked, what] : missing)
    if (asked) return what;
  return {};
}

Result<Tiler> Tiler::make(const BackendContext& context, sm90::Strategy strategy,
                          bool decodes_too) {
  Tiler made;
  made.spec_ = context.spec;
  made.page_size_ = context.page_size;
  made.kv_layout_ = context.kv_layout;
  made.batch_invariant_ = context.batch_invariant;
  made.decodes_too_ = decodes_too;
  for (const sm90::Instance& kernel : sm90::instances()) {
    if ((kernel.strategy != strategy && kernel.strategy != sm90::Strategy::both) ||
        kernel.dtype != made.spec_.q_dtype || kernel.kv_dtype != made.spec_.kv_dtype ||
        kernel.head_dim_qk != made.spec_.head_dim_qk ||
        kernel.head_dim_vo != made.spec_.head_dim_vo)
      continue;
    const auto blocks = sm90::prepare(kernel);
    if (!blocks.ok()) return blocks.status();
    made.ready_.push_back({kernel, *blocks});
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
          .bytes_per_key = static_cast<std::int64_t>(size_of(spec_.kv_dtype)) *
                           (spec_.head_dim_qk + spec_.head_dim_vo)};
}

std::int64_t Tiler::max_tiles(std::int64_t batch, std::int64_t tokens) const {
  std::int64_t most = 0;
  for (const Ready& ready : ready_)
    for (int shift = 0; can_pack(shift); ++shift)
      most = std::max(most, plan::max_prefill_tiles(rules(ready.kernel, shift), batch, tokens));
  return most;
}

/// How long the batch takes, if all multiprocessors end together or the longest tile ends last.
std::int64_t Tiler::cycles(const Ready& ready, int pack_shift,
                           const plan::PrefillCount& one_head) const {
  const sm90::Cost& cost = ready.kernel.cost;
  const std::int64_t heads = spec_.num_qo_heads >> pack_shift;
  return std::max(
      (one_head.tiles * cost.tile + one_head.key_tiles * cost.key_tile) * heads / ready.blocks,
      cost.tile + one_head.longest * cost.key_tile);
}

bool Tiler::can_pack(int shift) const {
  constexpr int kWarpgroupRows = 64;
  return spec_.gqa_group_size() % (1 << shift) == 0 && 1 << shift <= kWarpgroupRows;
}

/// The more heads a tile holds, the fewer tokens it spans, so that less of it lies behind the
/// causal edge or the request's end. A batch must not change a token's result where it was promised
/// so: then always the first kernel, no packing.
Choice Tiler::choose(const BatchView& batch) const {
  std::int64_t longest_query = 0;
  for (std::int64_t i = 0; i < batch.batch_size(); ++i)
    longest_query = std::max(longest_query, batch.qo_len(i));
  Choice best;
  for (const Ready& ready : ready_) {
    if (!takes(ready, batch.source)) continue;
    if (batch_invariant_) return {ready.kernel, ready.blocks, 0, 0};
    plan::PrefillCount one_head;
    for (int shift = 0; can_pack(shift); ++shift) {
      const plan::PrefillRules now = rules(ready.kernel, shift);
      // As long as every request is one tile, fewer tokens a tile change nothing.
      if (shift == 0 || longest_query > now.tile_tokens) one_head = plan::count_prefill(now, batch);
      const std::int64_t needed = cycles(ready, shift, one_head);
      if (best.kernel.kernel != nullptr && needed >= best.cycles) continue;
      best = {ready.kernel, ready.blocks, shift, needed};
    }
  }
  return best;
}

sm90::WorkList Tiler::schedule(const Choice& choice, const BatchView& batch,
                               plan::PrefillSchedule& schedule) const {
  plan::schedule_prefill(rules(choice.kernel, choice.pack_shift), batch, schedule);
  return {.num_items = static_cast<std::uint32_t>(schedule.num_items()),
          .num_listed = static_cast<std::uint32_t>(schedule.tiles.size()),
          .heads_together = static_cast<std::uint32_t>(schedule.heads_together)};
}

Status Tiler::launch(const Choice& choice, const attention::BatchFacts& facts, const Lists& lists,
                     const LayerCall& call, Stream stream) const {
  const bool ragged = facts.source == KvSource::ragged;
  const bool hnd = !ragged && kv_layout_ == KvLayout::hnd;
  const TensorView& k = ragged ? call.k : call.k_cache;
  const TensorView& v = ragged ? call.v : call.v_cache;
  const std::size_t token_axis = ragged ? 0 : hnd ? 2 : 1;
  const std::size_t head_axis = ragged || hnd ? 1 : 2;

  const sm90::Operands operands{.q = call.q.data,
                                .q_tokens = facts.num_qo_tokens,
                                .q_token_stride = call.q.stride[0],
                                .q_head_stride = call.q.stride[1],
                                .num_qo_heads = spec_.num_qo_heads,
                                .num_kv_heads = spec_.num_kv_heads,
                                .num_pages = ragged ? 1 : k.shape[0],
                                .tokens_per_page = ragged ? k.shape[0] : page_size_};
  sm90::Params p;
  p.o = call.o.data;
  p.o_token_stride = call.o.stride[0];
  p.o_head_stride = call.o.stride[1];
  if (call.lse.defined()) {
    p.lse = call.lse.as<float>();
    p.lse_token_stride = call.lse.stride[0];
    p.lse_head_stride = call.lse.stride[1];
  }
  p.list = lists.list;
  p.items = lists.items;
  p.kv_indices = ragged ? nullptr : lists.kv_indices;
  p.page_size = ragged ? 1 : page_size_;
  p.box_rows = sm90::box_rows(choice.kernel, operands.tokens_per_page, ragged);
  // Without any key no box is fetched, but a box needs an address.
  const bool keyless = ragged && k.shape[0] == 0;
  p.k = keyless ? lists.list : k.data;
  p.v = keyless ? lists.list : v.data;
  p.k_page_stride = k.stride[0];
  p.k_token_stride = k.stride[token_axis];
  p.k_head_stride = k.stride[head_axis];
  p.v_page_stride = v.stride[0];
  p.v_token_stride = v.stride[token_axis];
  p.v_head_stride = v.stride[head_axis];
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
