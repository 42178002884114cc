// A command as typed: what it writes where, and its exit code.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.hpp"

namespace attune::cli::testing_support {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

using AddCommand = void (*)(CLI::App&, int&);

inline Outcome typed(std::initializer_list<AddCommand> commands, std::vector<std::string> words) {
  CLI::App app{"attune", "attune"};
  Outcome outcome;
  for (AddCommand add : commands) add(app, outcome.code);
  std::reverse(words.begin(), words.end());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    outcome.code = error.get_exit_code() == 0 ? kDone : kBadInput;
    if (outcome.code == kBadInput) std::fprintf(stderr, "attune: %s\n", error.what());
  }
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

/// One line on stderr that begins with the program's name, nothing on stdout, exit code 2.
inline void expect_mistake(const Outcome& o, const std::string& part) {
  EXPECT_EQ(o.code, kBadInput) << o.err;
  EXPECT_EQ(o.out, "");
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  EXPECT_THAT(o.err, testing::StartsWith("attune: "));
  EXPECT_THAT(o.err, testing::HasSubstr(part));
}

}  // namespace attune::cli::testing_support
