#include "text/pre_tokenizer.hpp"

#include <utility>

#include "text/byte_alphabet.hpp"
#include "text/utf8.hpp"

namespace attune::text {
namespace {

/// Receives the alternating matches and gaps of one piece, in order, and appends the sub-pieces
/// that a SplitBehavior makes of them. An empty match leaves an empty sub-piece.
class Cutter {
 public:
  Cutter(SplitBehavior behavior, bool invert, std::vector<ByteRange>& out)
      : behavior_(behavior), invert_(invert), out_(out) {}

  void begin_piece() {
    piece_first_ = out_.size();
    previous_match_ = false;
  }

  void add(std::size_t begin, std::size_t end, bool is_match) {
    if (invert_) is_match = !is_match;
    switch (behavior_) {
      case SplitBehavior::removed:
        if (!is_match) push(begin, end);
        break;
      case SplitBehavior::isolated: push(begin, end); break;
      case SplitBehavior::contiguous:
        if (is_match == previous_match_ && has_last())
          extend(end);
        else
          push(begin, end);
        break;
      case SplitBehavior::merged_with_previous:
        if (is_match && !previous_match_ && has_last())
          extend(end);
        else
          push(begin, end);
        break;
      case SplitBehavior::merged_with_next:
        // A match waits for what follows; of matches in a row only the last one finds it.
        if (!is_match && previous_match_ && has_last())
          extend(end);
        else
          push(begin, end);
        break;
    }
    previous_match_ = is_match;
  }

 private:
  [[nodiscard]] bool has_last() const { return out_.size() > piece_first_; }
  void extend(std::size_t end) { out_.back().end = end; }
  void push(std::size_t begin, std::size_t end) { out_.push_back({begin, end}); }

  SplitBehavior behavior_;
  bool invert_;
  std::vector<ByteRange>& out_;
  std::size_t piece_first_ = 0;
  bool previous_match_ = false;
};

/// Cuts every piece at the characters that `contains` accepts.
template <class Contains>
void cut_at_chars(Pieces& pieces, Contains contains, SplitBehavior behavior) {
  std::vector<ByteRange> ranges;
  ranges.reserve(pieces.ranges.size());
  Cutter cutter(behavior, false, ranges);
  for (const ByteRange piece : pieces.ranges) {
    cutter.begin_piece();
    std::size_t gap = piece.begin;
    const std::string_view text = std::string_view(pieces.text).substr(0, piece.end);
    for (std::size_t at = piece.begin; at < piece.end;) {
      const Utf8Char c = read_utf8(text.substr(at));
      if (contains(c.code)) {
        if (gap < at) cutter.add(gap, at, false);
        cutter.add(at, at + c.length, true);
        gap = at + c.length;
      }
      at += c.length;
    }
    if (gap < piece.end) cutter.add(gap, piece.end, false);
  }
  pieces.ranges = std::move(ranges);
}

/// Rewrites every piece through `write(piece, index, out)` into a new text.
template <class Write>
void rewrite(Pieces& pieces, Write write) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4);
  for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
    const std::size_t begin = text.size();
    write(pieces[i], i, text);
    pieces.ranges[i] = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

struct Apply {
  Pieces& pieces;

  Status operator()(const SplitAtRegex& split) const {
    std::vector<ByteRange> ranges;
    ranges.reserve(pieces.ranges.size() + pieces.text.size() / 4);
    Cutter cutter(split.behavior, split.invert, ranges);
    Regex::Matcher matcher(split.pattern);
    for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
      const std::size_t base = pieces.ranges[i].begin;
      const std::size_t end = pieces.ranges[i].end;
      cutter.begin_piece();
      matcher.reset(pieces[i]);
      std::size_t gap = base;
      for (;;) {
        const auto match = matcher.next();
        if (!match.ok()) return match.status();
        if (!*match) break;
        if (gap < base + (*match)->begin) cutter.add(gap, base + (*match)->begin, false);
        cutter.add(base + (*match)->begin, base + (*match)->end, true);
        gap = base + (*match)->end;
      }
      if (gap < end) cutter.add(gap, end, false);
    }
    std::erase_if(ranges, [](ByteRange range) { return range.begin == range.end; });
    pieces.ranges = std::move(ranges);
    return {};
  }

  Status operator()(const SplitAtClass& split) const {
    cut_at_chars(pieces, split.contains, split.behavior);
    return {};
  }

  Status operator()(const SplitAtChar& split) const {
    cut_at_chars(
        pieces, [&](char32_t c) { return c == split.delimiter; }, SplitBehavior::removed);
    return {};
  }

  Status operator()(const SplitEvery& split) const {
    std::vector<ByteRange> ranges;
    for (const ByteRange piece : pieces.ranges) {
      std::size_t begin = piece.begin, at = piece.begin, chars = 0;
      while (at < piece.end) {
        at += read_utf8(std::string_view(pieces.text).substr(at)).length;
        if (++chars % split.chars == 0 || at == piece.end) {
          ranges.push_back({begin, at});
          begin = at;
        }
      }
    }
    pieces.ranges = std::move(ranges);
    return {};
  }

  Status operator()(AddPrefixSpace) const {
    rewrite(pieces, [](std::string_view piece, std::size_t, std::string& out) {
      if (!piece.starts_with(' ')) out.push_back(' ');
      out.append(piece);
    });
    return {};
  }

  Status operator()(SpellPieceBytes) const {
    rewrite(pieces, [](std::string_view piece, std::size_t, std::string& out) {
      for (const char byte : piece) {
        append_utf8(out, byte_to_char(static_cast<unsigned char>(byte)));
      }
    });
    return {};
  }

  Status operator()(const Metaspace& metaspace) const {
    rewrite(pieces, [&](std::string_view piece, std::size_t index, std::string& out) {
      const bool wanted =
          metaspace.prepend == Metaspace::Prepend::always ||
          (metaspace.prepend == Metaspace::Prepend::first && index == 0 && pieces.at_start);
      const bool marked = piece.starts_with(' ') || piece.starts_with(metaspace.replacement);
      if (wanted && !marked) out += metaspace.replacement;
      for (const char byte : piece) {
        if (byte == ' ')
          out += metaspace.replacement;
        else
          out.push_back(byte);
      }
    });
    if (metaspace.split) {
      const char32_t mark = read_utf8(metaspace.replacement).code;
      cut_at_chars(
          pieces, [mark](char32_t c) { return c == mark; }, SplitBehavior::merged_with_next);
    }
    return {};
  }
};

}  // namespace

Result<Pieces> pre_tokenize(const std::vector<PreTokenizerStep>& steps, std::string text,
                            bool at_start) {
  Pieces pieces{.text = std::move(text), .ranges = {}, .at_start = at_start};
  if (!pieces.text.empty()) pieces.ranges.push_back({0, pieces.text.size()});
  for (const PreTokenizerStep& step : steps) {
    const std::size_t first = pieces.ranges.empty() ? 0 : pieces.ranges.front().begin;
    if (Status s = std::visit(Apply{pieces}, step); !s.ok()) return s;
    const bool dropped_front = pieces.ranges.empty() || pieces.ranges.front().begin != first;
    pieces.at_start = pieces.at_start && !dropped_front;
  }
  return pieces;
}

std::string_view gpt2_pattern() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

}  // namespace attune::text
