// What dsv4 adds to the checks of <attune/validate.hpp> (layer attention): the second page table and
// the second cache.
#pragma once

#include <cstdint>

#include <attune/backend.hpp>
#include <attune/spec.hpp>
#include <attune/validate.hpp>

namespace attune::attention {

/// Of any variant: others have no compress_ratio.
[[nodiscard]] Status validate_compressed_spec(const AttentionSpec& spec);

/// The pages hold whole compressed keys.
[[nodiscard]] Status validate_compressed_pages(const AttentionSpec& spec, std::int32_t page_size);

/// BatchView::compressed of a batch that is valid otherwise; notes in `facts` what it holds.
[[nodiscard]] Status validate_compressed_batch(const BatchView& batch, const AttentionSpec& spec,
                                               BatchFacts& facts);

/// LayerCall::compressed, and the indexer's part, for run() and for append_kv().
[[nodiscard]] Status validate_compressed_run(const LayerCall& call, const BatchFacts& facts,
                                             const AttentionSpec& spec, std::int32_t page_size);
[[nodiscard]] Status validate_compressed_append(const LayerCall& call, const AttentionSpec& spec,
                                                std::int32_t page_size);

}  // namespace attune::attention
