#include "model/cuda/cuda_ops.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/cuda/status.hpp"
#include "base/join.hpp"
#include "device/cuda/memory.hpp"
#include "kernels/ops/cuda/choose.hpp"
#include "kernels/ops/cuda/hyper.hpp"
#include "kernels/ops/cuda/rows.hpp"
#include "kernels/ops/cuda/windows.hpp"
#include "model/cuda/cuda_products.hpp"
#include "model/cuda/cuda_recording.hpp"
#include "model/cuda/cuda_views.hpp"
#include "model/cuda/cuda_weights.hpp"
#include "model/row_activation.hpp"

namespace attune::model::cuda {
namespace {

namespace ops = kernels::ops::cuda;
using device::cuda::Memory;
using device::cuda::MemoryKind;

class CudaOps final : public Ops {
 public:
  CudaOps(DType weights, std::unique_ptr<Products> products, cudaStream_t stream)
      : weights_(weights), products_(std::move(products)), stream_(stream) {}
  ~CudaOps() override { (void)cudaStreamDestroy(stream_); }
  CudaOps(const CudaOps&) = delete;
  CudaOps& operator=(const CudaOps&) = delete;

  [[nodiscard]] DeviceKind device() const override { return DeviceKind::cuda; }
  [[nodiscard]] DType activation_dtype() const override { return DType::f32; }
  [[nodiscard]] DType product_dtype() const override { return weights_; }
  [[nodiscard]] Stream stream() const override { return {stream_}; }

  Result<Buffer> allocate(std::size_t bytes) override {
    void* data = nullptr;
    if (bytes > 0)
      if (Status s = base::cuda::call_status(cudaMalloc(&data, bytes), "allocating device memory");
          !s.ok())
        return s;
    return Buffer(this, data, bytes);
  }
  void release(void* data, std::size_t) override { (void)cudaFree(data); }

  void upload(void* device, const void* host, std::size_t bytes) override {
    if (bytes > 0 && failure_.ok())
      keep(base::cuda::call_status(
          cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_), "upload"));
  }
  Status download(void* host, const void* device, std::size_t bytes) override {
    if (bytes > 0 && failure_.ok())
      keep(base::cuda::call_status(
          cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), "download"));
    return synchronize();
  }
  Status synchronize() override {
    keep(base::cuda::call_status(cudaStreamSynchronize(stream_), "a model step"));
    return std::exchange(failure_, Status{});
  }

  Result<std::unique_ptr<Recording>> record(const std::function<Status()>& body) override {
    if (Status s = synchronize(); !s.ok()) return s;
    return record_graph(stream_, body, growths_, failure_);
  }

  Result<std::unique_ptr<Linear>> make_linear(const LinearParts& parts) override {
    Result<std::unique_ptr<CudaLinear>> made = CudaLinear::make({&parts, 1}, weights_);
    if (!made.ok()) return made.status();
    return std::unique_ptr<Linear>(std::move(*made));
  }
  Result<std::unique_ptr<HeadLinears>> make_head_linears(
      std::span<const WeightView> heads) override {
    const LinearParts parts{.weights = heads};
    Result<std::unique_ptr<CudaLinear>> stack = CudaLinear::make({&parts, 1}, weights_);
    if (!stack.ok()) return stack.status();
    return std::unique_ptr<HeadLinears>(std::make_unique<CudaHeadLinears>(
        std::move(*stack), static_cast<std::int64_t>(heads.size())));
  }
  Result<std::unique_ptr<Experts>> make_experts(const ExpertParts& parts) override {
    Result<std::unique_ptr<CudaExperts>> made = CudaExperts::make(parts, weights_);
    if (!made.ok()) return made.status();
    return std::unique_ptr<Experts>(std::move(*made));
  }
  Result<Buffer> make_f32(const WeightView& weight, float scale, float offset) override {
    std::vector<float> numbers(static_cast<std::size_t>(weight.num_elements()));
    read_f32(weight, numbers);
    for (float& x : numbers) x = x * scale + offset;
    Result<Buffer> buffer = allocate(numbers.size() * sizeof(float));
    if (!buffer.ok()) return buffer;
    if (Status s = base::cuda::call_status(
            cudaMemcpy(buffer->data(), numbers.data(), numbers.size() * sizeof(float),
                       cudaMemcpyHostToDevice),
            "uploading weights");
        !s.ok())
      return s;
    return buffer;
  }

