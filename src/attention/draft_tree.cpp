#include <attune/draft_tree.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "attention/mask.hpp"
#include "base/join.hpp"

namespace attune {
namespace {

using base::join;

void set_bit(std::uint8_t* bytes, std::int64_t bit) {
  bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] | 1u << (bit % 8));
}

/// Bits [begin, end), whole bytes at once: a context is long.
void set_bits(std::uint8_t* bytes, std::int64_t begin, std::int64_t end) {
  while (begin < end && begin % 8 != 0) set_bit(bytes, begin++);
  if (end - begin >= 8) {
    std::fill(bytes + begin / 8, bytes + end / 8, std::uint8_t{0xff});
    begin = end / 8 * 8;
  }
  while (begin < end) set_bit(bytes, begin++);
}

Status check_size(std::int64_t rows, std::int64_t columns) {
  if (rows < 0 || columns < 0 ||
      (columns > 0 && rows > (std::numeric_limits<std::int64_t>::max() - 7) / columns))
    return invalid_argument(join("a mask of ", rows, " x ", columns, " bits"));
  return {};
}

}  // namespace

Status validate_tree(std::span<const std::int32_t> parents) {
  const auto n = static_cast<std::int64_t>(parents.size());
  if (n > kMaxTreeTokens)
    return invalid_argument(
        join("a tree of ", n, " draft tokens is too wide; wanted at most ", kMaxTreeTokens));
  for (std::int64_t t = 0; t < n; ++t) {
    const std::int32_t parent = parents[static_cast<std::size_t>(t)];
    if (t == 0 && parent == -1) continue;
    if (t == 0)
      return invalid_argument(join("parents[0] = ", parent, ": token 0 is the root, wanted -1"));
    if (parent == -1)
      return invalid_argument(join("parents[", t, "] = -1: a second root; wanted one a request"));
    if (parent < 0 || parent >= n)
      return invalid_argument(join("parents[", t, "] = ", parent, " is no token of a tree of ", n));
    if (parent >= t)
      return invalid_argument(join("parents[", t, "] = ", parent,
                                   ": a parent stands before its children, or it is a cycle"));
  }
  return {};
}

bool is_chain(std::span<const std::int32_t> parents) {
  for (std::size_t t = 0; t < parents.size(); ++t)
    if (parents[t] != static_cast<std::int32_t>(t) - 1) return false;
  return true;
}

Result<AttentionSpec> tree_spec(const AttentionSpec& spec) {
  const auto refused = [](std::string_view rule, std::string_view what) {
    return unsupported(
        join("a tree of draft tokens does not go with ", what,
             ": siblings share a position and backends count slots"),
        {{"draft_tree", std::string(rule), "logits without positions", std::string(what)}});
  };
  if (is_linear(spec.variant))
    return unsupported("linear attention verifies chains only: a tree would need a state a branch",
                       {{"draft_tree", "variant", "gqa or mla", std::string(name(spec.variant))}});
  if (spec.kind != AttentionKind::decoder)
    return refused("kind", "attention that is not a decoder's");
  if (spec.alibi) return refused("alibi", "ALiBi");
  if (spec.relative_bias) return refused("relative_bias", "a bias by distance");
  if (spec.score_mod) return refused("score_mod", "a function of positions");
  if (spec.block_mask) return refused("block_mask", "a mask already");
  if (spec.xai_temperature_len > 0) return refused("xai_temperature", "a temperature by position");
  AttentionSpec tree = spec;
  tree.custom_mask = true;
  tree.window_left = tree.window_right = -1;
  tree.attention_chunk = 0;
  return tree;
}

Status TreeMask::assign(std::span<const DraftTree> trees, const AttentionSpec& spec) {
  if (auto fits = tree_spec(spec); !fits.ok()) return fits.status();
  for (std::size_t i = 0; i < trees.size(); ++i) {
    const DraftTree& tree = trees[i];
    if (Status s = validate_tree(tree.parents); !s.ok())
      return invalid_argument(join("request ", i, ": ", s.text()));
    const std::int64_t before = tree.context_len - tree.kv_offset;
    if (tree.kv_offset < 0 || before < 0)
      return invalid_argument(join("request ", i, ": a context of ", tree.context_len,
                                   " tokens whose keys begin at position ", tree.kv_offset));
    const auto rows = static_cast<std::int64_t>(tree.parents.size());
    if (Status s = check_size(rows, before + rows); !s.ok())
      return invalid_argument(join("request ", i, ": ", s.text()));
  }
  bits_.clear();
  indptr_.assign(1, 0);
  positions_.clear();
  all_chains_ = true;
  for (const DraftTree& tree : trees) add(tree, spec);
  return {};
}

