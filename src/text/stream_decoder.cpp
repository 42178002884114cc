#include "text/stream_decoder.hpp"

#include <algorithm>
#include <cstddef>

#include "text/utf8.hpp"

namespace attune::text {

std::string StreamDecoder::push(TokenId id) {
  if (!tokenizer_->piece_of(id) || (skip_special_ && tokenizer_->is_special(id))) return {};
  window_.push_back(id);
  const std::string text = tokenizer_->decode_bytes(window_, false);
  const std::string_view fresh = std::string_view(text).substr(std::min(shown_, text.size()));
  const std::size_t count = showable_prefix(fresh);
  const std::size_t pending = fresh.size() - count;
  shown_ = text.size() - pending;
  forget_shown(pending);
  return to_valid_utf8(fresh.substr(0, count));
}

/// Keeps the tokens that hold the pending bytes, and one more as context.
void StreamDecoder::forget_shown(std::size_t pending) {
  if (window_.size() <= pending + 1) return;
  const std::vector<TokenId> rest(window_.end() - static_cast<std::ptrdiff_t>(pending + 1),
                                  window_.end());
  const std::size_t size = tokenizer_->decode_bytes(rest, false).size();
  if (size < pending) return;
  window_ = rest;
  shown_ = size - pending;
}

std::string StreamDecoder::finish() {
  const std::string text = tokenizer_->decode_bytes(window_, false);
  const std::string_view fresh = std::string_view(text).substr(std::min(shown_, text.size()));
  window_.clear();
  shown_ = 0;
  return to_valid_utf8(fresh);
}

}  // namespace attune::text
