// When a default applies: the few facts beyond device, variant and phase that defaults hang on
// (layer registry).
#pragma once

#include <cstdint>
#include <string_view>

#include <attune/registry.hpp>

namespace attune::registry {

/// Facts about the whole model that a single group does not hold.
struct ModelFacts {
  std::string_view architecture;
  bool has_gdn = false;
  bool has_mamba2 = false;
  bool has_sinks = false;  ///< in any layer: one default serves the whole model
};

enum class When : std::uint8_t {
  always,
  no_speculation_or_chain_at_page_one,  ///< no draft tokens, or a chain of them at page size 1 or
                                        ///< auto
  equal_head_dims,
  unequal_head_dims,
  no_sinks,
  kv_fp8_e4m3,
  kv_fp8_e5m2,
  latent_heads_16_or_128,
  prefix_cache_without_speculation,
  has_mamba2,
  has_gdn,
};

[[nodiscard]] constexpr std::string_view text(When when) {
  switch (when) {
    case When::always: return "";
    case When::no_speculation_or_chain_at_page_one:
      return "no speculation, or a chain at page size 1";
    case When::equal_head_dims: return "K and V equally wide";
    case When::unequal_head_dims: return "K and V of different widths";
    case When::no_sinks: return "no sinks";
    case When::kv_fp8_e4m3: return "fp8_e4m3 cache";
    case When::kv_fp8_e5m2: return "fp8_e5m2 cache";
    case When::latent_heads_16_or_128: return "16 or 128 heads";
    case When::prefix_cache_without_speculation: return "prefix cache on, no speculation";
    case When::has_mamba2: return "with Mamba-2 layers";
    case When::has_gdn: return "with gated-delta layers";
  }
  return "?";
}

[[nodiscard]] inline bool holds(When when, const AttentionSpec& spec,
                                const SelectionOptions& options, const ModelFacts& model) {
  switch (when) {
    case When::always: return true;
    case When::no_speculation_or_chain_at_page_one:
      return options.speculative_topk == 0 ||
             (options.speculative_topk == 1 && options.page_size <= 1);
    case When::equal_head_dims: return spec.head_dim_qk == spec.head_dim_vo;
    case When::unequal_head_dims: return spec.head_dim_qk != spec.head_dim_vo;
    case When::no_sinks: return !model.has_sinks;
    case When::kv_fp8_e4m3: return spec.kv_dtype == DType::fp8_e4m3;
    case When::kv_fp8_e5m2: return spec.kv_dtype == DType::fp8_e5m2;
    case When::latent_heads_16_or_128: return spec.num_qo_heads == 16 || spec.num_qo_heads == 128;
    case When::prefix_cache_without_speculation:
      return options.prefix_cache && options.speculative_topk == 0;
    case When::has_mamba2: return model.has_mamba2;
    case When::has_gdn: return model.has_gdn;
  }
  return false;
}

}  // namespace attune::registry
