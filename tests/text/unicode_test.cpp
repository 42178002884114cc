#include "text/unicode.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "text/byte_alphabet.hpp"

namespace attune::text {
namespace {

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalize("e\u0301", NormalForm::nfc), "\u00e9");
  EXPECT_EQ(normalize("\u00e9", NormalForm::nfd), "e\u0301");
  EXPECT_EQ(normalize("\ufb01\u00b2\uff21", NormalForm::nfkc), "fi2A");
  EXPECT_EQ(normalize("\uac01", NormalForm::nfd), "\u1100\u1161\u11a8");
  EXPECT_EQ(normalize("\u1100\u1161\u11a8", NormalForm::nfc), "\uac01");
  // Marks are put in canonical order, equal ones stay as they are.
  EXPECT_EQ(normalize("q\u0307\u0323", NormalForm::nfc), "q\u0323\u0307");
  EXPECT_EQ(normalize("a\u0301\u0300", NormalForm::nfd), "a\u0301\u0300");
  EXPECT_EQ(normalize("plain", NormalForm::nfkd), "plain");
  EXPECT_EQ(normalize(std::string("a\0b\u00e9", 5), NormalForm::nfc), std::string("a\0b\u00e9", 5));
}

TEST(Unicode, HostileRunsOfMarksAreSorted) {
  std::string text = "a";
  for (int i = 0; i < 100'000; ++i) text += "\u0301\u0316";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(normalize(text, NormalForm::nfd).size(), text.size());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Unicode, Case) {
  EXPECT_EQ(to_lower("ÀΣ\u0130x"), "àσi\u0307x");
  EXPECT_EQ(to_upper("àßx"), "ÀSSX");
}

TEST(Unicode, Classes) {
  EXPECT_TRUE(is_white_space(0x3000) && is_white_space(0x85) && !is_white_space(0x180E));
  EXPECT_TRUE(is_numeric(0x0664) && is_numeric(0x2167) && is_numeric(0xBD) && !is_numeric('a'));
  EXPECT_TRUE(is_punctuation('$') && is_punctuation(0x3002) && !is_punctuation(0x20AC));
  EXPECT_TRUE(is_control(0x200D) && is_control(0xE000) && !is_control('\n') && !is_control(0x378));
  EXPECT_TRUE(is_word('_') && is_word(0x24B6) && is_word(0x301) && !is_word('-'));
  EXPECT_EQ(leading_space(" \u3000\tx "), 5u);
  EXPECT_EQ(trailing_space("x \u3000"), 4u);
  EXPECT_EQ(trailing_space(" \u3000"), 4u);
}

TEST(ByteAlphabet, IsABijection) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(all)), all);
  EXPECT_EQ(to_byte_alphabet(" \n\xC3"), "\u0120\u010A\u00C3");
  EXPECT_EQ(from_byte_alphabet("\u4e00"), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("a b"), std::nullopt);
}

}  // namespace
}  // namespace attune::text
