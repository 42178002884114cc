// The pre-tokenizers that GGUF files name in tokenizer.ggml.pre.
#pragma once

#include <string_view>

#include <attune/fixed_list.hpp>

namespace attune::text {

struct GgufPreTokenizer {
  std::string_view name;
  /// Each splits what the one before left, keeping its matches as pieces of their own.
  FixedList<std::string_view, 5> patterns;
  bool ignore_merges = false;
  bool add_bos = false;  ///< where the file does not say
};

/// nullptr for a name that is not known.
[[nodiscard]] const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);

}  // namespace attune::text
