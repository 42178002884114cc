#include "model/compressor.hpp"

#include <limits>
#include <vector>

#include "model/attention_call.hpp"

namespace attune::model {
namespace {

/// Widths of the keys that windows leave: the layer's, and its indexer's.
std::vector<std::int64_t> widths(const AttentionConfig& config) {
  std::vector<std::int64_t> dims{config.head_dim_qk};
  if (config.indexer.num_heads > 0) dims.push_back(config.indexer.head_dim);
  return dims;
}

bool overlaps(const AttentionConfig& config) { return config.indexer.num_heads > 0; }
std::int64_t num_series(const AttentionConfig& config) { return overlaps(config) ? 2 : 1; }

}  // namespace

cache::StateShape compressor_state(const AttentionConfig& config) {
  cache::StateShape shape;
  shape.heads = 1;
  shape.dim_v = num_series(config) * config.compress_ratio;
  for (const std::int64_t dim : widths(config)) shape.dim_k += 2 * num_series(config) * dim;
  return shape;
}

Compressor::Compressor(Loader& loader, const AttentionConfig& config, int layer,
                       const std::string& prefix)
    : layer_(layer),
      // Only rows of a window's last token are used: no other's position matters.
      rope_(loader.ropes().rope_index(config.rope,
                                      {.period = std::numeric_limits<std::int32_t>::max(),
                                       .offset = 1 - std::int64_t{config.compress_ratio},
                                       .most = std::numeric_limits<std::int32_t>::max()})),
      interleaved_(config.rope.interleaved),
      rotary_dim_(config.rope.rotary_dim) {
  const std::array<std::string, 2> folders{prefix + "compressor.", prefix + "indexer.compressor."};
  std::vector<Matrix> stack;
  std::int64_t column = 0;
  for (const std::int64_t dim : widths(config)) {
    const std::string& folder = folders[static_cast<std::size_t>(num_kinds_)];
    Kind& kind = kinds_[static_cast<std::size_t>(num_kinds_++)];
    const std::int64_t width = num_series(config) * dim;
    kind.pool = {.ratio = config.compress_ratio,
                 .overlap = overlaps(config),
                 .dim = dim,
                 .values = column,
                 .gates = column + width};
    stack.push_back({folder + "wkv", width});
    stack.push_back({folder + "wgate", width});
    column += 2 * width;
    kind.bias = loader.flat(folder + "ape", config.compress_ratio * width);
    kind.pool.bias = static_cast<const float*>(kind.bias.data());
    kind.norm = loader.norm(folder + "norm", dim);
  }
  projection_ = loader.linear(stack, loader.config().hidden_size);
}

Compressor::Tensors Compressor::take(StepMemory& memory, std::int64_t num_tokens) const {
  Tensors t;
  t.projected = memory.take(DType::f32, {num_tokens, projection_->rows()});
  for (int i = 0; i < num_kinds_; ++i) {
    const auto n = static_cast<std::size_t>(i);
    t.keys[n] = memory.take(DType::f32, {num_tokens, kinds_[n].pool.dim});
  }
  return t;
}

Status Compressor::forward(Step& step, const TensorView& x, const Tensors& t) const {
  Ops& ops = step.ops;
  ops.linear(*projection_, x, t.projected);
  const TensorView& state = step.input.states->recurrent(static_cast<std::size_t>(layer_));
  const WindowRows rows{
      .projected = t.projected,
      .rings = TensorView::dense(state.data, DType::f32,
                                 {state.shape[0], state.shape[2], state.shape[3]}),
      .tokens = static_cast<const WindowToken*>(step.window_tokens.data)};
  for (int i = 0; i < num_kinds_; ++i) {
    const Kind& kind = kinds_[static_cast<std::size_t>(i)];
    const TensorView& keys = t.keys[static_cast<std::size_t>(i)];
    if (Status s = ops.pool_windows(kind.pool, rows, keys); !s.ok()) return s;
    ops.norm(keys, kind.norm.params, keys);
    if (rope_ >= 0)
      ops.rope(heads(keys, kind.pool.dim), step.cos_sin[static_cast<std::size_t>(rope_)],
               kind.pool.dim - rotary_dim_, interleaved_);
  }
  return ops.keep_windows(rows);
}

}  // namespace attune::model
