// Ops: model arithmetic outside attention, and the memory it works on, for one device (layer
// model). One forward pass serves every device: it sees this interface only. The CPU implementation
// is cpu_ops.hpp over kernels/ops; a CUDA one lives in libattune_cuda.so.
//
//   auto wq = ops.make_linear({{q, k, v}});          // once, at load: stacked rows
//   auto qkv = ops.allocate(tokens * width * 4);     // once, at load
//   ops.norm(x, w, {...}, normed); ops.linear(**wq, normed, qkv_view);   // each step, each layer
//
// Activations are views [tokens, width] (or [tokens, heads, dim]) whose last stride is 1; the other
// strides are free, so that q, k and v may be windows onto one product. Their dtype is
// activation_dtype() unless a verb says otherwise. Out may be the input itself wherever a verb is
// elementwise or row by row, but must not overlap it otherwise.
//
// Verbs run in the order they are called and return at once on an asynchronous device. A failure
// (out of scratch memory, a driver's error) is kept, later verbs do nothing, and synchronize()
// returns it. Shapes that do not fit each other are a broken contract.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include <attune/device.hpp>
#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "model/choice.hpp"
#include "model/config.hpp"
#include "model/weights/weight_store.hpp"
#include "model/window_pool.hpp"

namespace attune::model {

class Ops;

/// Device memory with an owner; aligned to 256 bytes. Must not outlive its Ops.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Ops* owner, void* data, std::size_t bytes) : owner_(owner), data_(data), bytes_(bytes) {}
  inline ~Buffer();
  Buffer(Buffer&& other) noexcept
      : owner_(other.owner_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  Ops* owner_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// fp32 numbers as a view that has them in every row of `like`: stride 0, only to be read.
[[nodiscard]] inline TensorView row_of(const Buffer& numbers, const TensorView& like) {
  TensorView view = like;
  view.data = numbers.data();
  view.dtype = DType::f32;
  view.stride[0] = 0;
  return view;
}

/// A weight matrix [rows, columns] in whatever form the device multiplies best; y = x · Wᵀ + bias.
class Linear {
 public:
  virtual ~Linear() = default;
  [[nodiscard]] virtual std::int64_t rows() const = 0;
  [[nodiscard]] virtual std::int64_t columns() const = 0;
};

/// One matrix [rows, columns] a head, all of one shape.
class HeadLinears {
 public:
  virtual ~HeadLinears() = default;
};

/// The routed experts of one layer.
class Experts {
 public:
  virtual ~Experts() = default;
  [[nodiscard]] virtual int num_experts() const = 0;
};

/// What make_linear takes: matrices with equal columns, stacked in this order. Biases are absent or
/// one each (a matrix without one gets zeros).
struct LinearParts {
  std::span<const WeightView> weights;
  std::span<const WeightView> biases{};
  bool lookup_only = false;  ///< an embedding that is no head: its rows are read, never multiplied
};

struct NormParams {
  NormKind kind = NormKind::rms;
  float eps = 1e-6f;
  const float* weight = nullptr;  ///< [width] device memory; nullptr = all ones
  const float* bias = nullptr;    ///< layer_norm only; nullptr = zeros
};

struct ActivationParams {
  Activation kind = Activation::silu;
  bool interleaved =
      false;             ///< gate and up alternate (gpt-oss); otherwise all of gate, then all of up
  float limit = 0.0f;    ///< clamp: gate ≤ limit, -limit ≤ up ≤ limit; 0 = none
  float alpha = 1.702f;  ///< swiglu_oai
};

/// One set of experts, weight by weight. gate_up[e] is [2 * intermediate, hidden] (gate rows first
/// unless activation.interleaved), down[e] is [hidden, intermediate].
struct ExpertParts {
  std::span<const LinearParts> gate_up;
  std::span<const LinearParts> down;
  ActivationParams activation;
};

/// Hyper-connections (hyper_connection.hpp): `scale` and `base` in device memory.
struct HyperParams {
  int streams = 0;
  int iterations = 0;  ///< of Sinkhorn and Knopp
  float eps = 0.0f;
  const float* scale = nullptr;  ///< [3]: of pre, post and comb; [1] where there is pre alone
  const float* base = nullptr;   ///< as long as a row of weights
};

/// Verbs and launches that were recorded once, to be done again on the same addresses: what those
/// hold may have changed.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Memory that it works in has been moved since: record anew.
  [[nodiscard]] virtual bool stale() const = 0;
  virtual void replay() = 0;  ///< in order, like a verb
};

class Ops {
 public:
  virtual ~Ops() = default;

