#include "text/regex.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "text/regex_dialect.hpp"

namespace attune::text {
namespace {

std::vector<std::string> matches(const Regex& regex, std::string_view subject) {
  std::vector<std::string> found;
  Regex::Matcher matcher(regex);
  matcher.reset(subject);
  for (;;) {
    const auto match = matcher.next();
    if (!match.ok()) return {match.status().text()};
    if (!*match) return found;
    found.emplace_back(subject.substr((*match)->begin, (*match)->end - (*match)->begin));
  }
}

std::vector<std::string> matches(std::string_view pattern, std::string_view subject) {
  const auto regex = Regex::compile(pattern);
  if (!regex.ok()) return {regex.status().text()};
  return matches(*regex, subject);
}

using Strings = std::vector<std::string>;

TEST(Regex, FindsCharactersNotBytes) {
  EXPECT_EQ(matches("\\p{L}+", "ab é1 世界"), (Strings{"ab", "é", "世界"}));
  EXPECT_EQ(matches(".", "é😀"), (Strings{"é", "😀"}));
}

TEST(Regex, EmptyMatchesAdvance) {
  EXPECT_EQ(matches("x*", "axé"), (Strings{"", "x", ""}));
  EXPECT_EQ(matches("", "é"), (Strings{"", ""}));
  EXPECT_EQ(matches("a", ""), Strings{});
}

TEST(Regex, LiteralsAreNotPatterns) {
  EXPECT_EQ(matches(Regex::literal("a.b"), "a.b axb a.b"), (Strings{"a.b", "a.b"}));
  EXPECT_EQ(matches(Regex::literal(""), "abc"), Strings{});
}

TEST(Regex, WhiteSpaceIsUnicodes) {
  // U+180E is white space to PCRE2, not to the engine that tokenizers are written for.
  EXPECT_EQ(matches("\\s+", "a\u180eb\u3000\u0085c"), Strings{"\u3000\u0085"});
  EXPECT_EQ(matches("\\S+", "a\u180eb c"), (Strings{"a\u180eb", "c"}));
  EXPECT_EQ(matches("[^\\s]+", "a\u180eb c"), (Strings{"a\u180eb", "c"}));
}

TEST(Regex, WordsHoldMarks) {
  EXPECT_EQ(matches("\\w+", "a\u0301_1-b"), (Strings{"a\u0301_1", "b"}));
}

TEST(Regex, ScriptIsNotScriptExtensions) {
  // U+3001 has the extension Han and the script Common.
  EXPECT_EQ(matches("\\p{Han}+", "世、界"), (Strings{"世", "界"}));
}

TEST(Regex, AnchorsAreOfLines) { EXPECT_EQ(matches("^a$", "a\na\nb"), (Strings{"a", "a"})); }

TEST(Regex, RefusesWhatPcreReadsDifferently) {
  EXPECT_FALSE(Regex::compile("[a[b]]").ok());
  EXPECT_FALSE(Regex::compile("[\\p{L}&&[^a]]").ok());
  EXPECT_FALSE(Regex::compile("[^\\W]").ok());
  EXPECT_FALSE(Regex::compile("(").ok());
  EXPECT_FALSE(Regex::compile("a{2,1}").ok());
  EXPECT_TRUE(Regex::compile("[[:alpha:]\\]\\[]").ok());
  EXPECT_TRUE(Regex::compile("[]a]").ok());
}

TEST(Regex, HostilePatternGivesUp) {
  const auto found = matches("(a+)+$", std::string(5000, 'a') + "b");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].starts_with("regular expression gave up")) << found[0];
}

TEST(Regex, LongMatchesThatNeedAStack) {
  EXPECT_EQ(
      matches("(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+", std::string(200'000, 'a')).front().size(),
      200'000u);
}

TEST(RegexDialect, RewritesShorthands) {
  EXPECT_EQ(*to_pcre2("a\\\\s"), "a\\\\s");
  EXPECT_EQ(*to_pcre2("\\h"), "[0-9A-Fa-f]");
  EXPECT_EQ(*to_pcre2("[\\h]"), "[0-9A-Fa-f]");
  EXPECT_EQ(*to_pcre2("\\p{Han}\\P{Latin}\\p{L}"), "\\p{sc:Han}\\P{sc:Latin}\\p{L}");
}

}  // namespace
}  // namespace attune::text
