// Draft trees of speculative decoding: from the tokens' parents to the masks and positions of a
// target_verify batch (layer attention).
//
//   root ── a ── b          tokens {root, a, b, c}, parents {-1, 0, 1, 0}: b hangs from a, c from
//       └── c               the root, which is the request's newest accepted token.
//
//   // Once: the backend that verifies is made for this spec.
//   Result<AttentionSpec> verifying = tree_spec(spec);
//   // Each step: row r of a request in the batch is token r of its tree.
//   TreeMask masks;
//   if (Status s = masks.assign(trees, spec); !s.ok()) return s;
//   batch.form = BatchForm::target_verify;
//   batch.custom_mask = masks.bits();
//   batch.custom_mask_indptr = masks.indptr();
//   rope_positions = masks.positions();            // context_len + depth in the tree
//   // After the target model: what each row chose tells which path holds.
//   Result<std::vector<std::int32_t>> path = accepted_path(parents, tokens, chosen);
//
// A token sees the context, its ancestors and itself. Siblings share a position but not a slot.
// Backends derive positions from slots, so they cannot apply a window to a tree: windows and chunks
// are folded into the bits here, and tree_spec() is the spec without them. Chains need no mask: the
// causal rule says the same, and masks.all_chains() tells.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attune/spec.hpp>
#include <attune/status.hpp>

namespace attune {

/// One request's draft tokens behind its context.
struct DraftTree {
  std::span<const std::int32_t> parents;  ///< [tokens]; -1 for the root alone, which is token 0
  std::int64_t context_len = 0;           ///< position of the root: keys before it
  std::int64_t kv_offset = 0;             ///< position of the first key of the page table
};

/// A mask that the caller made, one byte for each pair of row and key.
struct GivenMask {
  std::span<const std::uint8_t> visible;  ///< [rows, columns]; 0 = hidden
  std::int64_t rows = 0;                  ///< query tokens of the request
  std::int64_t columns = 0;               ///< its keys
};

/// The largest tree. Bits grow with the square of its tokens.
inline constexpr std::int64_t kMaxTreeTokens = 1024;

/// Exactly one root, and every parent before its children: no cycle can be.
[[nodiscard]] Status validate_tree(std::span<const std::int32_t> parents);

/// Every token hangs from the one before it.
[[nodiscard]] bool is_chain(std::span<const std::int32_t> parents);

/// The spec of a backend that verifies trees of `spec`: the mask replaces causality, windows and
/// chunks. Refuses specs whose logits depend on positions by more than visibility.
[[nodiscard]] Result<AttentionSpec> tree_spec(const AttentionSpec& spec);

/// Owns the arrays of a step's masks; refilled each step without giving back memory. Refused input
/// (invalid_argument) changes nothing.
class TreeMask {
 public:
  /// One tree a request; a request without drafts is a tree of one token, one without tokens an
  /// empty tree. `spec`: of the layers, with the windows to fold in.
  [[nodiscard]] Status assign(std::span<const DraftTree> trees, const AttentionSpec& spec);
  /// Masks as they are given; there are no positions then.
  [[nodiscard]] Status assign(std::span<const GivenMask> masks);

  /// BatchView::custom_mask and custom_mask_indptr; valid until the next assign().
  [[nodiscard]] std::span<const std::uint8_t> bits() const { return bits_; }
  [[nodiscard]] std::span<const std::int64_t> indptr() const { return indptr_; }
  /// [tokens of all trees]
  [[nodiscard]] std::span<const std::int64_t> positions() const { return positions_; }
  [[nodiscard]] bool all_chains() const { return all_chains_; }

 private:
  void add(const DraftTree& tree, const AttentionSpec& spec);
  std::uint8_t* add_bytes(std::int64_t rows, std::int64_t columns);

  std::vector<std::uint8_t> bits_;
  std::vector<std::int64_t> indptr_;
  std::vector<std::int64_t> positions_;
  bool all_chains_ = true;
};

/// The path that a verification accepts, as indices of tokens: from the root on, the child whose
/// token is the one that the target model chose behind its parent, as long as there is one.
/// `tokens` and `chosen`, the target's choice behind each token, are [tokens of the tree]. The path
/// begins with the root; the choice behind its last token is the next token of the text.
[[nodiscard]] Result<std::vector<std::int32_t>> accepted_path(std::span<const std::int32_t> parents,
                                                              std::span<const std::int32_t> tokens,
                                                              std::span<const std::int32_t> chosen);

}  // namespace attune
