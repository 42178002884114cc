#include "backends/shared/cpu_selection.hpp"

#include <algorithm>

#include "backends/shared/cpu_selector.hpp"
#include "backends/shared/for_each.hpp"
#include "base/math.hpp"
#include "kernels/top_k/top_k.hpp"

namespace attune::backends::shared {
namespace {

/// One call: what its work items share.
struct Selector {
  const AttentionSpec& spec;
  const kernels::index_scores::KernelRow& kernel;
  const SelectionPlan& plan;
  const SparseCall& call;
  std::int64_t chunks;  ///< of the longest token's keys, where tokens are few

  [[nodiscard]] std::int32_t* list_of(std::int64_t token) const {
    return call.topk_indices.as<std::int32_t>() + token * call.topk_indices.stride[0];
  }

  void score(std::int64_t token, std::int64_t first, std::int64_t last, int thread) const {
    auto p = index_params<kernels::index_scores::Params>(spec, plan, call, token);
    p.weights = call.index_weights.as<const float>() + token * call.index_weights.stride[0];
    kernel.run(p, first, last, plan.scores_of(token, thread),
               plan.parts.index_scratch + thread * plan.sizes.index_floats);
  }

  /// Where nothing is to be left out nothing is scored.
  [[nodiscard]] bool keeps_all(std::int64_t token) const {
    return plan.seen_by(token) <= spec.index_topk;
  }

  void score_chunk(std::int64_t item, int thread) const {
    const std::int64_t token = item / chunks;
    const std::int64_t first = item % chunks * kScoreChunk;
    const std::int64_t last = std::min(first + kScoreChunk, plan.seen_by(token));
    if (first < last && !keeps_all(token)) score(token, first, last, thread);
  }

  void choose(std::int64_t token, int thread) const {
    if (plan.scores_by_token() && !keeps_all(token)) score(token, 0, plan.seen_by(token), thread);
    std::int32_t* const list = list_of(token);
    const std::int64_t kept = kernels::top_k::keep_largest(
        plan.scores_of(token, thread), plan.seen_by(token), spec.index_topk, list);
    std::fill(list + kept, list + spec.index_topk, -1);
  }

  void find_slots(std::int64_t token, int /*thread*/) const {
    const std::int32_t* const list = list_of(token);
    const std::int64_t seen = plan.seen_by(token);
    const auto page_size = static_cast<std::int32_t>(plan.page_size);
    std::int32_t* const slots = plan.parts.slots + token * spec.index_topk;
    const std::int32_t first_entry = plan.first_entry(token);
    const std::int32_t* const pages = plan.ragged ? nullptr : plan.kv_indices.data() + first_entry;
    std::int64_t kept = 0;
    for (std::int64_t n = 0; n < spec.index_topk; ++n) {
      const std::int32_t key = list[n];
      if (key < 0 || key >= seen) continue;
      slots[kept++] = pages == nullptr ? first_entry + key
                                       : pages[key / page_size] * page_size + key % page_size;
    }
    plan.parts.kept[token] = {0, kept};
  }
};

}  // namespace

SelectionSizes selection_sizes(const AttentionSpec& spec,
                               const kernels::index_scores::KernelRow& kernel, int num_threads,
                               std::int64_t tokens, std::int64_t max_keys) {
  return {.threads = num_threads,
          .tokens = tokens,
          .max_keys = max_keys,
          .topk = spec.index_topk,
          .index_floats = kernels::index_scores::scratch_floats(spec.index_num_heads,
                                                                spec.index_head_dim, kernel.lanes)};
}

SelectionParts lay_out(plan::WorkspaceCutter& cut, const SelectionSizes& n) {
  return {.index_scratch = cut.take<float>(n.threads * n.index_floats),
          .scores = cut.take<float>(n.threads * n.max_keys),
          .slots = cut.take<std::int32_t>(n.tokens * n.topk),
          .kept = cut.take<attention::KeyRange>(n.tokens)};
}

void SelectionPlan::clear() {
  seen.clear();
  request_of_token.clear();
  list_indptr.assign(1, 0);
  longest_seen = 0;
}

void SelectionPlan::add_query(std::int64_t request, std::int64_t keys_seen) {
  request_of_token.push_back(static_cast<std::int32_t>(request));
  seen.push_back(keys_seen);
  longest_seen = std::max(longest_seen, keys_seen);
  list_indptr.push_back(list_indptr.back() + static_cast<std::int32_t>(sizes.topk));
}

void select_keys(const AttentionSpec& spec, const kernels::index_scores::KernelRow& kernel,
                 const SelectionPlan& plan, const SparseCall& call, Executor& executor) {
  const std::int64_t tokens = plan.num_tokens();
  const Selector selector{
      .spec = spec,
      .kernel = kernel,
      .plan = plan,
      .call = call,
      .chunks = base::ceil_div(std::max<std::int64_t>(plan.longest_seen, 1), kScoreChunk)};
  if (call.index_q.defined()) {
    if (!plan.scores_by_token())
      for_each<&Selector::score_chunk>(executor, tokens * selector.chunks, selector);
    for_each<&Selector::choose>(executor, tokens, selector);
  }
  for_each<&Selector::find_slots>(executor, tokens, selector);
}

}  // namespace attune::backends::shared
