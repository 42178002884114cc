// The merge rules of a BPE model and the two ways to apply them: both give the same symbols.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "text/int_map.hpp"
#include "text/token_id.hpp"

namespace attune::text {

struct Merge {
  std::uint32_t rank = std::numeric_limits<std::uint32_t>::max();
  TokenId result = -1;
};

class MergeTable {
 public:
  explicit MergeTable(std::size_t expected = 0) : rules_(expected) {}

  /// The last rule given for a pair stays.
  void add(TokenId left, TokenId right, Merge merge) {
    rules_.insert(key(left, right), merge) = merge;
  }

  [[nodiscard]] Merge find(TokenId left, TokenId right) const {
    const Merge* merge = rules_.find(key(left, right));
    return merge ? *merge : Merge{};
  }

  /// Merges `symbols` to the end and appends them to `out`; scribbles on `symbols`.
  void apply(std::span<TokenId> symbols, std::vector<TokenId>& out) const;

 private:
  static std::uint64_t key(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
  void apply_short(std::span<TokenId> symbols, std::vector<TokenId>& out) const;
  void apply_long(std::span<TokenId> symbols, std::vector<TokenId>& out) const;

  IntMap<Merge> rules_;
};

}  // namespace attune::text