  void linear(const Linear& w, const TensorView& x, const TensorView& y, bool accumulate) override {
    if (!failure_.ok()) return;
    const auto& matrix = static_cast<const CudaLinear&>(w);
    require(x.shape[1] == w.columns() && y.shape[1] == w.rows() && x.shape[0] == y.shape[0],
            "x is [tokens, columns], y is [tokens, rows]");
    const TensorView input = x.dtype == weights_ ? x : rounded(x);
    if (!failure_.ok()) return;
    keep(products_->multiply({.x = input.data,
                              .w = matrix.numbers(),
                              .y = y.data,
                              .m = x.shape[0],
                              .n = w.rows(),
                              .k = w.columns(),
                              .x_row = input.stride[0],
                              .y_row = y.stride[0],
                              .dtype = weights_,
                              .y_dtype = y.dtype,
                              .accumulate = accumulate},
                             stream_));
    if (matrix.bias() != nullptr)
      launch("add_bias", [&] { ops::add_bias(matrix.bias(), rows_of(y), stream_); });
  }

  void linear_heads(const HeadLinears& w, const TensorView& x, const TensorView& y) override {
    if (!failure_.ok()) return;
    const auto& heads = static_cast<const CudaHeadLinears&>(w);
    require(x.rank == 3 && y.rank == 3 && x.shape[0] == y.shape[0] &&
                x.shape[1] == heads.num_heads() && y.shape[1] == heads.num_heads() &&
                x.shape[2] == heads.columns() && y.shape[2] == heads.rows(),
            "x is [tokens, heads, columns], y is [tokens, heads, rows]");
    const TensorView input = x.dtype == weights_ ? x : rounded(x);
    if (!failure_.ok()) return;
    keep(products_->multiply({.x = input.data,
                              .w = heads.numbers(),
                              .y = y.data,
                              .m = x.shape[0],
                              .n = heads.rows(),
                              .k = heads.columns(),
                              .x_row = input.stride[0],
                              .y_row = y.stride[0],
                              .batch = heads.num_heads(),
                              .x_batch = input.stride[1],
                              .w_batch = heads.rows() * heads.columns(),
                              .y_batch = y.stride[1],
                              .dtype = weights_,
                              .y_dtype = y.dtype},
                             stream_));
  }

  void embedding(const Linear& table, const TensorView& ids, float scale,
                 const TensorView& out) override {
    const auto& matrix = static_cast<const CudaLinear&>(table);
    const ops::Rows from{.data = matrix.numbers(),
                         .dtype = weights_,
                         .tokens = matrix.rows(),
                         .width = matrix.columns(),
                         .token_stride = matrix.columns()};
    launch("embedding",
           [&] { ops::gather_rows(from, ids.as<std::int32_t>(), scale, rows_of(out), stream_); });
  }

  void route(const MoeConfig& moe, const TensorView& logits, const float* bias,
             const TensorView& ids, const TensorView& weights) override {
    const kernels::ops::RouteParams p = route_params(moe, logits, bias, ids, weights);
    launch("route", [&] {
      ops::route(p, logits.stride[0], logits.shape[0], ids.stride[0], weights.stride[0], stream_);
    });
  }

  void experts(const Experts& experts, const TensorView& x, const TensorView& ids,
               const TensorView& weights, bool scale_input, const TensorView& out) override {
    if (!failure_.ok()) return;
    const auto& e = static_cast<const CudaExperts&>(experts);
    const auto pairs = static_cast<std::size_t>(x.shape[0] * ids.shape[1]);
    const std::size_t bytes =
        pairs * 3 * static_cast<std::size_t>(e.weights().intermediate) * sizeof(float);
    if (!grow(expert_workspace_, bytes)) return;
    launch("experts", [&] {
      ops::experts(e.weights(), rows_of(x), ids.as<std::int32_t>(), weights.as<float>(),
                   ids.shape[1], scale_input, static_cast<float*>(expert_workspace_.data()),
                   rows_of(out), stream_);
    });
  }

  void identity_experts(const TensorView& x, const TensorView& ids, const TensorView& weights,
                        std::int32_t first, const TensorView& out) override {
    launch("identity_experts", [&] {
      ops::identity_experts(rows_of(x), ids.as<std::int32_t>(), weights.as<float>(), ids.shape[1],
                            first, rows_of(out), stream_);
    });
  }

