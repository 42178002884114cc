// What sparse_mla adds to the checks of <attune/validate.hpp> (layer attention).
#pragma once

#include <cstdint>

#include <attune/backend.hpp>
#include <attune/spec.hpp>
#include <attune/validate.hpp>

namespace attune::attention {

[[nodiscard]] Status validate_indexer(const AttentionSpec& spec);

/// LayerCall::sparse for run(): lists to write, with the indexer's tensors, or to read.
[[nodiscard]] Status validate_sparse_run(const LayerCall& call, const BatchFacts& facts,
                                         const AttentionSpec& spec, std::int32_t page_size);

/// Likewise for append_kv(); `pages` of the latent cache.
[[nodiscard]] Status validate_sparse_append(const LayerCall& call, const AttentionSpec& spec,
                                            std::int32_t page_size, std::int64_t pages);

}  // namespace attune::attention
