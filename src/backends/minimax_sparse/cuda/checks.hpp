// What minimax_sparse's kernels cannot, asked before anything of CUDA is touched; and what they read
// in place of the caller's pages.
#pragma once

#include <cstdint>

#include <attune/backend.hpp>
#include <attune/status.hpp>
#include <attune/validate.hpp>

#include "attention/paged_kv.hpp"

namespace attune::backends::minimax_sparse {

[[nodiscard]] Status check_context(const BackendContext& context);

/// The largest pages that blocks and pages of the cache are both made of.
[[nodiscard]] std::int32_t part_keys(const AttentionSpec& spec, std::int32_t page_size);

/// Kept pages of all tokens are counted in 31 bits.
[[nodiscard]] Status check_counts(const AttentionSpec& spec, std::int32_t page_size,
                                  std::int64_t tokens);

/// A call's cache in pages of part_keys keys.
struct PartedCache {
  attention::PagedKv kv;           ///< but for the indices
  std::int32_t parts_of_page = 1;  ///< page p of the cache begins with page p * parts_of_page
};
[[nodiscard]] Result<PartedCache> part_cache(const BackendContext& context, const LayerCall& call,
                                             const attention::BatchFacts& facts);

}  // namespace attune::backends::minimax_sparse
