#include "attention/plain_causal.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "base/join.hpp"

namespace attune::attention {

Status check_plain_causal(const AttentionSpec& spec) {
  const std::array<std::pair<bool, std::string_view>, 9> missing{
      {{!spec.causal, "keys behind the query"},
       {spec.window_left >= 0 || spec.window_right >= 0, "windows"},
       {spec.attention_chunk > 0, "attention chunks"},
       {spec.custom_mask, "custom masks"},
       {spec.logits_soft_cap > 0.0f, "soft caps"},
       {spec.sinks, "attention sinks"},
       {spec.alibi, "alibi slopes"},
       {spec.relative_bias, "a learned relative bias"},
       {spec.xai_temperature_len > 0, "temperatures by length"}}};
  for (const auto& [asked, what] : missing)
    if (asked) return unsupported(base::join(name(spec.variant), " is defined without ", what));
  return {};
}

}  // namespace attune::attention
