#include "text/utf8.hpp"

#include <gtest/gtest.h>

namespace attune::text {
namespace {

TEST(Utf8, EveryCodePointGoesThereAndBack) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string bytes;
    append_utf8(bytes, code);
    const Utf8Char c = read_utf8(bytes);
    ASSERT_TRUE(c.valid && c.code == code && c.length == bytes.size())
        << static_cast<unsigned>(code);
    ASSERT_EQ(showable_prefix(bytes), bytes.size());
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      ASSERT_EQ(showable_prefix(std::string_view(bytes).substr(0, cut)), 0u)
          << static_cast<unsigned>(code);
    }
  }
}

TEST(Utf8, OneReplacementForEachIllFormedSubpart) {
  // The examples of the Unicode standard, section 3.9, tables 3-8 to 3-11.
  EXPECT_EQ(to_valid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(to_valid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41\uFFFD\uFFFD\x42");
  EXPECT_EQ(to_valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(to_valid_utf8(""), "");
  EXPECT_TRUE(is_valid_utf8("a\u00e9\u4e00\U0001F600"));
  EXPECT_FALSE(is_valid_utf8("\xED\xA0\x80"));
}

TEST(Utf8, WhatCanNoLongerBecomeACharacterIsShown) {
  EXPECT_EQ(showable_prefix("a\xE4\xB8"), 1u);
  EXPECT_EQ(showable_prefix("a\xE4\x20"), 3u);  // broken for good
  EXPECT_EQ(showable_prefix("a\xC0"), 2u);      // never a lead byte
  EXPECT_EQ(showable_prefix("a\xED\xA0"), 3u);  // a surrogate
  EXPECT_EQ(showable_prefix("\xF0\x9F\x98"), 0u);
  EXPECT_EQ(showable_prefix(""), 0u);
}

}  // namespace
}  // namespace attune::text
