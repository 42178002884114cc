#include "model/latent_expansion.hpp"

#include <algorithm>

#include "model/attention_call.hpp"

namespace attune::model {
namespace {

/// A view of one more dimension's worth of heads: the same columns for each of them.
TensorView for_all_heads(const TensorView& matrix, std::int64_t num_heads) {
  TensorView view = heads(matrix, matrix.shape[1]);
  view.shape[1] = num_heads;
  view.stride[1] = 0;
  return view;
}

}  // namespace

LatentExpansion::LatentExpansion(Loader& loader, const AttentionConfig& config,
                                 const AttentionSpec& latent, const std::string& kv_b)
    : config_(config),
      dtype_(latent.q_dtype),
      cache_dtype_(latent.kv_dtype),
      chunk_(loader.latent_chunk()),
      kv_b_(loader.linear(
          {kv_b, config.num_qo_heads * (config.qk_nope_head_dim + config.head_dim_vo)},
          config.kv_lora_rank)) {}

LatentExpansion::Queries LatentExpansion::take_queries(StepMemory& memory,
                                                       std::int64_t num_rows) const {
  const std::int64_t heads = config_.num_qo_heads;
  Queries t;
  t.q = take_narrow(memory, dtype_, num_rows, heads * config_.head_dim_qk);
  t.o = memory.take(DType::f32, {num_rows, heads * config_.head_dim_vo});
  t.o_narrow = take_narrow(memory, dtype_, num_rows, heads * config_.head_dim_vo);
  t.lse = memory.take(DType::f32, {num_rows, heads});
  t.chunk_lse = memory.take(DType::f32, {num_rows, heads});
  return t;
}

LatentExpansion::Keys LatentExpansion::take_keys(StepMemory& memory, std::int64_t num_keys) const {
  const std::int64_t width = config_.kv_lora_rank + config_.qk_rope_head_dim;
  const std::int64_t heads = config_.num_qo_heads;
  Keys t;
  t.stored = take_narrow(memory, cache_dtype_, num_keys, width);
  t.latent = memory.take(DType::f32, {num_keys, width});
  t.kv =
      memory.take(DType::f32, {num_keys, heads * (config_.qk_nope_head_dim + config_.head_dim_vo)});
  t.k = memory.take(dtype_, {num_keys, heads * config_.head_dim_qk});
  t.v = take_narrow(memory, dtype_, num_keys, heads * config_.head_dim_vo);
  return t;
}

void LatentExpansion::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take_queries(memory, num_tokens);
  (void)take_keys(memory, std::max(chunk_, num_tokens));
}

void LatentExpansion::expand(Ops& ops, const TensorView& cache, const TensorView& slots,
                             const Keys& t) const {
  const std::int64_t rank = config_.kv_lora_rank;
  const std::int64_t nope = config_.qk_nope_head_dim;
  const std::int64_t rope = config_.qk_rope_head_dim;
  const TensorView& stored = t.stored.defined() ? t.stored : t.latent;
  ops.gather_rows(cache, slots, stored);
  if (t.stored.defined()) ops.convert(t.stored, t.latent);
  ops.linear(*kv_b_, columns(t.latent, 0, rank), t.kv);
  const TensorView kv = heads(t.kv, nope + config_.head_dim_vo);
  const TensorView k = heads(t.k, config_.head_dim_qk);
  ops.convert(head_dims(kv, 0, nope), head_dims(k, 0, nope));
  ops.convert(for_all_heads(columns(t.latent, rank, rope), config_.num_qo_heads),
              head_dims(k, nope, rope));
  if (t.v.defined())
    ops.convert(head_dims(kv, nope, config_.head_dim_vo), heads(t.v, config_.head_dim_vo));
}

Status LatentExpansion::run(Step& step, const ExpandedPart& chunk, const Keys& keys,
                            const TensorView& q, const TensorView& o, const TensorView& lse,
                            int layer) const {
  const std::int64_t nope = config_.qk_nope_head_dim;
  const std::int64_t value = config_.head_dim_vo;
  LayerCall call;
  call.layer = layer;
  call.q = q;
  call.k = heads(keys.k, config_.head_dim_qk);
  call.v = keys.v.defined() ? heads(keys.v, value)
                            : head_dims(heads(keys.kv, nope + value), nope, value);
  call.o = o;
  call.lse = lse;
  return chunk.backend->run(*chunk.plan, call, step.ops.stream());
}

Status LatentExpansion::attend(Step& step, const AttentionPart& part, const TensorView& q,
                               const TensorView& cache, int layer, const TensorView& o) const {
  Ops& ops = step.ops;
  require(cache.stride[0] == cache.shape[1] * cache.stride[1], "pages of latents lie together");
  TensorView by_slot =
      TensorView::dense(cache.data, cache.dtype, {cache.shape[0] * cache.shape[1], cache.shape[2]});
  by_slot.stride[0] = cache.stride[1];

  const auto frame = step.memory.frame();
  const Queries t = take_queries(step.memory, part.num_rows);
  const TensorView queries = narrowed(ops, q, t.q);
  for (const ExpandedPart& chunk : part.expanded) {
    const auto chunk_frame = step.memory.frame();
    const Keys keys = take_keys(step.memory, chunk.slots.shape[0]);
    expand(ops, by_slot, chunk.slots, keys);
    const auto mine = [&](const TensorView& view) {
      return view.rank == 0 ? view : rows(view, chunk.first_row - part.first_row, chunk.num_rows);
    };
    const bool first = &chunk == part.expanded.data();
    const TensorView wide = first ? o : mine(heads(t.o, config_.head_dim_vo));
    const TensorView lse = mine(first ? t.lse : t.chunk_lse);
    const TensorView narrow = mine(t.o_narrow);
    if (Status s = run(step, chunk, keys, mine(queries), narrow_output(wide, narrow), lse, layer);
        !s.ok())
      return s;
    widen_output(ops, wide, narrow);
    if (!first) ops.merge_attention(mine(o), mine(t.lse), wide, lse);
  }
  return {};
}

}  // namespace attune::model
