#include "model/gqa_mixer.hpp"

#include <string>
#include <vector>

#include "model/attention_call.hpp"

namespace attune::model {
namespace {

Norm load_qk_norm(Loader& loader, const AttentionConfig& config, const std::string& name,
                  int num_heads) {
  switch (config.qk_norm) {
    case QkNorm::none: return {};
    case QkNorm::l2: {
      Norm norm;
      norm.params.eps = static_cast<float>(loader.config().norm_eps);
      return norm;
    }
    case QkNorm::per_head: return loader.norm(name, config.head_dim_qk);
    case QkNorm::per_layer: {
      return loader.norm(name, static_cast<std::int64_t>(num_heads) * config.head_dim_qk);
    }
  }
  return {};
}

/// Where a head's queries stand: in their own chunk as its keys do, one chunk further on for keys
/// of the chunk before, and at one place for all earlier ones.
std::array<PositionMap, kDualChunkQueries> query_positions(const DualChunkConfig& c) {
  const std::int64_t period = c.period();
  return {PositionMap{.period = period, .offset = 0, .most = period},
          PositionMap{.period = period, .offset = period, .most = c.chunk_size},
          PositionMap{.period = 1, .offset = 2 * period - 1, .most = c.chunk_size}};
}

void apply_qk_norm(Ops& ops, QkNorm kind, const Norm& norm, const TensorView& x,
                   std::int64_t head_dim, const TensorView& x_heads) {
  // A gated query's heads are not adjacent; per-layer norms never meet gates.
  if (kind == QkNorm::per_layer) {
    TensorView whole = x;
    whole.shape[1] = x_heads.shape[1] * head_dim;
    ops.norm(whole, norm.params, whole);
  } else {
    ops.norm(x_heads, norm.params, x_heads);
  }
}

}  // namespace

GqaMixer::GqaMixer(Loader& loader, int layer)
    : layer_(layer),
      group_(loader.attention_group(layer)),
      dtype_(loader.spec(group_).q_dtype),
      config_(*loader.config().attention_of(layer)),
      rope_(in_chunks() ? -1 : loader.ropes().rope_index(config_.rope)),
      temperature_(loader.ropes().temperature_index(config_)) {
  if (in_chunks()) {
    const auto positions = query_positions(config_.dual_chunk);
    for (std::size_t i = 0; i < positions.size(); ++i)
      query_ropes_[i] = loader.ropes().rope_index(config_.rope, positions[i]);
    rope_ = query_ropes_[0];  // keys'
  }
  const int source = loader.config().layers[static_cast<std::size_t>(layer)].kv_source;
  kv_layer_ = source < 0 ? layer : source;
  const std::string prefix = loader.layer(layer);
  const std::int64_t hidden = loader.config().hidden_size;
  const std::int64_t q_dim = config_.head_dim_qk * (config_.output_gate ? 2 : 1);
  const std::int64_t q_rows = config_.num_qo_heads * q_dim;
  const std::int64_t k_rows = static_cast<std::int64_t>(config_.num_kv_heads) * config_.head_dim_qk;
  const std::int64_t v_rows = static_cast<std::int64_t>(config_.num_kv_heads) * config_.head_dim_vo;
  const Bias qkv_bias = config_.qkv_bias ? Bias::required : Bias::if_present;
  const auto name = [&](std::initializer_list<std::string_view> names) {
    return loader.pick(prefix, names);
  };

  std::vector<Matrix> stack;
  if (loader.has(prefix + "self_attn.qkv_proj.weight")) {
    stack.push_back({prefix + "self_attn.qkv_proj", q_rows + k_rows + v_rows});
  } else {
    stack.push_back({name({"self_attn.q_proj", "attention.self.query", "mixer.q_proj"}), q_rows});
    if (writes_cache()) {
      stack.push_back({name({"self_attn.k_proj", "attention.self.key", "mixer.k_proj"}), k_rows});
      if (!config_.k_is_v)
        stack.push_back(
            {name({"self_attn.v_proj", "attention.self.value", "mixer.v_proj"}), v_rows});
    }
  }
  qkv_ = loader.linear(stack, hidden, qkv_bias);
  output_ = loader.linear(
      {name({"self_attn.o_proj", "self_attn.out_proj", "attention.output.dense", "mixer.o_proj"}),
       hidden},
      static_cast<std::int64_t>(config_.num_qo_heads) * config_.head_dim_vo,
      config_.o_bias ? Bias::required : Bias::if_present);
  q_norm_ = load_qk_norm(loader, config_, name({"self_attn.q_norm", "self_attn.q_layernorm"}),
                         config_.num_qo_heads);
  if (writes_cache()) {
    k_norm_ = load_qk_norm(loader, config_, name({"self_attn.k_norm", "self_attn.k_layernorm"}),
                           config_.num_kv_heads);
  }
  if (config_.kind == AttentionLayerKind::minimax_sparse)
    indexer_.emplace(loader, config_, dtype_, prefix + "self_attn.");
  v_norm_.eps = static_cast<float>(loader.config().norm_eps);
  if (config_.sinks) {
    sinks_ = loader.vector(name({"self_attn.sinks", "self_attn.attention_sink_bias"}),
                           config_.num_qo_heads);
  }
}

GqaMixer::Tensors GqaMixer::take(StepMemory& memory, std::int64_t num_tokens) const {
  Tensors t;
  t.qkv = memory.take(DType::f32, {num_tokens, qkv_->rows()});
  if (config_.k_is_v && writes_cache()) {
    t.values = memory.take(DType::f32, {num_tokens, config_.num_kv_heads * config_.head_dim_vo});
  }
  const std::int64_t q_width = std::int64_t{config_.num_qo_heads} * config_.head_dim_qk *
                               (in_chunks() ? kDualChunkQueries : 1);
  if (in_chunks()) t.queries = memory.take(DType::f32, {num_tokens, q_width});
  t.o = memory.take(DType::f32, {num_tokens, output_->columns()});
  const std::int64_t keys = config_.num_kv_heads;
  t.o_narrow = take_narrow(memory, dtype_, num_tokens, output_->columns());
  if (indexer_) t.index = indexer_->take(memory, num_tokens);
  if (narrows_together()) {
    t.qkv_narrow = take_narrow(memory, dtype_, num_tokens, qkv_->rows());
    return t;
  }
  t.q_narrow = take_narrow(memory, dtype_, num_tokens, q_width);
  if (writes_cache()) {
    t.k_narrow = take_narrow(memory, dtype_, num_tokens, keys * config_.head_dim_qk);
    t.v_narrow = take_narrow(memory, dtype_, num_tokens, keys * config_.head_dim_vo);
  }
  return t;
}

bool GqaMixer::narrows_together() const {
  constexpr int kAligned = 8;  // backends load 16 bytes
  return writes_cache() && !config_.k_is_v && !config_.output_gate && !in_chunks() &&
         config_.head_dim_qk % kAligned == 0 && config_.head_dim_vo % kAligned == 0;
}

void GqaMixer::turn_queries(Step& step, const TensorView& q, const TensorView& out) const {
  TensorView turned = heads(out, std::int64_t{kDualChunkQueries} * config_.head_dim_qk);
  turned.shape[2] = config_.head_dim_qk;
  for (const int rope : query_ropes_) {
    step.ops.convert(q, turned);
    if (rope >= 0)
      step.ops.rope(turned, step.cos_sin[static_cast<std::size_t>(rope)], 0,
                    config_.rope.interleaved);
    turned.data = static_cast<float*>(turned.data) + config_.head_dim_qk;
  }
}

void GqaMixer::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take(memory, num_tokens);
}

