// Draft trees: from parents to what a target_verify batch wants (layer attention).
//
//   root ── a ── b          parents {-1, 0, 1, 0}: b hangs from a, c from the root. The root is the
//       └── c               request's newest token; row r of the batch is token r of the tree.
//
//   TreeMask masks;
//   if (Status s = masks.assign(trees, spec); !s.ok()) return s;
//   batch.custom_mask = masks.bits();             batch.custom_mask_indptr = masks.indptr();
//   positions of the step's tokens = masks.positions();    // RoPE: context + depth
//
// A token sees the context, its ancestors and itself. Siblings share a position but not a slot, so
// a backend, which counts slots, cannot know a tree's windows: they are folded into the bits here,
// and tree_spec() says what the backend is to be made for. Chains need none of this: without a mask
// the causal rule says the same, and masks.all_chains() tells.
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

/// A mask somebody else made: a byte each, 0 = hidden, [rows, columns].
struct GivenMask {
  std::span<const std::uint8_t> visible;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// More would make a mask's square the larger part of it.
inline constexpr std::int64_t kMaxTreeTokens = 1024;

/// Exactly one root, and every parent before its children: no cycle can be.
[[nodiscard]] Status validate_tree(std::span<const std::int32_t> parents);

/// Every token hangs from the one before it.
[[nodiscard]] bool is_chain(std::span<const std::int32_t> parents);

/// The spec of a backend that verifies trees of `spec`: the mask replaces causality, windows and
/// chunks. Refuses specs whose logits depend on positions by more than visibility.
[[nodiscard]] Result<AttentionSpec> tree_spec(const AttentionSpec& spec);

/// Owns the arrays; refilled each step without giving back memory. Refused input changes nothing.
class TreeMask {
 public:
  /// One tree a request; a request without drafts is a tree of one token, one without tokens an
  /// empty tree. `spec`: of the layers, with the windows to fold in.
  [[nodiscard]] Status assign(std::span<const DraftTree> trees, const AttentionSpec& spec);
  /// Masks as they are given; there are no positions then.
  [[nodiscard]] Status assign(std::span<const GivenMask> masks);

  /// As BatchView::custom_mask and custom_mask_indptr.
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

/// The path that a verification accepts: from the root, the child whose token is what the target
/// chose behind its parent, as long as there is one. `chosen`: [tokens of the tree]. The path holds
/// the root; the target's choice behind its last token is the next token.
[[nodiscard]] Result<std::vector<std::int32_t>> accepted_path(std::span<const std::int32_t> parents,
                                                              std::span<const std::int32_t> tokens,
                                                              std::span<const std::int32_t> chosen);

}  // namespace attune
