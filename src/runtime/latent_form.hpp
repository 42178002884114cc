// Latent attention of a prompt, absorbed or expanded: the one place that decides (layer runtime).
//
// Absorbed, every query reads the latents themselves: 2 rank + rope multiply-adds a pair of query
// and key, and a product a query. Expanded, keys and values are made first, a product a key, and a
// pair costs nope + rope + value. A step is expanded where
//
//   * it computes a prompt: decoding and verification have too few queries a key;
//   * a backend serves ordinary heads of these widths over ragged keys, with their lse;
//   * that backend joins chunks of a prefix, or there is no prefix;
//   * it is the cheaper form for the step as a whole, on this device.
//
// Never in batch-invariant mode: the choice depends on what is cached, and the two forms round
// differently.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <attune/batch.hpp>
#include <attune/device.hpp>

#include "model/config.hpp"

namespace attune::runtime {

enum class LatentForm : std::uint8_t { absorbed, expanded };

[[nodiscard]] constexpr std::string_view name(LatentForm form) {
  return form == LatentForm::absorbed ? "absorbed" : "expanded";
}

struct LatentOptions {
  std::optional<LatentForm> form{};  ///< of prompts; none = the cheaper one, step by step
  std::int64_t chunk_tokens = 2048;  ///< of cached prefixes, expanded at once

  [[nodiscard]] bool operator==(const LatentOptions&) const = default;
};

/// What a step's prompts ask of one layer.
struct LatentWork {
  std::int64_t queries = 0;
  std::int64_t pairs = 0;        ///< of a query and a key that it sees
  std::int64_t prefix_keys = 0;  ///< cached before the step
};
[[nodiscard]] LatentWork latent_work(const BatchView& batch);

/// What the product behind a key's expansion costs, in multiply-adds of attention. On a CPU they
/// cost the same. On a GPU keys and values leave and enter memory several times: measured on an
/// H200 for 16 and 128 heads, 3.7 to 4.3 (docs/decisions/0008-latent-forms.md).
[[nodiscard]] constexpr std::int64_t expansion_factor(DeviceKind device) {
  return device == DeviceKind::cpu ? 1 : 4;
}

/// Multiply-adds a head.
[[nodiscard]] std::int64_t absorbed_cost(const model::AttentionConfig& config,
                                         const LatentWork& work);
[[nodiscard]] std::int64_t expanded_cost(const model::AttentionConfig& config,
                                         const LatentWork& work, DeviceKind device);

}  // namespace attune::runtime
