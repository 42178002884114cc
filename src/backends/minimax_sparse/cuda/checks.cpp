#include "backends/minimax_sparse/cuda/checks.hpp"

#include <limits>
#include <numeric>

#include "backends/minimax_sparse/descriptor.hpp"
#include "backends/shared/cuda/cache_keys.hpp"
#include "base/join.hpp"
#include "kernels/block_lists/sm80/launch.hpp"
#include "kernels/block_scores/sm80/launch.hpp"

namespace attune::backends::minimax_sparse {
namespace {

namespace lists = kernels::block_lists::sm80;
namespace scores = kernels::block_scores::sm80;
using base::join;

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

Status check_indexer(const AttentionSpec& spec) {
  if (spec.index_dtype != spec.q_dtype)
    return unsupported(join("minimax_sparse wants index keys in the type of q, ",
                            name(spec.q_dtype), ", have ", name(spec.index_dtype)));
  if (!scores::serves(spec.index_num_heads, spec.index_head_dim))
    return unsupported(join("minimax_sparse scores up to ", scores::kMostColumns,
                            " index heads of ", scores::kMostDim, " numbers, have ",
                            spec.index_num_heads, " of ", spec.index_head_dim));
  if (spec.index_topk > lists::kMostTopk)
    return unsupported(
        join("minimax_sparse keeps ", lists::kMostTopk, " blocks at most, have ", spec.index_topk));
  return {};
}

}  // namespace

Status check_context(const BackendContext& context) {
  const AttentionSpec& spec = context.spec;
  if (context.device.kind != DeviceKind::cuda)
    return unsupported(
        join("minimax_sparse runs on cuda here, not on ", name(context.device.kind)));
  if (spec.variant != Variant::minimax_sparse)
    return unsupported(join("minimax_sparse serves minimax_sparse, not ", name(spec.variant)));
  if (Status s = attention::validate_spec(spec); !s.ok()) return s;
  if (context.batch_invariant)
    return unsupported(
        "minimax_sparse cuts work by the whole batch: a request's bits may depend on its "
        "neighbours");
  return check_indexer(spec);
}

std::int32_t part_keys(const AttentionSpec& spec, std::int32_t page_size) {
  return std::gcd(page_size, spec.index_block_size);
}

Status check_counts(const AttentionSpec& spec, std::int32_t page_size, std::int64_t tokens) {
  const std::int64_t a_token = std::int64_t{spec.num_kv_heads} * spec.index_topk *
                               (spec.index_block_size / part_keys(spec, page_size));
  if (tokens <= kMost / a_token) return {};
  return unsupported(join("minimax_sparse counts pages of kept blocks in 31 bits: ", tokens,
                          " tokens of ", a_token, " pages"));
}

Result<PartedCache> part_cache(const BackendContext& context, const LayerCall& call,
                               const attention::BatchFacts& facts) {
  PartedCache parted;
  attention::PagedKv& kv = parted.kv;
  kv =
      shared::cuda::cache_keys(call, context.kv_layout, part_keys(context.spec, context.page_size));
  if (kv.page_size == context.page_size || facts.max_page_id < 0) return parted;
  // A part of a page is found by its number only where pages are whole multiples of it.
  const std::int64_t part = kv.page_size * kv.k_token_stride;
  const std::int64_t parts = kv.k_page_stride / part;
  if (kv.k_page_stride % part != 0 || kv.v_page_stride != parts * kv.page_size * kv.v_token_stride)
    return unsupported(
        join("minimax_sparse finds blocks of ", context.spec.index_block_size, " keys in pages of ",
             context.page_size, " by parts of ", kv.page_size,
             ": pages of k_cache and v_cache must lie as many of these apart, have strides of ",
             kv.k_page_stride, " and ", kv.v_page_stride, " elements"));
  if (facts.max_page_id >= kMost / parts)
    return unsupported(join("minimax_sparse counts parts of pages in 31 bits: page id ",
                            facts.max_page_id, " times ", parts));
  parted.parts_of_page = static_cast<std::int32_t>(parts);
  kv.k_page_stride = kv.page_size * kv.k_token_stride;
  kv.v_page_stride = kv.page_size * kv.v_token_stride;
  return parted;
}

}  // namespace attune::backends::minimax_sparse
