#include "backends/shared/cpu_block_selection.hpp"

#include <algorithm>
#include <numeric>

#include "backends/shared/cpu_selector.hpp"
#include "backends/shared/for_each.hpp"
#include "base/math.hpp"
#include "kernels/top_k/top_k.hpp"

namespace attune::backends::shared {
namespace {

/// One call: what its work items share.
struct Selector {
  const AttentionSpec& spec;
  const kernels::block_scores::KernelRow& kernel;
  const SelectionPlan& plan;
  const BlockPages& pages;
  const SparseCall& call;
  std::int64_t chunk_blocks;  ///< where tokens are few, a thread scores so many at a time …
  std::int64_t chunks;        ///< … of the longest token's

  [[nodiscard]] std::int64_t blocks_of(std::int64_t token) const {
    return base::ceil_div<std::int64_t>(plan.seen_by(token), spec.index_block_size);
  }
  [[nodiscard]] std::int64_t score_stride() const {
    return plan.sizes.max_keys / spec.num_kv_heads;
  }
  [[nodiscard]] std::int32_t* list_of(std::int64_t token, int kv_head) const {
    const TensorView& lists = call.topk_indices;
    return lists.as<std::int32_t>() + token * lists.stride[0] + kv_head * lists.stride[1];
  }

  void score(std::int64_t token, std::int64_t first, std::int64_t last, int thread) const {
    auto p = index_params<kernels::block_scores::Params>(spec, plan, call, token);
    p.num_keys = plan.seen_by(token);
    p.block_size = spec.index_block_size;
    p.scores = plan.scores_of(token, thread);
    p.score_stride = score_stride();
    kernel.run(p, first, last, plan.parts.index_scratch + thread * plan.sizes.index_floats);
  }

  /// Where nothing is to be left out nothing is scored.
  [[nodiscard]] bool keeps_all(std::int64_t token) const {
    return blocks_of(token) <= spec.index_topk;
  }
  /// Blocks that are chosen by their scores: not the first ones and not the last.
  [[nodiscard]] attention::KeyRange open_blocks(std::int64_t token) const {
    return {spec.index_init_blocks, blocks_of(token) - spec.index_local_blocks};
  }

  void score_chunk(std::int64_t item, int thread) const {
    const std::int64_t token = item / chunks;
    if (keeps_all(token)) return;
    const attention::KeyRange open = open_blocks(token);
    const std::int64_t first = std::max(open.begin, item % chunks * chunk_blocks);
    const std::int64_t last = std::min(open.end, (item % chunks + 1) * chunk_blocks);
    if (first < last) score(token, first, last, thread);
  }

  void choose(std::int64_t token, int thread) const {
    if (call.index_q.defined()) {
      const attention::KeyRange open = open_blocks(token);
      if (plan.scores_by_token() && !keeps_all(token)) score(token, open.begin, open.end, thread);
      for (int kv_head = 0; kv_head < spec.num_kv_heads; ++kv_head)
        fill_list(token, plan.scores_of(token, thread) + kv_head * score_stride(),
                  list_of(token, kv_head));
    }
    for (int kv_head = 0; kv_head < spec.num_kv_heads; ++kv_head) find_pages(token, kv_head);
  }

  void fill_list(std::int64_t token, const float* scores, std::int32_t* list) const {
    const std::int64_t blocks = blocks_of(token);
    std::int32_t* const end = list + spec.index_topk;
    if (keeps_all(token)) {
      std::iota(list, list + blocks, 0);
      std::fill(list + blocks, end, -1);
      return;
    }
    const attention::KeyRange open = open_blocks(token);
    const std::int64_t always = spec.index_init_blocks + spec.index_local_blocks;
    std::iota(list, list + open.begin, 0);
    std::int32_t* const chosen = list + open.begin;
    std::int32_t* const last = end - spec.index_local_blocks;
    kernels::top_k::keep_largest(scores + open.begin, open.end - open.begin,
                                 spec.index_topk - always, chosen);
    for (std::int32_t* block = chosen; block != last; ++block)
      *block += static_cast<std::int32_t>(open.begin);
    std::iota(last, end, static_cast<std::int32_t>(open.end));
  }

  /// The list's blocks, ascending, written where its pages will be; how many there are.
  [[nodiscard]] std::int64_t collect(const std::int32_t* list, std::int64_t blocks,
                                     std::int32_t* out) const {
    std::int32_t* const end =
        std::copy_if(list, list + spec.index_topk, out,
                     [blocks](std::int32_t block) { return block >= 0 && block < blocks; });
    std::sort(out, end);
    return std::unique(out, end) - out;
  }

