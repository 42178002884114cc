// The compressor of DeepSeek-V4 (layer model): what windows of ratio tokens leave behind.
//
//   v_t = W_v x_t;  g_t = W_g x_t
//   e_w = rope(norm(sum over r of softmax_r(g_{w ratio + r} + bias_r) * v_{w ratio + r}), w ratio)
// channel by channel. Where windows overlap (a layer with an indexer) v and g have two series: the
// first of the window before and the second of the window itself go into one softmax. An indexer has
// keys of its own, made alike from x.
//
// Rows of the last window or two wait in a ring a request, a recurrent state (cache/state_pool.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "cache/state_pool.hpp"
#include "model/loader.hpp"
#include "model/step.hpp"

namespace attune::model {

/// One layer's ring.
[[nodiscard]] cache::StateShape compressor_state(const AttentionConfig& config);

class Compressor {
 public:
  /// `prefix`: "….attn."; a layer with an indexer makes its keys, too.
  Compressor(Loader& loader, const AttentionConfig& config, int layer, const std::string& prefix);

  struct Tensors {
    TensorView projected;  ///< [tokens, width]: values and gates of all series
    /// [tokens, dim], rows of tokens that end a window: keys, and the indexer's.
    std::array<TensorView, 2> keys;
  };
  [[nodiscard]] Tensors take(StepMemory& memory, std::int64_t num_tokens) const;
  Status forward(Step& step, const TensorView& x, const Tensors& t) const;

 private:
  /// Keys of one width.
  struct Kind {
    WindowPool pool;
    Buffer bias;
    Norm norm;
  };

  int layer_;
  int num_kinds_ = 0;
  std::array<Kind, 2> kinds_;
  std::unique_ptr<Linear> projection_;
  int rope_;  ///< at a window's first token
  bool interleaved_;
  std::int64_t rotary_dim_;
};

}  // namespace attune::model
