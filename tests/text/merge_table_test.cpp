#include "text/merge_table.hpp"

#include <gtest/gtest.h>

#include <random>

#include "text/bpe.hpp"

namespace attune::text {
namespace {

/// The definition: again and again the leftmost pair of the lowest rank.
std::vector<TokenId> by_definition(const MergeTable& table, std::vector<TokenId> symbols) {
  for (;;) {
    std::size_t at = symbols.size();
    Merge best;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge merge = table.find(symbols[i], symbols[i + 1]);
      if (merge.result >= 0 && merge.rank < best.rank) {
        best = merge;
        at = i;
      }
    }
    if (at == symbols.size()) return symbols;
    symbols[at] = best.result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(MergeTable, BothWaysFollowTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    MergeTable table;
    const TokenId alphabet = 2 + static_cast<TokenId>(random() % 4);
    TokenId next = alphabet;
    std::vector<TokenId> known(static_cast<std::size_t>(alphabet));
    for (TokenId i = 0; i < alphabet; ++i) known[static_cast<std::size_t>(i)] = i;
    for (std::uint32_t rank = 0; rank < 40; ++rank) {
      const TokenId a = known[random() % known.size()];
      const TokenId b = known[random() % known.size()];
      if (table.find(a, b).result >= 0) continue;
      table.add(a, b, {.rank = rank, .result = next});
      known.push_back(next++);
    }
    for (const std::size_t length : {0u, 1u, 2u, 31u, 32u, 33u, 200u}) {
      std::vector<TokenId> symbols(length);
      for (TokenId& s : symbols)
        s = static_cast<TokenId>(random() % static_cast<unsigned>(alphabet));
      std::vector<TokenId> have;
      std::vector<TokenId> scratch = symbols;
      table.apply(scratch, have);
      ASSERT_EQ(have, by_definition(table, symbols)) << "length " << length;
    }
  }
}

TEST(Bpe, AMegabyteOfOneLetterIsQuick) {
  Vocabulary vocabulary;
  std::vector<MergeRule> merges;
  std::string piece = "a";
  for (TokenId id = 0; id < 10; ++id, piece += piece) {
    vocabulary.add(piece, id);
    if (id < 9) merges.emplace_back(piece, piece);
  }
  const auto bpe = make_bpe(std::move(vocabulary), merges, {.byte_level = true});
  ASSERT_TRUE(bpe.ok()) << bpe.status().text();
  std::vector<TokenId> ids;
  ASSERT_TRUE((*bpe)->encode(std::string(1'000'000, 'a'), ids).ok());
  EXPECT_EQ(ids.size(), 1'000'000u / 512 + 1);  // 1953 times 512, and a rest of 64
}

TEST(Bpe, UnknownCharacters) {
  const auto encode = [](BpeOptions options, std::string_view text) {
    Vocabulary vocabulary;
    for (const char* piece : {"<unk>", "a", "b", "ab", "<0xC3>", "<0xA9>"}) {
      vocabulary.add(piece, static_cast<TokenId>(vocabulary.size()));
    }
    std::vector<TokenId> ids;
    const auto bpe = make_bpe(std::move(vocabulary), {{"a", "b"}}, std::move(options));
    EXPECT_TRUE(bpe.ok() && (*bpe)->encode(text, ids).ok());
    return ids;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(encode({}, "abxyab"), (Ids{3, 3}));
  EXPECT_EQ(encode({.unk_token = "<unk>"}, "axyb"), (Ids{1, 0, 0, 2}));
  EXPECT_EQ(encode({.fuse_unk = true, .unk_token = "<unk>"}, "axyb"), (Ids{1, 0, 2}));
  EXPECT_EQ(encode({.byte_fallback = true, .unk_token = "<unk>"}, "é\u00e8"), (Ids{4, 5, 0}));
}

}  // namespace
}  // namespace attune::text
