// A trie over bytes: every stored string that begins at a position, shortest first.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/int_map.hpp"

namespace attune::text {

class Trie {
 public:
  using Node = std::uint32_t;
  static constexpr Node kRoot = 0;

  /// Later strings replace earlier equal ones.
  void insert(std::string_view bytes, std::int32_t value) {
    Node node = kRoot;
    for (const char byte : bytes) {
      const Node next = edges_.insert(edge(node, byte), static_cast<Node>(values_.size()));
      if (next == values_.size()) values_.push_back(kNone);
      node = next;
    }
    values_[node] = value;
  }

  [[nodiscard]] std::optional<Node> step(Node node, char byte) const {
    const Node* next = edges_.find(edge(node, byte));
    return next ? std::optional(*next) : std::nullopt;
  }

  /// The node that `bytes` lead to.
  [[nodiscard]] std::optional<Node> walk(std::string_view bytes) const {
    std::optional<Node> node = kRoot;
    for (const char byte : bytes) {
      node = step(*node, byte);
      if (!node) break;
    }
    return node;
  }

  /// The value stored at a node, or a negative number.
  [[nodiscard]] std::int32_t value(Node node) const { return values_[node]; }

 private:
  static constexpr std::int32_t kNone = -1;
  static std::uint64_t edge(Node node, char byte) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }
  IntMap<Node> edges_;
  std::vector<std::int32_t> values_{kNone};
};

}  // namespace attune::text
