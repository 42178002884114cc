#include "model/mla_mixer.hpp"

#include <span>
#include <string>

#include "model/attention_call.hpp"

namespace attune::model {

MlaMixer::MlaMixer(Loader& loader, int layer)
    : layer_(layer),
      group_(loader.attention_group(layer)),
      dtype_(loader.spec(group_).q_dtype),
      config_(*loader.config().attention_of(layer)) {
  rope_ = loader.ropes().rope_index(config_.rope);
  const std::string prefix = loader.layer(layer) + "self_attn" + loader.sublayer(layer) + ".";
  const std::int64_t hidden = loader.config().hidden_size;
  const std::int64_t heads = config_.num_qo_heads;
  const std::int64_t rank = config_.kv_lora_rank;
  const std::int64_t q_rows = heads * config_.head_dim_qk;
  if (config_.q_lora_rank > 0) {
    q_a_ = loader.linear({prefix + "q_a_proj", config_.q_lora_rank}, hidden);
    q_norm_ = loader.norm(prefix + "q_a_layernorm", config_.q_lora_rank);
    q_ = loader.linear({prefix + "q_b_proj", q_rows}, config_.q_lora_rank);
  } else {
    q_ = loader.linear({prefix + "q_proj", q_rows}, hidden);
  }
  kv_a_ = loader.linear({prefix + "kv_a_proj_with_mqa", rank + config_.qk_rope_head_dim}, hidden);
  kv_norm_ = loader.norm(prefix + "kv_a_layernorm", rank);
  load_expansion(loader, prefix + "kv_b_proj.weight");
  const bool sparse = config_.kind == AttentionLayerKind::sparse_mla;
  if (sparse && loader.config().layers[static_cast<std::size_t>(layer)].owns_indexer)
    indexer_.emplace(loader, config_, dtype_, prefix + "indexer.");
  if (loader.latent_chunk() > 0 && !sparse)
    expansion_.emplace(loader, config_, loader.spec(group_), prefix + "kv_b_proj");
  const std::int64_t values = heads * config_.head_dim_vo;
  if (config_.output_gate)
    gate_ = loader.linear({loader.pick(prefix, {"g_proj", "gate_proj"}), values}, hidden);
  output_ = loader.linear({prefix + "o_proj", hidden}, values);
}

void MlaMixer::load_expansion(Loader& loader, const std::string& name) {
  const std::int64_t nope = config_.qk_nope_head_dim;
  const std::int64_t value = config_.head_dim_vo;
  const std::int64_t rank = config_.kv_lora_rank;
  const WeightView both = loader.view(name, {config_.num_qo_heads * (nope + value), rank});
  std::vector<WeightView> up_k;
  std::vector<WeightView> up_v;
  for (std::int64_t h = 0; h < config_.num_qo_heads && loader.status().ok(); ++h) {
    up_k.push_back(loader.transposed(both.row_range(h * (nope + value), nope)));
    up_v.push_back(both.row_range(h * (nope + value) + nope, value));
  }
  absorb_ = loader.head_linears(up_k);
  expand_ = loader.head_linears(up_v);
}

MlaMixer::Tensors MlaMixer::take(StepMemory& memory, std::int64_t n) const {
  const std::int64_t heads = config_.num_qo_heads;
  const std::int64_t width = config_.kv_lora_rank + config_.qk_rope_head_dim;
  Tensors t;
  if (q_a_) t.q_latent = memory.take(DType::f32, {n, config_.q_lora_rank});
  t.q = memory.take(DType::f32, {n, heads * config_.head_dim_qk});
  t.latent = memory.take(DType::f32, {n, width});
  t.absorbed = memory.take(DType::f32, {n, heads * width});
  t.u = memory.take(DType::f32, {n, heads * config_.kv_lora_rank});
  t.o = memory.take(DType::f32, {n, heads * config_.head_dim_vo});
  t.q_narrow = take_narrow(memory, dtype_, n, heads * width);
  t.k_narrow = take_narrow(memory, dtype_, n, width);
  t.u_narrow = take_narrow(memory, dtype_, n, heads * config_.kv_lora_rank);
  if (gate_) t.gate = memory.take(DType::f32, {n, heads * config_.head_dim_vo});
  if (indexer_) t.index = indexer_->take(memory, n);
  return t;
}

void MlaMixer::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take(memory, num_tokens);
  if (expansion_) expansion_->lay_out(memory, num_tokens);
}

