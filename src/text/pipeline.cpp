#include "text/pipeline.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "text/special_tokens.hpp"
#include "text/utf8.hpp"

namespace attune::text {
namespace {

class Pipeline final : public Tokenizer {
 public:
  explicit Pipeline(PipelineParts parts) : parts_(std::move(parts)) {}

  Status prepare() {
    vocab_size_ = parts_.model->vocabulary().id_end();
    for (const AddedToken& token : parts_.added_tokens) {
      if (Status s = prepare(token); !s.ok()) return s;
    }
    special_ = std::move(parts_.special);
    chat_template_ = std::move(parts_.chat_template);
    std::vector<TokenId>& stop = special_.stop;
    if (special_.eos) stop.push_back(*special_.eos);
    for (const AddedToken& token : parts_.added_tokens) {
      if (token.special && ends_generation(token.content)) stop.push_back(token.id);
    }
    std::sort(stop.begin(), stop.end());
    stop.erase(std::unique(stop.begin(), stop.end()), stop.end());
    return {};
  }

  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options) const override {
    std::vector<TokenId> ids;
    ids.reserve(text.size() / 4 + 8);
    const SpecialFrame& frame = parts_.frame;
    if (options.add_special) ids.insert(ids.end(), frame.before.begin(), frame.before.end());
    std::string repaired;
    if (!is_valid_utf8(text)) {
      repaired = to_valid_utf8(text);
      text = repaired;
    }
    for (const auto& segment : raw_finder_.find(text, options.parse_special)) {
      if (segment.id) {
        ids.push_back(*segment.id);
        continue;
      }
      const std::string_view plain = text.substr(segment.begin, segment.end - segment.begin);
      Status s = encode_plain(plain, segment.begin == 0, options.parse_special, ids);
      if (!s.ok()) return s;
    }
    if (options.add_special) ids.insert(ids.end(), frame.after.begin(), frame.after.end());
    return ids;
  }

  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string text =
        text::decode(parts_.decoder, pieces_of(ids, skip_special), BrokenBytes::replace);
    return is_valid_utf8(text) ? text : to_valid_utf8(text);
  }

  std::string decode_bytes(std::span<const TokenId> ids, bool skip_special) const override {
    return text::decode(parts_.decoder, pieces_of(ids, skip_special), BrokenBytes::keep);
  }

  std::optional<TokenId> id_of(std::string_view piece) const override {
    if (const auto it = id_of_added_.find(std::string(piece)); it != id_of_added_.end()) {
      return it->second;
    }
    return parts_.model->vocabulary().id_of(piece);
  }

  std::optional<std::string> piece_of(TokenId id) const override {
    if (const auto it = added_.find(id); it != added_.end()) return it->second.content;
    const auto piece = parts_.model->vocabulary().piece_of(id);
    return piece ? std::optional(std::string(*piece)) : std::nullopt;
  }

  TokenId vocab_size() const override { return vocab_size_; }

  bool is_special(TokenId id) const override {
    const auto it = added_.find(id);
    return it != added_.end() && it->second.special;
  }

 private:
  struct Added {
    std::string content;
    std::string decoded;  ///< the piece that decoding starts from: the normalised content
    bool special = false;
  };

  Status prepare(const AddedToken& token) {
    if (token.content.empty()) return {};
    if (token.id < 0 || token.id > kMaxTokenId) {
      return invalid_argument("tokenizer: added token " + token.content + " has the id " +
                              std::to_string(token.id) + ", want 0 to " +
                              std::to_string(kMaxTokenId));
    }
    Added added{.content = token.content, .decoded = token.content, .special = token.special};
    if (token.normalized) {
      auto pattern = run_normalizer(parts_.normalizer, token.content);
      if (!pattern.ok()) return pattern.status();
      added.decoded = std::move(*pattern);
    }
    AddedTokenFinder& finder = token.normalized ? normalized_finder_ : raw_finder_;
    if (Status s = finder.add(token, added.decoded); !s.ok()) return s;
    added_[token.id] = std::move(added);
    id_of_added_[token.content] = token.id;
    vocab_size_ = std::max(vocab_size_, token.id + 1);
    return {};
  }

  Status encode_plain(std::string_view plain, bool at_start, bool parse_special,
                      std::vector<TokenId>& ids) const {
    auto normalized = run_normalizer(parts_.normalizer, std::string(plain));
    if (!normalized.ok()) return normalized.status();
    const std::string_view text = *normalized;
    for (const auto& segment : normalized_finder_.find(text, parse_special)) {
      if (segment.id) {
        ids.push_back(*segment.id);
        continue;
      }
      const auto pieces =
          pre_tokenize(parts_.pre_tokenizer,
                       std::string(text.substr(segment.begin, segment.end - segment.begin)),
                       at_start && segment.begin == 0);
      if (!pieces.ok()) return pieces.status();
      for (std::size_t i = 0; i < pieces->ranges.size(); ++i) {
        if (Status s = parts_.model->encode((*pieces)[i], ids); !s.ok()) return s;
      }
    }
    return {};
  }

  std::vector<std::string> pieces_of(std::span<const TokenId> ids, bool skip_special) const {
    std::vector<std::string> pieces;
    pieces.reserve(ids.size());
    for (const TokenId id : ids) {
      if (const auto it = added_.find(id); it != added_.end()) {
        if (!(skip_special && it->second.special)) pieces.push_back(it->second.decoded);
      } else if (const auto piece = parts_.model->vocabulary().piece_of(id)) {
        pieces.emplace_back(*piece);
      }
    }
    return pieces;
  }

  PipelineParts parts_;
  AddedTokenFinder raw_finder_;
  AddedTokenFinder normalized_finder_;
  std::unordered_map<TokenId, Added> added_;
  std::unordered_map<std::string, TokenId> id_of_added_;
  TokenId vocab_size_ = 0;
};

}  // namespace

Result<TokenizerPtr> make_pipeline(PipelineParts parts) {
  require(parts.model != nullptr, "a pipeline has a model");
  auto pipeline = std::make_unique<Pipeline>(std::move(parts));
  if (Status s = pipeline->prepare(); !s.ok()) return s;
  return TokenizerPtr(std::move(pipeline));
}

}  // namespace attune::text