  void find_pages(std::int64_t token, int kv_head) const {
    const std::int64_t seen = plan.seen_by(token);
    const std::int64_t list = token * spec.num_kv_heads + kv_head;
    std::int32_t* const slots = plan.parts.slots + list * plan.sizes.topk;
    const std::int64_t count = collect(list_of(token, kv_head), blocks_of(token), slots);
    attention::KeyRange& kept = plan.parts.kept[kv_head * plan.num_tokens() + token];
    kept = {};
    if (count == 0) return;
    // From the last to the first: pages are at least as many as the blocks they take the place of.
    const std::int64_t block_size = spec.index_block_size;
    const std::int64_t a_block = block_size / pages.keys;
    const std::int64_t last_block = slots[count - 1];
    const std::int64_t last_keys = std::min(block_size, seen - last_block * block_size);
    kept.end = (count - 1) * block_size + last_keys;
    for (std::int64_t n = count; n-- > 0;) {
      const std::int64_t first_key = slots[n] * block_size;
      const std::int64_t used = n + 1 == count ? base::ceil_div(last_keys, pages.keys) : a_block;
      for (std::int64_t i = used; i-- > 0;)
        slots[n * a_block + i] = page_at(token, first_key + i * pages.keys);
    }
  }

  /// The page that begins at a key of the request.
  [[nodiscard]] std::int32_t page_at(std::int64_t token, std::int64_t key) const {
    if (plan.ragged) return static_cast<std::int32_t>(key / pages.keys);
    const std::int32_t page =
        plan.kv_indices[static_cast<std::size_t>(plan.first_entry(token) + key / plan.page_size)];
    return static_cast<std::int32_t>(page * pages.per_page + key % plan.page_size / pages.keys);
  }
};

}  // namespace

std::int64_t block_page_keys(const AttentionSpec& spec, std::int64_t page_size, bool ragged) {
  if (ragged) return spec.index_block_size;
  return std::gcd(page_size, std::int64_t{spec.index_block_size});
}

SelectionSizes block_selection_sizes(const AttentionSpec& spec,
                                     const kernels::block_scores::KernelRow& kernel,
                                     int num_threads, std::int64_t tokens, std::int64_t max_keys,
                                     std::int64_t page_size) {
  const std::int64_t blocks = base::ceil_div<std::int64_t>(max_keys, spec.index_block_size);
  return {.threads = num_threads,
          .tokens = tokens * spec.num_kv_heads,
          .max_keys = blocks * spec.num_kv_heads,
          .topk = std::int64_t{spec.index_topk} * spec.index_block_size /
                  block_page_keys(spec, page_size, false),
          .index_floats = kernels::block_scores::scratch_floats(spec.index_num_heads,
                                                                spec.index_head_dim, kernel.lanes)};
}

void place_lists(const AttentionSpec& spec, SelectionPlan& plan) {
  const std::size_t lists = plan.seen.size() * static_cast<std::size_t>(spec.num_kv_heads);
  plan.list_indptr.resize(lists + 1);
  for (std::size_t list = 0; list <= lists; ++list)
    plan.list_indptr[list] =
        static_cast<std::int32_t>(static_cast<std::int64_t>(list) * plan.sizes.topk);
}

void select_blocks(const AttentionSpec& spec, const kernels::block_scores::KernelRow& kernel,
                   const SelectionPlan& plan, const BlockPages& pages, const SparseCall& call,
                   Executor& executor) {
  const std::int64_t tokens = plan.num_tokens();
  const std::int64_t chunk_blocks = std::max<std::int64_t>(1, kScoreChunk / spec.index_block_size);
  const std::int64_t longest =
      base::ceil_div<std::int64_t>(plan.longest_seen, spec.index_block_size);
  const Selector selector{
      .spec = spec,
      .kernel = kernel,
      .plan = plan,
      .pages = pages,
      .call = call,
      .chunk_blocks = chunk_blocks,
      .chunks = std::max<std::int64_t>(1, base::ceil_div(longest, chunk_blocks))};
  if (call.index_q.defined() && !plan.scores_by_token())
    for_each<&Selector::score_chunk>(executor, tokens * selector.chunks, selector);
  for_each<&Selector::choose>(executor, tokens, selector);
}

}  // namespace attune::backends::shared
