// What backends refuse that read kept keys by slot (page * page_size + offset), in 32-bit lists.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include <attune/backend.hpp>
#include <attune/validate.hpp>

#include "base/join.hpp"

namespace attune::backends::shared {

/// Kept keys of all tokens, and slots of all pages, are counted in 31 bits.
[[nodiscard]] inline Status check_kept_counts(std::string_view backend,
                                              const attention::BatchFacts& facts,
                                              const AttentionSpec& spec, std::int32_t page_size) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (facts.num_qo_tokens <= kMost / spec.index_topk && facts.max_page_id < kMost / page_size)
    return {};
  return unsupported(
      base::join(backend, " counts kept keys and their slots in 31 bits: ", facts.num_qo_tokens,
                 " tokens of ", spec.index_topk, " keys over ", facts.max_page_id + 1, " pages"));
}

/// A slot leads to a latent only where pages lie side by side.
[[nodiscard]] inline Status check_pages_adjoin(std::string_view backend, const TensorView& k_cache,
                                               std::int32_t page_size) {
  if (!k_cache.defined() || k_cache.stride[0] == page_size * k_cache.stride[1]) return {};
  return unsupported(base::join(
      backend, " gathers kept latents by slot: pages of k_cache lie together, ",
      page_size * k_cache.stride[1], " elements from one to the next, have ", k_cache.stride[0]));
}

}  // namespace attune::backends::shared
