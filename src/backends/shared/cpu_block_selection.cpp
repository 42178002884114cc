#include "backends/shared/cpu_block_selection.hpp"

#include <algorithm>
#include <numeric>

#include "base/math.hpp"
#include "kernels/top_k/top_k.hpp"

namespace attune::backends::shared {
namespace {

/// Keys that a thread scores at a time where there are fewer tokens than threads.
constexpr std::int64_t kScoreChunk = 1024;

/// One call: what its work items share.
struct Selector {
  const AttentionSpec& spec;
  const kernels::block_scores::KernelRow& kernel;
  const SelectionPlan& plan;
  const BlockPages& pages;
  const SparseCall& call;
  std::int64_t tokens;
  bool by_token;              ///< a thread scores all blocks of a token
  std::int64_t chunk_blocks;  ///< else: so many at a time …
  std::int64_t chunks;        ///< … of the longest token's

  [[nodiscard]] std::int64_t seen_by(std::int64_t token) const {
    return plan.seen[static_cast<std::size_t>(token)];
  }
  [[nodiscard]] std::int64_t blocks_of(std::int64_t token) const {
    return base::ceil_div<std::int64_t>(seen_by(token), spec.index_block_size);
  }
  [[nodiscard]] std::int32_t first_entry(std::int64_t token) const {
    const std::int32_t request = plan.request_of_token[static_cast<std::size_t>(token)];
    return plan.kv_indptr[static_cast<std::size_t>(request)];
  }
  [[nodiscard]] std::int64_t score_stride() const {
    return plan.sizes.max_keys / spec.num_kv_heads;
  }
  [[nodiscard]] float* scores_of(std::int64_t token, int thread) const {
    return plan.parts.scores + (by_token ? thread : token) * plan.sizes.max_keys;
  }
  [[nodiscard]] std::int32_t* list_of(std::int64_t token, int kv_head) const {
    const TensorView& lists = call.topk_indices;
    return lists.as<std::int32_t>() + token * lists.stride[0] + kv_head * lists.stride[1];
  }

  void score(std::int64_t token, std::int64_t first, std::int64_t last, int thread) const {
    const TensorView& keys = plan.ragged ? call.index_k : call.index_cache;
    kernels::block_scores::Params p{
        .q = call.index_q.as<const char>() +
             token * call.index_q.stride[0] * static_cast<std::int64_t>(size_of(spec.q_dtype)),
        .q_dtype = spec.q_dtype,
        .q_head_stride = call.index_q.stride[1],
        .num_heads = spec.index_num_heads,
        .head_dim = spec.index_head_dim,
        .keys = keys.data,
        .page_stride = keys.stride[0],
        .num_keys = seen_by(token),
        .block_size = spec.index_block_size,
        .scores = scores_of(token, thread),
        .score_stride = score_stride()};
    if (plan.ragged) {
      p.keys = keys.as<const char>() + first_entry(token) * keys.stride[0] *
                                           static_cast<std::int64_t>(size_of(spec.index_dtype));
    } else {
      p.token_stride = keys.stride[1];
      p.page_size = static_cast<std::int32_t>(plan.page_size);
      p.pages = plan.kv_indices.data() + first_entry(token);
    }
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
      if (by_token && !keeps_all(token)) score(token, open.begin, open.end, thread);
      for (int kv_head = 0; kv_head < spec.num_kv_heads; ++kv_head)
        fill_list(token, scores_of(token, thread) + kv_head * score_stride(),
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
    const std::int64_t seen = seen_by(token);
    const std::int64_t list = token * spec.num_kv_heads + kv_head;
    std::int32_t* const slots = plan.parts.slots + list * plan.sizes.topk;
    const std::int64_t count = collect(list_of(token, kv_head), blocks_of(token), slots);
    attention::KeyRange& kept = plan.parts.kept[kv_head * tokens + token];
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
        plan.kv_indices[static_cast<std::size_t>(first_entry(token) + key / plan.page_size)];
    return static_cast<std::int32_t>(page * pages.per_page + key % plan.page_size / pages.keys);
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
  const auto tokens = static_cast<std::int64_t>(plan.seen.size());
  const std::int64_t chunk_blocks = std::max<std::int64_t>(1, kScoreChunk / spec.index_block_size);
  const std::int64_t longest =
      base::ceil_div<std::int64_t>(plan.longest_seen, spec.index_block_size);
  const Selector selector{
      .spec = spec,
      .kernel = kernel,
      .plan = plan,
      .pages = pages,
      .call = call,
      .tokens = tokens,
      .by_token = tokens >= plan.sizes.threads,
      .chunk_blocks = chunk_blocks,
      .chunks = std::max<std::int64_t>(1, base::ceil_div(longest, chunk_blocks))};
  if (call.index_q.defined() && !selector.by_token)
    for_each<&Selector::score_chunk>(tokens * selector.chunks, selector, executor);
  for_each<&Selector::choose>(tokens, selector, executor);
}

}  // namespace attune::backends::shared