void MlaMixer::project(Step& step, const TensorView& x, const Tensors& t) const {
  Ops& ops = step.ops;
  const std::int64_t rank = config_.kv_lora_rank;
  const std::int64_t nope = config_.qk_nope_head_dim;
  const std::int64_t turned = config_.qk_rope_head_dim;
  if (q_a_) {
    ops.linear(*q_a_, x, t.q_latent);
    ops.norm(t.q_latent, q_norm_.params, t.q_latent);
    ops.linear(*q_, t.q_latent, t.q);
    if (config_.q_lora_scale != 1.0) ops.scale(t.q, static_cast<float>(config_.q_lora_scale), t.q);
  } else {
    ops.linear(*q_, x, t.q);
  }
  ops.linear(*kv_a_, x, t.latent);
  const TensorView c = columns(t.latent, 0, rank);
  ops.norm(c, kv_norm_.params, c);
  if (config_.kv_lora_scale != 1.0) ops.scale(c, static_cast<float>(config_.kv_lora_scale), c);
  if (rope_ >= 0) {
    const TensorView& cos_sin = step.cos_sin[static_cast<std::size_t>(rope_)];
    ops.rope(heads(t.q, config_.head_dim_qk), cos_sin, nope, config_.rope.interleaved);
    ops.rope(heads(columns(t.latent, rank, turned), turned), cos_sin, 0, config_.rope.interleaved);
  }
  if (indexer_) indexer_->project(step, x, t.q_latent, t.index);
}

SparseCall MlaMixer::sparse_call(const Step& step, const AttentionPart& part,
                                 const Tensors& t) const {
  SparseCall sparse;
  sparse.topk_indices = rows(step.topk_indices, part.first_row, part.num_rows);
  if (indexer_) {
    indexer_->fill(t.index, part.first_row, part.num_rows, sparse);
    sparse.index_cache = step.input.kv->index(static_cast<std::size_t>(layer_));
  }
  return sparse;
}

Status MlaMixer::attend_absorbed(Step& step, const AttentionPart& part, const LayerCall& cached,
                                 const Tensors& all) const {
  Ops& ops = step.ops;
  const std::int64_t rank = config_.kv_lora_rank;
  const std::int64_t nope = config_.qk_nope_head_dim;
  const std::int64_t turned = config_.qk_rope_head_dim;
  const auto mine = [&](const TensorView& view) {
    return view.rank == 0 ? view : rows(view, part.first_row, part.num_rows);
  };
  // Products that read and write what attention does need no copies of it.
  const bool direct = all.q_narrow.rank != 0 && dtype_ == ops.product_dtype();
  const TensorView q = heads(mine(all.q), config_.head_dim_qk);
  const TensorView absorbed = heads(mine(direct ? all.q_narrow : all.absorbed), rank + turned);
  ops.linear_heads(*absorb_, head_dims(q, 0, nope), head_dims(absorbed, 0, rank));
  ops.convert(head_dims(q, nope, turned), head_dims(absorbed, rank, turned));
  const TensorView u = heads(mine(all.u), rank);
  const TensorView u_narrow = mine(all.u_narrow);
  LayerCall call = cached;
  call.q = direct ? absorbed : narrowed(ops, absorbed, mine(all.q_narrow));
  call.o = narrow_output(u, u_narrow);
  if (Status s = part.backend->run(*part.plan, call, ops.stream()); !s.ok()) return s;
  if (!direct) widen_output(ops, u, u_narrow);
  ops.linear_heads(*expand_, direct ? call.o : u, heads(mine(all.o), config_.head_dim_vo));
  return {};
}

Status MlaMixer::attend(Step& step, const Tensors& t) const {
  const std::int64_t width = config_.kv_lora_rank + config_.qk_rope_head_dim;
  const TensorView latent = narrowed(step.ops, heads(t.latent, width), t.k_narrow);
  const GroupStep& group = step.input.groups[static_cast<std::size_t>(group_)];
  for (const AttentionPart& part : group.parts) {
    LayerCall call;
    call.layer = layer_;
    call.k = rows(latent, part.first_row, part.num_rows);
    call.k_cache = step.input.kv->k(static_cast<std::size_t>(layer_));
    call.v_cache = step.input.kv->v(static_cast<std::size_t>(layer_));
    call.slot_mapping = group.slot_mapping.subspan(static_cast<std::size_t>(part.first_row),
                                                   static_cast<std::size_t>(part.num_rows));
    SparseCall sparse;
    if (config_.kind == AttentionLayerKind::sparse_mla) {
      sparse = sparse_call(step, part, t);
      call.sparse = &sparse;
    }
    if (Status s = part.backend->append_kv(call, step.ops.stream()); !s.ok()) return s;
    Status done;
    if (part.expanded.empty()) {
      done = attend_absorbed(step, part, call, t);
    } else {
      require(expansion_.has_value(), "a model that was made for expanded parts");
      const TensorView q = heads(rows(t.q, part.first_row, part.num_rows), config_.head_dim_qk);
      const TensorView o = heads(rows(t.o, part.first_row, part.num_rows), config_.head_dim_vo);
      done = expansion_->attend(step, part, q, call.k_cache, layer_, o);
    }
    if (!done.ok()) return done;
  }
  return {};
}

Status MlaMixer::forward(Step& step, const TensorView& x, const TensorView& out) const {
  const auto frame = step.memory.frame();
  const Tensors t = take(step.memory, step.num_tokens);
  Ops& ops = step.ops;
  project(step, x, t);
  if (Status s = attend(step, t); !s.ok()) return s;
  if (gate_) {
    ops.linear(*gate_, x, t.gate);
    ops.sigmoid_gate(t.o, t.gate, t.o);
  }
  ops.linear(*output_, t.o, out);
  return {};
}

}  // namespace attune::model
