// The class behind make_cpu_ops (layer model). Memory and weights are in cpu_ops.cpp, products in
// cpu_ops_products.cpp, what works on each row by itself in cpu_ops_rows.cpp, what DeepSeek-V4 alone
// needs in cpu_ops_windows.cpp and cpu_ops_hyper.cpp.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/ops/rows.hpp"
#include "model/cpu_experts.hpp"
#include "model/cpu_kernels.hpp"
#include "model/cpu_linear.hpp"
#include "model/cpu_ops.hpp"
#include "model/cpu_products.hpp"
#include "model/cpu_rows.hpp"
#include "model/parallel.hpp"
#include "model/weight_arena.hpp"

namespace attune::model {

struct CpuHeadLinears final : HeadLinears {
  std::vector<std::unique_ptr<Linear>> heads;
};

class CpuOps final : public Ops {
 public:
  CpuOps(Executor& executor, const CpuOpsOptions& options)
      : executor_(executor),
        options_(options),
        kernels_(choose_cpu_kernels(options.isa)),
        rows_(*kernels_.rows),
        products_(executor, kernels_, options.batch_invariant),
        experts_(executor, rows_, products_) {}

  [[nodiscard]] DeviceKind device() const override { return DeviceKind::cpu; }
  [[nodiscard]] DType activation_dtype() const override { return DType::f32; }
  [[nodiscard]] DType product_dtype() const override { return DType::f32; }

  Result<Buffer> allocate(std::size_t bytes) override;
  void release(void* data, std::size_t) override { std::free(data); }
  void upload(void* device, const void* host, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
  }
  Status download(void* host, const void* device, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
    return synchronize();
  }
  Status synchronize() override { return std::exchange(failure_, Status{}); }
  [[nodiscard]] Stream stream() const override { return {}; }

  Result<std::unique_ptr<Linear>> make_linear(const LinearParts& parts) override;
  Result<std::unique_ptr<HeadLinears>> make_head_linears(
      std::span<const WeightView> heads) override;
  Result<std::unique_ptr<Experts>> make_experts(const ExpertParts& parts) override;
  Result<Buffer> make_f32(const WeightView& weight, float scale, float offset) override;

  void linear(const Linear& w, const TensorView& x, const TensorView& y, bool accumulate) override;
  void linear_heads(const HeadLinears& w, const TensorView& x, const TensorView& y) override;
  void embedding(const Linear& table, const TensorView& ids, float scale,
                 const TensorView& out) override;
  void route(const MoeConfig& moe, const TensorView& logits, const float* bias,
             const TensorView& ids, const TensorView& weights) override;
  void experts(const Experts& experts, const TensorView& x, const TensorView& ids,
               const TensorView& weights, bool scale_input, const TensorView& out) override;

  void identity_experts(const TensorView& x, const TensorView& ids, const TensorView& weights,
                        std::int32_t first, const TensorView& out) override;

  void norm(const TensorView& x, const NormParams& params, const TensorView& out) override;
  void add_norm(const TensorView& x, float scale, const TensorView& residual,
                const NormParams& params, const TensorView& out) override;
  void rope_angles(const TensorView& positions, const float* inv_freq, std::int64_t pairs,
                   float factor, const TensorView& cos_sin) override;
  void rope(const TensorView& x, const TensorView& cos_sin, std::int64_t first, bool interleaved,
            bool inverse) override;
  void gated_activation(const TensorView& x, const ActivationParams& params,
                        const TensorView& out) override;
  void softmax(const TensorView& x, const TensorView& out) override;
  void merge_attention(const TensorView& o, const TensorView& lse, const TensorView& more_o,
                       const TensorView& more_lse) override;

  void activation(const TensorView& x, Activation kind, const TensorView& out) override;
  void add(const TensorView& x, float scale, const TensorView& out) override;
  void scale(const TensorView& x, float factor, const TensorView& out) override;
  void sigmoid_gate(const TensorView& x, const TensorView& gate, const TensorView& out) override;
  void multiply(const TensorView& x, const TensorView& y, const TensorView& out) override;
  void soft_cap(const TensorView& x, float cap, const TensorView& out) override;

  Status pool_windows(const WindowPool& pool, const WindowRows& rows,
                      const TensorView& out) override;
  Status keep_windows(const WindowRows& rows) override;
  Status hyper_weights(const HyperParams& params, const TensorView& weights) override;
  Status hyper_collapse(const TensorView& streams, const TensorView& pre,
                        const TensorView& out) override;
  Status hyper_expand(const TensorView& x, const TensorView& post, const TensorView& comb,
                      const TensorView& streams) override;

  void convert(const TensorView& x, const TensorView& out) override;
  void gather_rows(const TensorView& x, const TensorView& rows, const TensorView& out) override;
  void choose(const TensorView& logits, const Choice* choices, const TensorView& ids) override;

 private:
  void keep(Status status) {
    if (!status.ok() && failure_.ok()) failure_ = std::move(status);
  }
  /// body(row) for every row, on the executor's threads.
  template <class Body>
  void each_row(const Rows& rows, Body&& body) {
    if (!failure_.ok()) return;
    for_row_ranges(executor_, rows.count(), rows.width,
                   [&](std::int64_t first, std::int64_t last, int) {
                     for (std::int64_t r = first; r < last; ++r) body(r);
                   });
  }
  [[nodiscard]] Conversion conversion() {
    return {options_.weights, executor_, arena_, options_.converted};
  }
  void norm_row(const float* x, const NormParams& params, std::int64_t width, float* out) const;

  Executor& executor_;
  CpuOpsOptions options_;
  CpuKernels kernels_;
  const kernels::ops::RowKernels& rows_;
  WeightArena arena_;
  CpuProducts products_;
  CpuExpertProducts experts_;
  std::vector<float> route_workspace_;
  Status failure_;
};

}  // namespace attune::model
