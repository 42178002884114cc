#include "backends/shared/cpu_selection.hpp"

#include <algorithm>

#include "base/math.hpp"
#include "kernels/top_k/top_k.hpp"

namespace attune::backends::shared {
namespace {

/// Keys that a thread scores at a time where there are fewer tokens than threads.
constexpr std::int64_t kScoreChunk = 1024;

/// One call: what its work items share.
struct Selector {
  const AttentionSpec& spec;
  const kernels::index_scores::KernelRow& kernel;
  const SelectionPlan& plan;
  const SparseCall& call;
  bool by_token;        ///< a thread scores all keys of a token, into its own row of scores
  std::int64_t chunks;  ///< else: of the longest token's keys

  [[nodiscard]] const std::int32_t* pages_of(std::int64_t token) const {
    return plan.kv_indices.data() + first_entry(token);
  }
  [[nodiscard]] std::int32_t first_entry(std::int64_t token) const {
    const std::int32_t request = plan.request_of_token[static_cast<std::size_t>(token)];
    return plan.kv_indptr[static_cast<std::size_t>(request)];
  }
  [[nodiscard]] float* scores_of(std::int64_t token, int thread) const {
    return plan.parts.scores + (by_token ? thread : token) * plan.sizes.max_keys;
  }
  [[nodiscard]] std::int64_t seen_by(std::int64_t token) const {
    return plan.seen[static_cast<std::size_t>(token)];
  }
  [[nodiscard]] std::int32_t* list_of(std::int64_t token) const {
    return call.topk_indices.as<std::int32_t>() + token * call.topk_indices.stride[0];
  }

  void score(std::int64_t token, std::int64_t first, std::int64_t last, int thread) const {
    const TensorView& keys = plan.ragged ? call.index_k : call.index_cache;
    kernels::index_scores::Params p{
        .q = call.index_q.as<const char>() +
             token * call.index_q.stride[0] * static_cast<std::int64_t>(size_of(spec.q_dtype)),
        .q_dtype = spec.q_dtype,
        .q_head_stride = call.index_q.stride[1],
        .weights = call.index_weights.as<const float>() + token * call.index_weights.stride[0],
        .num_heads = spec.index_num_heads,
        .head_dim = spec.index_head_dim,
        .keys = keys.data,
        .page_stride = keys.stride[0]};
    if (plan.ragged) {
      p.keys = keys.as<const char>() + first_entry(token) * keys.stride[0] *
                                           static_cast<std::int64_t>(size_of(spec.index_dtype));
    } else {
      p.token_stride = keys.stride[1];
      p.page_size = static_cast<std::int32_t>(plan.page_size);
      p.pages = pages_of(token);
    }
    kernel.run(p, first, last, scores_of(token, thread),
               plan.parts.index_scratch + thread * plan.sizes.index_floats);
  }

  /// Where nothing is to be left out nothing is scored.
  [[nodiscard]] bool keeps_all(std::int64_t token) const {
    return seen_by(token) <= spec.index_topk;
  }

  void score_chunk(std::int64_t item, int thread) const {
    const std::int64_t token = item / chunks;
    const std::int64_t first = item % chunks * kScoreChunk;
    const std::int64_t last = std::min(first + kScoreChunk, seen_by(token));
    if (first < last && !keeps_all(token)) score(token, first, last, thread);
  }

  void choose(std::int64_t token, int thread) const {
    if (by_token && !keeps_all(token)) score(token, 0, seen_by(token), thread);
    std::int32_t* const list = list_of(token);
    const std::int64_t kept = kernels::top_k::keep_largest(scores_of(token, thread), seen_by(token),
                                                           spec.index_topk, list);
    std::fill(list + kept, list + spec.index_topk, -1);
  }

  void find_slots(std::int64_t token, int /*thread*/) const {
    const std::int32_t* const list = list_of(token);
    const std::int64_t seen = seen_by(token);
    const auto page_size = static_cast<std::int32_t>(plan.page_size);
    std::int32_t* const slots = plan.parts.slots + token * spec.index_topk;
    const std::int32_t* const pages = plan.ragged ? nullptr : pages_of(token);
    std::int64_t kept = 0;
    for (std::int64_t n = 0; n < spec.index_topk; ++n) {
      const std::int32_t key = list[n];
      if (key < 0 || key >= seen) continue;
      slots[kept++] = pages == nullptr ? first_entry(token) + key
                                       : pages[key / page_size] * page_size + key % page_size;
    }
    plan.parts.kept[token] = {0, kept};
  }
};

template <auto kAct>
void for_each(std::int64_t items, const Selector& selector, Executor& executor) {
  executor.run(
      items,
      [](void* context, std::int64_t item, int thread) {
        (static_cast<const Selector*>(context)->*kAct)(item, thread);
      },
      const_cast<Selector*>(&selector));
}

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
  const auto tokens = static_cast<std::int64_t>(plan.seen.size());
  const Selector selector{
      .spec = spec,
      .kernel = kernel,
      .plan = plan,
      .call = call,
      .by_token = tokens >= plan.sizes.threads,
      .chunks = base::ceil_div(std::max<std::int64_t>(plan.longest_seen, 1), kScoreChunk)};
  if (call.index_q.defined()) {
    if (!selector.by_token)
      for_each<&Selector::score_chunk>(tokens * selector.chunks, selector, executor);
    for_each<&Selector::choose>(tokens, selector, executor);
  }
  for_each<&Selector::find_slots>(tokens, selector, executor);
}

}  // namespace attune::backends::shared