  [[nodiscard]] virtual DeviceKind device() const = 0;
  [[nodiscard]] virtual DType activation_dtype() const = 0;
  /// What linear() multiplies as it is; another dtype costs a pass. For rows that only products
  /// read.
  [[nodiscard]] virtual DType product_dtype() const = 0;

  // Memory.
  virtual Result<Buffer> allocate(std::size_t bytes) = 0;
  virtual void release(void* data, std::size_t bytes) = 0;  ///< for Buffer only
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  /// Waits until the bytes have arrived.
  virtual Status download(void* host, const void* device, std::size_t bytes) = 0;
  /// Waits for everything; the first failure since the last call.
  virtual Status synchronize() = 0;
  [[nodiscard]] virtual Stream stream() const = 0;  ///< where the verbs run; for the backends

  /// Records what `body` issues on stream() instead of doing it. It must have been issued before in
  /// the same shapes, so that nothing is left to allocate or look up, and copies nothing from or to
  /// the host. Refused where the device cannot.
  virtual Result<std::unique_ptr<Recording>> record(const std::function<Status()>& body) {
    (void)body;
    return unsupported("this device does work as it comes and records none");
  }

  // Weights, at load.
  /// The views may have to stay mapped: the CPU multiplies straight from the file where it can.
  virtual Result<std::unique_ptr<Linear>> make_linear(const LinearParts& parts) = 0;
  virtual Result<std::unique_ptr<HeadLinears>> make_head_linears(
      std::span<const WeightView> heads) = 0;
  virtual Result<std::unique_ptr<Experts>> make_experts(const ExpertParts& parts) = 0;
  /// fp32 in device memory: norm weights, sinks, biases. `scale` and `offset`: w * scale + offset.
  virtual Result<Buffer> make_f32(const WeightView& weight, float scale = 1.0f,
                                  float offset = 0.0f) = 0;

  // Products.
  /// y = x · Wᵀ + bias, or y += …
  virtual void linear(const Linear& w, const TensorView& x, const TensorView& y,
                      bool accumulate = false) = 0;
  /// y[:, h] = x[:, h] · W_hᵀ for every head h: x [tokens, heads, columns], y [tokens, heads,
  /// rows].
  virtual void linear_heads(const HeadLinears& w, const TensorView& x, const TensorView& y) = 0;
  /// out[i] = scale * row ids[i] of `table`; ids: i32 [tokens], all inside the table.
  virtual void embedding(const Linear& table, const TensorView& ids, float scale,
                         const TensorView& out) = 0;
  /// Chooses experts: logits fp32 [tokens, num_experts] → ids i32 and weights fp32, both
  /// [tokens, experts_per_token]. `bias` (or nullptr) takes part in the choice only.
  virtual void route(const MoeConfig& moe, const TensorView& logits, const float* bias,
                     const TensorView& ids, const TensorView& weights) = 0;
  /// out[t] += sum over j of weights[t, j] * expert ids[t, j] (x[t]); with `scale_input` the weight
  /// multiplies the expert's input instead. An id outside the experts contributes nothing.
  virtual void experts(const Experts& experts, const TensorView& x, const TensorView& ids,
                       const TensorView& weights, bool scale_input, const TensorView& out) = 0;

  /// out[t] += x[t] * (the weights of ids from `first` on): experts that change nothing (LongCat's
  /// zero experts).
  virtual void identity_experts(const TensorView& x, const TensorView& ids,
                                const TensorView& weights, std::int32_t first,
                                const TensorView& out) = 0;