  void norm(const TensorView& x, const NormParams& params, const TensorView& out) override {
    launch("norm",
           [&] { ops::norm(rows_of(x), nullptr, 0.0f, norm_of(params), rows_of(out), stream_); });
  }
  void add_norm(const TensorView& x, float scale, const TensorView& residual,
                const NormParams& params, const TensorView& out) override {
    const ops::Rows sum = rows_of(residual);
    launch("add_norm",
           [&] { ops::norm(rows_of(x), &sum, scale, norm_of(params), rows_of(out), stream_); });
  }
  void rope_angles(const TensorView& positions, const float* inv_freq, std::int64_t pairs,
                   float factor, const TensorView& cos_sin) override {
    require(cos_sin.dtype == DType::f32, "cosines are fp32");
    launch("rope_angles", [&] {
      ops::rope_angles(positions.as<std::int32_t>(), inv_freq, positions.shape[0], pairs, factor,
                       cos_sin.as<float>(), cos_sin.stride[0], stream_);
    });
  }
  void rope(const TensorView& x, const TensorView& cos_sin, std::int64_t first, bool interleaved,
            bool inverse) override {
    launch("rope", [&] {
      ops::rope(rows_of(x), cos_sin.as<float>(), cos_sin.stride[0], cos_sin.shape[1] / 2, first,
                interleaved, inverse, stream_);
    });
  }
  void gated_activation(const TensorView& x, const ActivationParams& params,
                        const TensorView& out) override {
    launch("gated_activation",
           [&] { ops::gated_activation(rows_of(x), gated_of(params), rows_of(out), stream_); });
  }
  void softmax(const TensorView& x, const TensorView& out) override {
    launch("softmax", [&] { ops::softmax(rows_of(x), rows_of(out), stream_); });
  }
  void activation(const TensorView& x, Activation kind, const TensorView& out) override {
    launch("activation",
           [&] { ops::activation(rows_of(x), row_activation(kind), rows_of(out), stream_); });
  }
  void add(const TensorView& x, float scale, const TensorView& out) override {
    launch("add", [&] { ops::add(rows_of(x), scale, rows_of(out), stream_); });
  }
  void scale(const TensorView& x, float factor, const TensorView& out) override {
    launch("scale", [&] { ops::scale(rows_of(x), factor, rows_of(out), stream_); });
  }
  void merge_attention(const TensorView& o, const TensorView& lse, const TensorView& more_o,
                       const TensorView& more_lse) override {
    launch("merge_attention", [&] {
      ops::merge_attention(rows_of(o), lse.as<float>(), lse.stride[0], rows_of(more_o),
                           more_lse.as<float>(), more_lse.stride[0], stream_);
    });
  }
  void sigmoid_gate(const TensorView& x, const TensorView& gate, const TensorView& out) override {
    launch("sigmoid_gate",
           [&] { ops::sigmoid_gate(rows_of(x), rows_of(gate), rows_of(out), stream_); });
  }
  void multiply(const TensorView& x, const TensorView& y, const TensorView& out) override {
    launch("multiply", [&] { ops::multiply(rows_of(x), rows_of(y), rows_of(out), stream_); });
  }
  void soft_cap(const TensorView& x, float cap, const TensorView& out) override {
    launch("soft_cap", [&] { ops::soft_cap(rows_of(x), cap, rows_of(out), stream_); });
  }
  Status pool_windows(const WindowPool& pool, const WindowRows& rows,
                      const TensorView& out) override {
    require(out.shape[1] == pool.dim && out.shape[0] == rows.projected.shape[0],
            "a row of pooled numbers a token");
    const ops::HyperRows to = f32_rows(out);
    launch("pool_windows",
           [&] { ops::pool_windows(pool, window_rows(rows), to.data, to.stride, stream_); });
    return {};
  }
  Status keep_windows(const WindowRows& rows) override {
    launch("keep_windows", [&] { ops::keep_windows(window_rows(rows), stream_); });
    return {};
  }
  Status hyper_weights(const HyperParams& p, const TensorView& weights) override {
    const bool pre_alone = weights.shape[1] == p.streams;
    require(p.streams <= ops::kMostStreams &&
                (pre_alone || weights.shape[1] == (2 + p.streams) * p.streams),
            "weights of pre, post and comb, or of pre");
    launch("hyper_weights", [&] {
      ops::hyper_weights({.streams = p.streams,
                          .iterations = p.iterations,
                          .eps = p.eps,
                          .scale = p.scale,
                          .base = p.base},
                         pre_alone, f32_rows(weights), weights.shape[0], stream_);
    });
    return {};
  }
  Status hyper_collapse(const TensorView& streams, const TensorView& pre,
                        const TensorView& out) override {
    require(streams.shape[1] == pre.shape[1] * out.shape[1] && streams.shape[0] == out.shape[0] &&
                pre.shape[0] == out.shape[0],
            "a weight for each stream");
    launch("hyper_collapse", [&] {
      ops::hyper_collapse(f32_rows(streams), f32_rows(pre), static_cast<int>(pre.shape[1]),
                          f32_rows(out), out.shape[0], out.shape[1], stream_);
    });
    return {};
  }
  Status hyper_expand(const TensorView& x, const TensorView& post, const TensorView& comb,
                      const TensorView& streams) override {
    const std::int64_t n = post.shape[1];
    require(n <= ops::kMostStreams && streams.shape[1] == n * x.shape[1] &&
                comb.shape[1] == n * n && streams.shape[0] == x.shape[0] &&
                post.shape[0] == x.shape[0] && comb.shape[0] == x.shape[0],
            "a factor for each stream, and one for each pair of them");
    launch("hyper_expand", [&] {
      ops::hyper_expand(f32_rows(x), f32_rows(post), f32_rows(comb), static_cast<int>(n),
                        f32_rows(streams), x.shape[0], x.shape[1], stream_);
    });
    return {};
  }
  void convert(const TensorView& x, const TensorView& out) override {
    launch("convert", [&] { ops::convert(rows_of(x), rows_of(out), stream_); });
  }
  void gather_rows(const TensorView& x, const TensorView& rows, const TensorView& out) override {
    launch("gather_rows", [&] {
      ops::gather_rows(rows_of(x), rows.as<std::int32_t>(), 1.0f, rows_of(out), stream_);
    });
  }
  void choose(const TensorView& logits, const Choice* choices, const TensorView& ids) override {
    require(logits.dtype == DType::f32 && logits.rank == 2, "rows of fp32 logits");
    if (!grow(choice_workspace_, ops::choose_bytes(logits.shape[0]))) return;
    launch("choose", [&] {
      ops::choose(rows_of(logits), choices, choice_workspace_.data(), ids.as<std::int32_t>(),
                  stream_);
    });
  }

