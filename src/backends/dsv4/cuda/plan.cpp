#include "backends/dsv4/cuda/plan.hpp"

#include <algorithm>

#include "attention/mask.hpp"
#include "base/math.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::dsv4 {
namespace {

Parts lay_out(plan::WorkspaceCutter& cut, const Sizes& n) {
  Parts parts;
  shared::cuda::cut_partials(cut, n.rules, n.limits, n.dim, parts);
  parts.scores = cut.take<float>(n.scores);
  parts.lists = cut.take<std::int32_t>(n.tokens * n.list_keys());
  parts.lengths = cut.take<std::int32_t>(n.tokens);
  shared::cuda::cut_lists(cut, n.rules, n.limits, parts);
  parts.tokens = cut.take<kernels::key_lists::sm80::Token>(n.tokens);
  const std::int64_t scored = n.topk > 0 ? n.tokens : 0;
  shared::cuda::cut_selection(cut, scored, n.score_rows(), n.score_blocks, parts);
  parts.window_keys = cut.take<std::int32_t>(scored);
  parts.kv_indices = cut.take<std::int32_t>(n.kv_entries);
  return parts;
}

/// Page ids of both tables; answers where those of windows begin.
std::int32_t place_pages(const AttentionSpec& spec, const BatchView& batch, Dsv4Plan& plan) {
  plan.kv_indices.clear();
  for (std::int64_t i = 0; spec.compress_ratio > 0 && i < batch.batch_size(); ++i) {
    const std::int64_t keys = (batch.first_kv_position(i) + batch.kv_len(i)) / spec.compress_ratio;
    const std::int64_t pages =
        base::ceil_div<std::int64_t>(keys, batch.page_size / spec.compress_ratio);
    const auto begin = batch.compressed.kv_indices.begin() +
                       batch.compressed.kv_indptr[static_cast<std::size_t>(i)];
    plan.kv_indices.insert(plan.kv_indices.end(), begin, begin + pages);
  }
  const auto windows = static_cast<std::int32_t>(plan.kv_indices.size());
  plan.kv_indices.insert(plan.kv_indices.end(), batch.kv_indices.begin(), batch.kv_indices.end());
  return windows;
}

/// What each token sees, and tokens as requests over the keys they keep at most.
void place_tokens(const AttentionSpec& spec, const BatchView& batch, Dsv4Plan& plan) {
  const attention::MaskRule rule{.causal = true, .window_left = spec.window_left};
  const std::int32_t windows = place_pages(spec, batch, plan);
  const auto topk = static_cast<std::int32_t>(plan.sizes.topk);
  plan.tokens.clear();
  plan.seen.clear();
  plan.entry_begin.clear();
  plan.window_keys.clear();
  plan.token_indptr.assign(1, 0);
  plan.key_indptr.assign(1, 0);
  std::int32_t first_entry = 0;
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t first = batch.first_kv_position(i);
    const std::int64_t end = first + batch.kv_len(i);
    for (std::int64_t p = end - batch.qo_len(i); p < end; ++p) {
      const attention::KeyRange window = attention::visible_range(rule, p, first, end);
      const auto seen = static_cast<std::int32_t>(
          spec.compress_ratio == 0 || p < 0 ? 0 : (p + 1) / spec.compress_ratio);
      plan.tokens.push_back({.window_begin = static_cast<std::int32_t>(window.begin - first),
                             .window_keys = static_cast<std::int32_t>(window.end - window.begin),
                             .window_entry = windows + batch.kv_indptr[static_cast<std::size_t>(i)],
                             .first_keys = topk > 0 ? 0 : seen,
                             .first_entry = first_entry});
      plan.seen.push_back(seen);
      plan.entry_begin.push_back(first_entry);
      plan.window_keys.push_back(plan.tokens.back().window_keys);
      plan.token_indptr.push_back(plan.token_indptr.back() + 1);
      // What is expected: a list that is given may be shorter, or longer where it names keys twice.
      plan.key_indptr.push_back(plan.key_indptr.back() + plan.tokens.back().window_keys +
                                (topk > 0 ? std::min(seen, topk) : seen));
    }
    if (spec.compress_ratio > 0)
      first_entry += static_cast<std::int32_t>(base::ceil_div<std::int64_t>(
          end / spec.compress_ratio, batch.page_size / spec.compress_ratio));
  }
}

}  // namespace

std::size_t workspace_bytes(const Sizes& sizes) {
  plan::WorkspaceCutter count;
  lay_out(count, sizes);
  return count.bytes();
}

Parts lay_out(void* workspace, const Sizes& sizes) {
  plan::WorkspaceCutter cut(workspace);
  return lay_out(cut, sizes);
}

Status make_image(const AttentionSpec& spec, const BatchView& batch, bool first, Dsv4Plan& plan) {
  place_tokens(spec, batch, plan);
  shared::cuda::list_token_work(plan.token_indptr, plan.key_indptr, plan.sizes.list_keys(),
                                plan.sizes.rules, first, plan.shape, plan.list);
  if (Status s = shared::cuda::check_room(plan.sizes.limits, plan.sizes.kv_entries, plan.shape,
                                          plan.list, plan.kv_indices.size());
      !s.ok())
    return s;
  if (Status s = shared::cuda::check_seen(plan.selection, plan.seen); !s.ok()) return s;
  shared::cuda::begin_image(plan.parts, plan.list, plan.parts.kv_indices + plan.kv_indices.size(),
                            plan.image);
  plan.image.put(plan.parts.tokens, plan.tokens);
  plan.image.put(plan.parts.kv_indices, plan.kv_indices);
  if (plan.sizes.topk == 0) return {};
  shared::cuda::put_selection(plan.seen, plan.entry_begin, plan.selection, plan.image);
  plan.image.put(plan.parts.window_keys, plan.window_keys);
  return {};
}

}  // namespace attune::backends::dsv4
