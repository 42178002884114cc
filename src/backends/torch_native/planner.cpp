#include "backends/torch_native/planner.hpp"

#include <algorithm>
#include <bit>

#include "base/math.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::torch_native {
namespace {

constexpr std::int64_t kRowStep = kKeyStep / 4;

Scratch cut_scratch(plan::WorkspaceCutter& cut, const AttentionSpec& spec, const Sizes& n) {
  const bool latent = spec.variant == Variant::mla;
  return {.q = cut.take<float>(n.row_block * spec.head_dim_qk),
          .k = cut.take<float>(n.keys * spec.head_dim_qk),
          .v = latent ? nullptr : cut.take<float>(n.keys * spec.head_dim_vo),
          .scores = cut.take<float>(n.row_block * n.keys),
          .o = cut.take<float>(n.row_block * spec.head_dim_vo)};
}

/// Compiles both products of `rows` by `keys`, unless they are there.
Status add_products(const AttentionSpec& spec, std::int64_t rows, std::int64_t keys,
                    TorchNativePlan& plan) {
  const TorchNativePlan::Shape shape{.rows = rows, .keys = keys};
  if (plan.score_products.contains(shape)) return {};
  auto scores = plan.matmul->plan({.m = rows,
                                   .n = keys,
                                   .k = spec.head_dim_qk,
                                   .ldb = spec.head_dim_qk,
                                   .ldc = plan.sizes.keys});
  if (!scores.ok()) return scores.status();
  const bool latent = spec.variant == Variant::mla;
  auto values = plan.matmul->plan({.m = rows,
                                   .n = spec.head_dim_vo,
                                   .k = keys,
                                   .lda = plan.sizes.keys,
                                   .ldb = latent ? spec.head_dim_qk : spec.head_dim_vo,
                                   .ldc = spec.head_dim_vo,
                                   .b_is_kn = true,
                                   .accumulate = true});
  if (!values.ok()) return values.status();
  plan.score_products.emplace(shape, *scores);
  plan.value_products.emplace(shape, *values);
  return {};
}

Status add_products_of(const AttentionSpec& spec, std::int64_t rows, std::int64_t keys,
                       TorchNativePlan& plan) {
  const std::int64_t row_tail = rows % kRowBlock;
  const std::int64_t key_tail = base::round_up(keys % kKeyBlock, kKeyStep);
  for (const std::int64_t m : {rows >= kRowBlock ? kRowBlock : 0, row_tail})
    for (const std::int64_t n : {keys >= kKeyBlock ? kKeyBlock : 0, key_tail})
      if (m > 0 && n > 0)
        if (Status s = add_products(spec, padded_rows(m), n, plan); !s.ok()) return s;
  return {};
}

}  // namespace

std::int64_t padded_rows(std::int64_t rows) {
  if (rows > kRowStep) return base::round_up(rows, kRowStep);
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
}

Sizes sizes_of(const AttentionSpec& spec, const BatchBounds& bounds) {
  const std::int64_t tokens =
      bounds.decode_only ? std::min<std::int64_t>(bounds.max_qo_tokens, 1) : bounds.max_qo_tokens;
  if (tokens == 0) return {};
  return {.row_block = padded_rows(std::min(kRowBlock, tokens * spec.gqa_group_size())),
          .keys = base::round_up(bounds.max_kv_len, kKeyStep)};
}

std::size_t workspace_bytes(const AttentionSpec& spec, const Sizes& sizes, int num_threads) {
  if (sizes.row_block == 0) return 0;
  plan::WorkspaceCutter count;
  for (int t = 0; t < num_threads; ++t) static_cast<void>(cut_scratch(count, spec, sizes));
  return count.bytes();
}

Status make_plan(const AttentionSpec& spec, const BatchView& batch,
                 const attention::BatchFacts& facts, const Workspace& workspace, int num_threads,
                 TorchNativePlan& plan) {
  plan.facts = facts;
  plan.workspace = workspace;
  plan.sizes = sizes_of(spec, attention::bounds_of(batch));
  plan.scratch.clear();
  plan::WorkspaceCutter cut(workspace.device);
  for (int t = 0; t < num_threads && plan.sizes.row_block > 0; ++t)
    plan.scratch.push_back(cut_scratch(cut, spec, plan.sizes));
  plan.qo_indptr.assign(batch.qo_indptr.begin(), batch.qo_indptr.end());
  plan.kv_indptr.assign(batch.kv_indptr.begin(), batch.kv_indptr.end());
  plan.kv_indices.assign(batch.kv_indices.begin(), batch.kv_indices.end());
  plan.custom_mask.assign(batch.custom_mask.begin(), batch.custom_mask.end());
  plan.custom_mask_indptr.assign(batch.custom_mask_indptr.begin(), batch.custom_mask_indptr.end());
  plan.kv_len.clear();
  plan.kv_offset.clear();
  plan.items.clear();
  plan.score_products.clear();  // their leading dimension is the longest request's
  plan.value_products.clear();
  if (plan.matmul == nullptr) plan.matmul = std::make_unique<kernels::ops::Matmul>(num_threads);
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    plan.kv_len.push_back(batch.kv_len(i));
    plan.kv_offset.push_back(batch.first_kv_position(i));
    if (batch.qo_len(i) == 0) continue;
    if (Status s =
            add_products_of(spec, batch.qo_len(i) * spec.gqa_group_size(), batch.kv_len(i), plan);
        !s.ok())
      return s;
    for (std::int32_t h = 0; h < spec.num_kv_heads; ++h)
      plan.items.push_back({.request = static_cast<std::int32_t>(i), .kv_head = h});
  }
  const auto cost = [&](const Item& item) {
    const auto i = static_cast<std::size_t>(item.request);
    return (plan.kv_len[i] + 1) * (plan.qo_indptr[i + 1] - plan.qo_indptr[i]);
  };
  std::stable_sort(plan.items.begin(), plan.items.end(),
                   [&](const Item& a, const Item& b) { return cost(a) > cost(b); });
  return {};
}

}  // namespace attune::backends::torch_native
