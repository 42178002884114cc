// What variants have in common that are defined for plain causal attention alone (layer attention).
#pragma once

#include <attune/spec.hpp>
#include <attune/status.hpp>

namespace attune::attention {

/// Nothing is asked for that changes which keys before a query count, or their logits: unsupported
/// otherwise, with the name of the variant and of the option.
[[nodiscard]] Status check_plain_causal(const AttentionSpec& spec);

}  // namespace attune::attention
