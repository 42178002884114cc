#include "model/compressed_mixer.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "model/attention_call.hpp"

namespace attune::model {

CompressedMixer::CompressedMixer(Loader& loader, int layer)
    : layer_(layer),
      group_(loader.attention_group(layer)),
      dtype_(loader.spec(group_).q_dtype),
      config_(*loader.config().attention_of(layer)),
      rope_(loader.ropes().rope_index(config_.rope)) {
  const std::string prefix = loader.layer(layer) + "attn.";
  const std::int64_t hidden = loader.config().hidden_size;
  const std::int64_t width = std::int64_t{config_.num_qo_heads} * config_.head_dim_qk;
  const std::int64_t groups = config_.o_groups;
  if (groups < 1 || config_.num_qo_heads % groups != 0) {
    loader.fail(invalid_argument("config: o_groups " + std::to_string(groups) +
                                 " does not divide num_attention_heads " +
                                 std::to_string(config_.num_qo_heads)));
    return;
  }
  unit_.eps = static_cast<float>(loader.config().norm_eps);
  q_a_ = loader.linear({prefix + "wq_a", config_.q_lora_rank}, hidden);
  q_norm_ = loader.norm(prefix + "q_norm", config_.q_lora_rank);
  q_b_ = loader.linear({prefix + "wq_b", width}, config_.q_lora_rank);
  kv_ = loader.linear({prefix + "wkv", config_.head_dim_qk}, hidden);
  kv_norm_ = loader.norm(loader.pick(prefix, {"kv_norm", "norm"}), config_.head_dim_qk);
  const WeightView both =
      loader.view(prefix + "wo_a.weight", {groups * config_.o_lora_rank, width / groups});
  std::vector<WeightView> by_group;
  for (std::int64_t g = 0; g < groups && loader.status().ok(); ++g)
    by_group.push_back(both.row_range(g * config_.o_lora_rank, config_.o_lora_rank));
  o_a_ = loader.head_linears(by_group);
  o_b_ = loader.linear({prefix + "wo_b", hidden}, groups * config_.o_lora_rank);
  sinks_ = loader.vector(prefix + "attn_sink", config_.num_qo_heads);
  if (config_.compress_ratio > 0) compressor_.emplace(loader, config_, layer, prefix);
  if (config_.indexer.num_heads > 0) load_indexer(loader, prefix + "indexer.");
}

void CompressedMixer::load_indexer(Loader& loader, const std::string& prefix) {
  const std::int64_t heads = config_.indexer.num_heads;
  index_q_ =
      loader.linear({prefix + "wq_b", heads * config_.indexer.head_dim}, config_.q_lora_rank);
  index_weights_ = loader.linear({prefix + "weights_proj", heads}, loader.config().hidden_size);
}

CompressedMixer::Tensors CompressedMixer::take(StepMemory& memory, std::int64_t n) const {
  const std::int64_t width = std::int64_t{config_.num_qo_heads} * config_.head_dim_qk;
  Tensors t;
  t.q_latent = memory.take(DType::f32, {n, config_.q_lora_rank});
  t.q = memory.take(DType::f32, {n, width});
  t.key = memory.take(DType::f32, {n, config_.head_dim_qk});
  t.u = memory.take(DType::f32, {n, width});
  t.o = memory.take(DType::f32, {n, o_b_->columns()});
  t.q_narrow = take_narrow(memory, dtype_, n, width);
  t.u_narrow = take_narrow(memory, dtype_, n, width);
  if (compressor_) t.compressed = compressor_->take(memory, n);
  if (index_q_) {
    t.index_q = memory.take(DType::f32, {n, index_q_->rows()});
    t.index_q_narrow = take_narrow(memory, dtype_, n, index_q_->rows());
    t.index_weights = memory.take(DType::f32, {n, index_weights_->rows()});
  }
  return t;
}

void CompressedMixer::lay_out(StepMemory& memory, std::int64_t num_tokens) const {
  const auto frame = memory.frame();
  (void)take(memory, num_tokens);
}

void CompressedMixer::project(Step& step, const TensorView& x, const Tensors& t) const {
  Ops& ops = step.ops;
  const std::int64_t dim = config_.head_dim_qk;
  ops.linear(*q_a_, x, t.q_latent);
  ops.norm(t.q_latent, q_norm_.params, t.q_latent);
  ops.linear(*q_b_, t.q_latent, t.q);
  ops.norm(heads(t.q, dim), unit_, heads(t.q, dim));
  ops.linear(*kv_, x, t.key);
  ops.norm(t.key, kv_norm_.params, t.key);
  const auto turn = [&](const TensorView& view, std::int64_t width) {
    if (rope_ >= 0)
      ops.rope(heads(view, width), step.cos_sin[static_cast<std::size_t>(rope_)],
               width - config_.rope.rotary_dim, config_.rope.interleaved);
  };
  turn(t.q, dim);
  turn(t.key, dim);
  if (!index_q_) return;
  ops.linear(*index_q_, t.q_latent, t.index_q);
  turn(t.index_q, config_.indexer.head_dim);
  ops.linear(*index_weights_, x, t.index_weights);
  const double size = static_cast<double>(config_.indexer.num_heads) * config_.indexer.head_dim;
  ops.scale(t.index_weights, static_cast<float>(1.0 / std::sqrt(size)), t.index_weights);
}

Status CompressedMixer::attend(Step& step, const Tensors& t) const {
  Ops& ops = step.ops;
  const std::int64_t dim = config_.head_dim_qk;
  const TensorView q = narrowed(ops, heads(t.q, dim), t.q_narrow);
  const TensorView u = narrow_output(heads(t.u, dim), t.u_narrow);
  const TensorView index_q =
      index_q_ ? narrowed(ops, heads(t.index_q, config_.indexer.head_dim), t.index_q_narrow)
               : TensorView{};
  const auto layer = static_cast<std::size_t>(layer_);
  const GroupStep& group = step.input.groups[static_cast<std::size_t>(group_)];
  for (const AttentionPart& part : group.parts) {
    const auto mine = [&](const TensorView& view) {
      return rows(view, part.first_row, part.num_rows);
    };
    const auto slots = [&](std::span<const std::int64_t> all) {
      return all.subspan(static_cast<std::size_t>(part.first_row),
                         static_cast<std::size_t>(part.num_rows));
    };
    LayerCall call;
    CompressedCall compressed;
    SparseCall sparse;
    call.layer = layer_;
    call.q = mine(q);
    call.o = mine(u);
    call.k = mine(heads(t.key, dim));
    call.k_cache = step.input.kv->k(layer);
    call.v_cache = step.input.kv->v(layer);
    call.slot_mapping = slots(group.slot_mapping);
    call.sinks = static_cast<const float*>(sinks_.data());
    if (compressor_) {
      compressed = {.cache = step.input.kv->compressed(layer),
                    .k = mine(t.compressed.keys[0]),
                    .slot_mapping = slots(group.compressed_slots)};
      call.compressed = &compressed;
    }
    if (index_q_) {
      // The step's lists are as wide as the longest of any layer.
      sparse = {.topk_indices = columns(mine(step.topk_indices), 0, config_.indexer.topk),
                .index_q = mine(index_q),
                .index_weights = mine(t.index_weights),
                .index_k = mine(t.compressed.keys[1]),
                .index_cache = step.input.kv->index(layer)};
      call.sparse = &sparse;
    }
    if (Status s = part.backend->append_kv(call, ops.stream()); !s.ok()) return s;
    if (Status s = part.backend->run(*part.plan, call, ops.stream()); !s.ok()) return s;
  }
  widen_output(ops, heads(t.u, dim), t.u_narrow);
  return {};
}

Status CompressedMixer::forward(Step& step, const TensorView& x, const TensorView& out) const {
  const auto frame = step.memory.frame();
  const Tensors t = take(step.memory, step.num_tokens);
  Ops& ops = step.ops;
  const std::int64_t dim = config_.head_dim_qk;
  project(step, x, t);
  if (compressor_)
    if (Status s = compressor_->forward(step, x, t.compressed); !s.ok()) return s;
  if (Status s = attend(step, t); !s.ok()) return s;
  if (rope_ >= 0)
    ops.rope(heads(t.u, dim), step.cos_sin[static_cast<std::size_t>(rope_)],
             dim - config_.rope.rotary_dim, config_.rope.interleaved, /*inverse=*/true);
  ops.linear_heads(*o_a_, heads(t.u, t.u.shape[1] / config_.o_groups),
                   heads(t.o, config_.o_lora_rank));
  ops.linear(*o_b_, t.o, out);
  return {};
}

}  // namespace attune::model