  // Row by row.
  /// Over the last dimension; rank 2, or rank 3 (each head by itself, one weight for all heads).
  virtual void norm(const TensorView& x, const NormParams& params, const TensorView& out) = 0;
  /// residual += scale * x, then out = norm(residual): the seam between two branches, in one pass.
  virtual void add_norm(const TensorView& x, float scale, const TensorView& residual,
                        const NormParams& params, const TensorView& out) = 0;
  /// cos and sin of this step's positions, for all layers that share the frequencies:
  /// positions i32 [tokens], inv_freq fp32 [pairs] device memory → cos_sin fp32 [tokens, 2 *
  /// pairs], cosines first, each times `factor`.
  virtual void rope_angles(const TensorView& positions, const float* inv_freq, std::int64_t pairs,
                           float factor, const TensorView& cos_sin) = 0;
  /// Turns dims [first, first + 2 * pairs) of every head of x [tokens, heads, dim], in place.
  /// `inverse` turns back.
  virtual void rope(const TensorView& x, const TensorView& cos_sin, std::int64_t first,
                    bool interleaved, bool inverse = false) = 0;
  /// x [tokens, 2 * width] → out [tokens, width]: act(gate) * up.
  virtual void gated_activation(const TensorView& x, const ActivationParams& params,
                                const TensorView& out) = 0;
  virtual void softmax(const TensorView& x, const TensorView& out) = 0;

  /// Joins attention over disjoint keys (attention/lse.hpp): o fp32 [tokens, heads, dim] and lse
  /// fp32 [tokens, heads] take in more_o and more_lse. No key on either side leaves the other's.
  virtual void merge_attention(const TensorView& o, const TensorView& lse, const TensorView& more_o,
                               const TensorView& more_lse) = 0;

  // Elementwise.
  virtual void activation(const TensorView& x, Activation kind, const TensorView& out) = 0;
  /// out += scale * x.
  virtual void add(const TensorView& x, float scale, const TensorView& out) = 0;
  virtual void scale(const TensorView& x, float factor, const TensorView& out) = 0;
  /// out = x * sigmoid(gate); gate has x's shape, or one column for the whole row.
  virtual void sigmoid_gate(const TensorView& x, const TensorView& gate, const TensorView& out) = 0;
  /// out = x * y.
  virtual void multiply(const TensorView& x, const TensorView& y, const TensorView& out) = 0;
  /// out = cap * tanh(x / cap).
  virtual void soft_cap(const TensorView& x, float cap, const TensorView& out) = 0;

  // DeepSeek-V4's own; refused where a device has none.
  /// out [tokens, dim]: in the row of each token that ends a window, the sum of its window's values,
  /// channel by channel weighted by a softmax of their gates; zeros in the others.
  virtual Status pool_windows(const WindowPool& pool, const WindowRows& rows,
                              const TensorView& out) {
    (void)pool, (void)rows, (void)out;
    return unsupported("this device pools no windows of keys");
  }
  /// The rings pass the step's tokens.
  virtual Status keep_windows(const WindowRows& rows) {
    (void)rows;
    return unsupported("this device keeps no windows of keys");
  }
  /// What a row of products becomes, in place: pre [streams], post [streams] and comb
  /// [streams, streams], or pre alone.
  virtual Status hyper_weights(const HyperParams& params, const TensorView& weights) {
    (void)params, (void)weights;
    return unsupported("this device has no hyper-connections");
  }
  /// out [tokens, width] = sum over i of pre[i] * stream i; streams [tokens, n * width].
  virtual Status hyper_collapse(const TensorView& streams, const TensorView& pre,
                                const TensorView& out) {
    (void)streams, (void)pre, (void)out;
    return unsupported("this device has no hyper-connections");
  }
  /// stream k = post[k] * x + sum over i of comb[i, k] * stream i.
  virtual Status hyper_expand(const TensorView& x, const TensorView& post, const TensorView& comb,
                              const TensorView& streams) {
    (void)x, (void)post, (void)comb, (void)streams;
    return unsupported("this device has no hyper-connections");
  }

  // Moving.
  /// Copies, converting between fp32, bf16 and fp16 where the dtypes differ.
  virtual void convert(const TensorView& x, const TensorView& out) = 0;
  /// out[i] = x[rows[i]]; rows: i32 [tokens of out].
  virtual void gather_rows(const TensorView& x, const TensorView& rows, const TensorView& out) = 0;
  /// ids[i] = the column that choices[i] takes from row i (choice.hpp), kNoToken where every number
  /// is NaN or -inf. logits: fp32 [tokens, width]; choices: device memory; ids: i32 [tokens].
  virtual void choose(const TensorView& logits, const Choice* choices, const TensorView& ids) = 0;
};

inline Buffer::~Buffer() {
  if (data_ != nullptr) owner_->release(data_, bytes_);
}

}  // namespace attune::model