GqaMixer::Heads GqaMixer::heads_of(const TensorView& qkv) const {
  const std::int64_t dim = config_.head_dim_qk;
  const std::int64_t q_dim = dim * (config_.output_gate ? 2 : 1);
  const std::int64_t q_width = config_.num_qo_heads * q_dim;
  const std::int64_t k_width = config_.num_kv_heads * dim;
  const std::int64_t v_width =
      static_cast<std::int64_t>(config_.num_kv_heads) * config_.head_dim_vo;
  Heads h;
  h.q_columns = columns(qkv, 0, q_width);
  h.q = heads(h.q_columns, q_dim);
  if (config_.output_gate) {
    h.gate = h.q;
    h.gate.data = static_cast<float*>(h.q.data) + dim;
    h.gate.shape[2] = dim;
    h.q.shape[2] = dim;
  }
  if (writes_cache()) {
    h.k_columns = columns(qkv, q_width, k_width);
    h.k = heads(h.k_columns, dim);
    if (!config_.k_is_v) h.v = heads(columns(qkv, q_width + k_width, v_width), config_.head_dim_vo);
  }
  return h;
}

/// Norms, rotations and factors, in the order of the models: the L2 norm of Llama-4 comes after the
/// rotation, and only where there is one.
void GqaMixer::prepare(Step& step, const Heads& h) const {
  Ops& ops = step.ops;
  const bool norm_first =
      config_.qk_norm == QkNorm::per_head || config_.qk_norm == QkNorm::per_layer;
  const bool norm_last = config_.qk_norm == QkNorm::l2 && rope_ >= 0;
  const auto normalise = [&] {
    apply_qk_norm(ops, config_.qk_norm, q_norm_, h.q_columns, config_.head_dim_qk, h.q);
    if (writes_cache())
      apply_qk_norm(ops, config_.qk_norm, k_norm_, h.k_columns, config_.head_dim_qk, h.k);
  };
  if (norm_first) normalise();
  if (rope_ >= 0) {
    const TensorView& cos_sin = step.cos_sin[static_cast<std::size_t>(rope_)];
    if (!in_chunks()) ops.rope(h.q, cos_sin, 0, config_.rope.interleaved);
    if (writes_cache()) ops.rope(h.k, cos_sin, 0, config_.rope.interleaved);
  }
  if (norm_last) normalise();
  if (temperature_ >= 0)
    ops.rope(h.q, step.query_scale[static_cast<std::size_t>(temperature_)], 0, false);
  if (!writes_cache()) return;
  if (config_.key_multiplier != 1.0)
    ops.scale(h.k, static_cast<float>(config_.key_multiplier), h.k);
  if (config_.v_norm) ops.norm(h.v, v_norm_, h.v);
  if (config_.value_scale != 1.0) ops.scale(h.v, static_cast<float>(config_.value_scale), h.v);
}