void TreeMask::add(const DraftTree& tree, const AttentionSpec& spec) {
  const attention::MaskRule rule{.causal = true,
                                 .window_left = spec.window_left,
                                 .window_right = spec.window_right,
                                 .attention_chunk = spec.attention_chunk};
  const auto rows = static_cast<std::int64_t>(tree.parents.size());
  const std::int64_t before = tree.context_len - tree.kv_offset;
  const std::int64_t columns = before + rows;
  all_chains_ = all_chains_ && is_chain(tree.parents);
  std::uint8_t* const bytes = add_bytes(rows, columns);
  const std::size_t first = positions_.size();
  const auto position = [&](std::int64_t t) -> std::int64_t& {
    return positions_[first + static_cast<std::size_t>(t)];
  };
  for (std::int64_t t = 0; t < rows; ++t) {
    const std::int32_t parent = tree.parents[static_cast<std::size_t>(t)];
    positions_.push_back(parent < 0 ? tree.context_len : position(parent) + 1);
    const std::int64_t p = position(t);
    const attention::KeyRange context =
        attention::visible_range(rule, p, tree.kv_offset, tree.context_len);
    set_bits(bytes, t * columns + context.begin - tree.kv_offset,
             t * columns + context.end - tree.kv_offset);
    for (std::int64_t j = t; j >= 0; j = tree.parents[static_cast<std::size_t>(j)])
      if (attention::visible(rule, p, position(j))) set_bit(bytes, t * columns + before + j);
  }
}

Status TreeMask::assign(std::span<const GivenMask> masks) {
  for (std::size_t i = 0; i < masks.size(); ++i) {
    const GivenMask& mask = masks[i];
    if (Status s = check_size(mask.rows, mask.columns); !s.ok())
      return invalid_argument(join("request ", i, ": ", s.text()));
    if (static_cast<std::int64_t>(mask.visible.size()) != mask.rows * mask.columns)
      return invalid_argument(join("request ", i, ": a mask of ", mask.rows, " x ", mask.columns,
                                   " has ", mask.visible.size(), " bytes"));
  }
  bits_.clear();
  indptr_.assign(1, 0);
  positions_.clear();
  all_chains_ = false;
  for (const GivenMask& mask : masks) {
    std::uint8_t* const bytes = add_bytes(mask.rows, mask.columns);
    for (std::size_t bit = 0; bit < mask.visible.size(); ++bit)
      if (mask.visible[bit] != 0) set_bit(bytes, static_cast<std::int64_t>(bit));
  }
  return {};
}

std::uint8_t* TreeMask::add_bytes(std::int64_t rows, std::int64_t columns) {
  const std::size_t begin = bits_.size();
  bits_.resize(begin + static_cast<std::size_t>((rows * columns + 7) / 8), 0);
  indptr_.push_back(static_cast<std::int64_t>(bits_.size()));
  return bits_.data() + begin;
}

Result<std::vector<std::int32_t>> accepted_path(std::span<const std::int32_t> parents,
                                                std::span<const std::int32_t> tokens,
                                                std::span<const std::int32_t> chosen) {
  if (Status s = validate_tree(parents); !s.ok()) return s;
  if (tokens.size() != parents.size() || chosen.size() != parents.size())
    return invalid_argument(join("a tree of ", parents.size(), " tokens came with ", tokens.size(),
                                 " tokens and ", chosen.size(), " choices"));
  std::vector<std::int32_t> path;
  if (parents.empty()) return path;
  path.push_back(0);
  // Children stand behind their parent: one pass finds the whole path.
  for (std::size_t t = 1; t < parents.size(); ++t)
    if (parents[t] == path.back() && tokens[t] == chosen[static_cast<std::size_t>(path.back())])
      path.push_back(static_cast<std::int32_t>(t));
  return path;
}

}  // namespace attune
