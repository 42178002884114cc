// torch_native's plan: who multiplies what, in few enough shapes that compiling them stays cheap.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <attune/backend.hpp>
#include <attune/validate.hpp>

#include "attention/mask.hpp"
#include "kernels/ops/matmul.hpp"

namespace attune::backends::torch_native {

/// Rows (query token, head of the group) of one product, and keys of one product.
inline constexpr std::int64_t kRowBlock = 128;
inline constexpr std::int64_t kKeyBlock = 512;
/// Keys are padded to this, rows to powers of two and then to it / 4: a handful of shapes serves
/// every length.
inline constexpr std::int64_t kKeyStep = 64;

[[nodiscard]] std::int64_t padded_rows(std::int64_t rows);

/// One thread's memory, all fp32.
struct Scratch {
  float* q = nullptr;       ///< [row_block, head_dim_qk]
  float* k = nullptr;       ///< [keys, head_dim_qk]
  float* v = nullptr;       ///< [keys, head_dim_vo]; latent: null, a slice of k
  float* scores = nullptr;  ///< [row_block, keys]
  float* o = nullptr;       ///< [row_block, head_dim_vo]
};

/// Sizes that a plan's products and its workspace share.
struct Sizes {
  std::int64_t row_block = 0;  ///< padded
  std::int64_t keys = 0;       ///< padded
};
[[nodiscard]] Sizes sizes_of(const AttentionSpec& spec, const BatchBounds& bounds);
[[nodiscard]] std::size_t workspace_bytes(const AttentionSpec& spec, const Sizes& sizes,
                                          int num_threads);

/// One request and KV head: gathered once, then multiplied row block by row block.
struct Item {
  std::int32_t request = 0;
  std::int32_t kv_head = 0;
};

class TorchNativePlan final : public Plan {
 public:
  attention::BatchFacts facts;
  Workspace workspace;
  Sizes sizes;
  std::vector<Scratch> scratch;  ///< of each thread
  std::vector<std::int32_t> qo_indptr, kv_indptr, kv_indices;
  std::vector<std::int64_t> kv_len, kv_offset;
  std::vector<std::uint8_t> custom_mask;
  std::vector<std::int64_t> custom_mask_indptr;
  std::vector<Item> items;  ///< costliest first

  using Product = std::shared_ptr<const kernels::ops::MatmulPlan>;
  struct Shape {
    std::int64_t rows = 0;
    std::int64_t keys = 0;
    [[nodiscard]] auto operator<=>(const Shape&) const = default;
  };
  /// scores = q . k^T and o += weights . v, by padded rows and keys.
  std::map<Shape, Product> score_products;
  std::map<Shape, Product> value_products;
  std::unique_ptr<kernels::ops::Matmul> matmul;  ///< this plan's own: two plans may run at once
};

/// Fills `plan` from a checked batch.
[[nodiscard]] Status make_plan(const AttentionSpec& spec, const BatchView& batch,
                               const attention::BatchFacts& facts, const Workspace& workspace,
                               int num_threads, TorchNativePlan& plan);

}  // namespace attune::backends::torch_native