/// In the type that attention reads.
GqaMixer::Heads GqaMixer::narrow(Step& step, const Tensors& t, const Heads& h) const {
  if (narrows_together()) {
    if (t.qkv_narrow.rank == 0) return h;
    step.ops.convert(t.qkv, t.qkv_narrow);
    return heads_of(t.qkv_narrow);
  }
  Heads narrow = h;
  if (in_chunks()) {
    turn_queries(step, h.q, t.queries);
    narrow.q = heads(t.queries, std::int64_t{kDualChunkQueries} * config_.head_dim_qk);
  }
  narrow.q = narrowed(step.ops, narrow.q, t.q_narrow);
  if (writes_cache()) {
    narrow.k = narrowed(step.ops, h.k, t.k_narrow);
    narrow.v = narrowed(step.ops, h.v, t.v_narrow);
  }
  return narrow;
}

Status GqaMixer::forward(Step& step, const TensorView& x, const TensorView& out) const {
  const auto frame = step.memory.frame();
  const Tensors t = take(step.memory, step.num_tokens);
  Ops& ops = step.ops;
  ops.linear(*qkv_, x, t.qkv);
  Heads h = heads_of(t.qkv);
  if (config_.k_is_v && writes_cache()) {
    h.v = heads(t.values, config_.head_dim_vo);
    ops.convert(h.k, h.v);
  }
  prepare(step, h);
  const Heads read = narrow(step, t, h);
  const TensorView o = heads(t.o, config_.head_dim_vo);
  const TensorView attention_o = narrow_output(o, t.o_narrow);
  SparseCall sparse;
  if (indexer_) sparse = indexer_->project(step, x, t.index);
  if (Status s = attend(step, {.q = read.q,
                               .k = read.k,
                               .v = read.v,
                               .o = attention_o,
                               .sinks = static_cast<const float*>(sinks_.data()),
                               .layer = layer_,
                               .kv_layer = kv_layer_,
                               .group = group_,
                               .cached = config_.kind != AttentionLayerKind::encoder,
                               .sparse = indexer_ ? &sparse : nullptr});
      !s.ok())
    return s;

  // Products that multiply what attention wrote need no copy of it.
  const bool as_written = t.o_narrow.rank != 0 && t.o_narrow.dtype == ops.product_dtype();
  if (!as_written) widen_output(ops, o, t.o_narrow);
  if (config_.output_gate) ops.sigmoid_gate(as_written ? attention_o : o, h.gate, o);
  ops.linear(*output_, as_written && !config_.output_gate ? t.o_narrow : t.o, out);
  return {};
}

}  // namespace attune::model
