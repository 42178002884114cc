// Every command accepts the options that it honours, and no others.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "support/typed_command.hpp"

namespace attune::cli {
namespace {

TEST(Options, NoneIsAcceptedAndIgnored) {
  const std::vector<std::vector<std::string>> foreign{
      {"backends", "--model", "x"},
      {"backends", "--attention-backend", "cpu"},
      {"bench", "--model", "x"},
      {"bench", "--page-size", "16"},
      {"bench", "--kv-cache-dtype", "x"},
      {"bench", "--fallback", "warn"},
      {"bench", "--seed", "1"},
      {"bench", "--prefill-attention-backend", "cpu"},
      {"doctor", "--device", "cpu"},
      {"embed", "--seed", "1"},
      {"embed", "--page-size", "16"},
      {"embed", "--kv-cache-dtype", "fp16"},
      {"embed", "--decode-attention-backend", "cpu"},
      {"explain", "--threads", "2"},
      {"explain", "--seed", "1"},
      {"tables", "--device", "cpu"},
      {"verify", "--model", "x"}};
  for (const std::vector<std::string>& words : foreign) {
    testing_support::expect_mistake(
        testing_support::typed({add_backends, add_bench, add_doctor, add_embed, add_explain,
                                add_generate, add_tables, add_verify},
                               words),
        words[1]);
  }
}

TEST(Options, AnEmptyValueIsNotTakenForNone) {
  const std::vector<std::vector<std::string>> empty{{"explain", "--memory-limit", ""},
                                                    {"explain", "--force-isa", ""},
                                                    {"generate", "--attention-backend", ""},
                                                    {"generate", "--prefill-attention-backend", ""},
                                                    {"generate", "--decode-attention-backend", ""},
                                                    {"generate", "--weights-cache", ""},
                                                    {"bench", "--suite", ""},
                                                    {"bench", "--attention-backend", ""},
                                                    {"tables", "--write", ""}};
  for (const std::vector<std::string>& words : empty)
    testing_support::expect_mistake(
        testing_support::typed({add_bench, add_explain, add_generate, add_tables}, words),
        words[1]);
}

TEST(Options, HelpOfEveryCommandHasExamplesOfItself) {
  CLI::App app{"attune", "attune"};
  int code = 0;
  for (const auto add :
       {add_backends, add_bench, add_embed, add_explain, add_generate, add_tables, add_verify})
    add(app, code);
  for (const CLI::App* command : app.get_subcommands({}))
    EXPECT_NE(command->help().find("\n  attune " + command->get_name()), std::string::npos)
        << command->get_name();
}

}  // namespace
}  // namespace attune::cli