 private:
  /// Grows until the largest step has been seen; recordings made before are stale.
  bool grow(Memory& memory, std::size_t bytes) {
    if (bytes <= memory.bytes()) return true;
    ++growths_;
    Result<Memory> grown = Memory::allocate(MemoryKind::device, bytes);
    if (!grown.ok()) {
      keep(grown.status());
      return false;
    }
    keep(base::cuda::call_status(cudaStreamSynchronize(stream_), "growing a workspace"));
    memory = std::move(*grown);
    return failure_.ok();
  }
  /// x in the weights' dtype, in memory that the next product may overwrite.
  TensorView rounded(const TensorView& x) {
    TensorView out =
        x.rank == 3 ? TensorView::dense(nullptr, weights_, {x.shape[0], x.shape[1], x.shape[2]})
                    : TensorView::dense(nullptr, weights_, {x.shape[0], x.shape[1]});
    if (!grow(product_input_, static_cast<std::size_t>(out.num_elements()) * size_of(weights_)))
      return out;
    out.data = product_input_.data();
    launch("convert", [&] { ops::convert(rows_of(x), rows_of(out), stream_); });
    return out;
  }
  void keep(Status status) {
    if (!status.ok() && failure_.ok()) failure_ = std::move(status);
  }
  template <class Launch>
  void launch(std::string_view kernel, Launch&& body) {
    if (!failure_.ok()) return;
    body();
    keep(base::cuda::launch_status(kernel));
  }

  DType weights_;
  std::unique_ptr<Products> products_;
  cudaStream_t stream_;
  Memory expert_workspace_;
  Memory choice_workspace_;
  Memory product_input_;
  std::int64_t growths_ = 0;
  Status failure_;
};

}  // namespace

Result<std::unique_ptr<Ops>> make_cuda_ops(const DeviceInfo& device, DType weights) {
  if (weights != DType::bf16 && weights != DType::f32)
    return unsupported(base::join("weights on a GPU are bf16 or fp32, not ", name(weights)));
  if (Status s = base::cuda::call_status(cudaSetDevice(device.index), "cudaSetDevice"); !s.ok())
    return s;
  Result<std::unique_ptr<Products>> products = Products::make();
  if (!products.ok()) return products.status();
  cudaStream_t stream = nullptr;
  if (Status s = base::cuda::call_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                         "cudaStreamCreate");
      !s.ok())
    return s;
  return std::unique_ptr<Ops>(std::make_unique<CudaOps>(weights, std::move(*products), stream));
}

}  // namespace attune::model::cuda
