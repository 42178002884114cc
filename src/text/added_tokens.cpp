#include "text/added_tokens.hpp"

#include <algorithm>

#include "text/unicode.hpp"
#include "text/utf8.hpp"
#include "text/vocabulary.hpp"

namespace attune::text {
namespace {

bool starts_with_word(std::string_view text) {
  return !text.empty() && is_word(read_utf8(text).code);
}

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return is_word(read_utf8(text.substr(begin)).code);
}

}  // namespace

Status AddedTokenFinder::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return {};
  if (pattern.size() > kMaxPieceBytes) {
    return invalid_argument("tokenizer: added token " + std::to_string(token.id) +
                            " is longer than " + std::to_string(kMaxPieceBytes) + " bytes");
  }
  patterns_.insert(pattern, static_cast<std::int32_t>(tokens_.size()));
  tokens_.push_back(token);
  first_bytes_[static_cast<unsigned char>(pattern.front())] = true;
  return {};
}

AddedTokenFinder::Hit AddedTokenFinder::longest_at(std::string_view text) const {
  Hit hit;
  if (!first_bytes_[static_cast<unsigned char>(text.front())]) return hit;
  std::optional<Trie::Node> node = Trie::kRoot;
  for (std::size_t length = 0; length < text.size();) {
    node = patterns_.step(*node, text[length++]);
    if (!node) break;
    const auto index = patterns_.value(*node);
    if (index >= 0) hit = {&tokens_[static_cast<std::size_t>(index)], length};
  }
  return hit;
}

std::vector<AddedTokenFinder::Segment> AddedTokenFinder::find(std::string_view text,
                                                              bool parse_special) const {
  std::vector<Segment> segments;
  std::size_t done = 0;
  for (std::size_t at = 0; !empty() && at < text.size();) {
    const Hit hit = longest_at(text.substr(at));
    if (!hit.token) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + hit.length;
    at = end;
    if (hit.token->special && !parse_special) continue;
    const bool inside_word =
        ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end));
    if (hit.token->single_word && inside_word) continue;
    if (hit.token->strip_left) {
      begin = std::max(begin - trailing_space(text.substr(0, begin)), done);
    }
    if (hit.token->strip_right) end += leading_space(text.substr(end));
    if (done < begin) segments.push_back({done, begin, std::nullopt});
    segments.push_back({begin, end, hit.token->id});
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size()) segments.push_back({done, text.size(), std::nullopt});
  return segments;
}

}  // namespace attune::text
