// Unigram language model (Kudo, arXiv:1804.10959): the segmentation of greatest summed score.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "text/subword_model.hpp"

namespace attune::text {

/// `scores` is indexed by id. Without `unk` a text with an unknown character is an error.
Result<std::unique_ptr<SubwordModel>> make_unigram(Vocabulary vocabulary,
                                                   std::vector<double> scores,
                                                   std::optional<TokenId> unk, bool byte_fallback);

}  // namespace attune::text
