// attune bench as typed: what is refused before anything is measured, and results held against each
// other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "support/scratch_folder.hpp"
#include "support/typed_command.hpp"

namespace attune::cli {
namespace {

using testing::HasSubstr;
using testing_support::expect_mistake;
using testing_support::Outcome;
using testing_support::typed;

Outcome bench(std::vector<std::string> words) {
  words.emplace(words.begin(), "bench");
  return typed({add_bench}, std::move(words));
}

TEST(Bench, EachMistakeIsOneLineBeforeAnythingIsMeasured) {
  const std::string small = "gqa/decode/bf16/hd64/gqa1/page16/b1x16";
  expect_mistake(bench({"--case", "nosuch"}), "'nosuch'");
  expect_mistake(bench({"--case", ","}), "--case names no case");
  expect_mistake(bench({"--suite", "nosuch"}), "nosuch");
  expect_mistake(bench({"--case", small, "--attention-backend", ","}), "names no backend");
  expect_mistake(bench({"--case", small, "--suite", "decode"}), "exclude each other");
  expect_mistake(bench({"--case", small, "--output", "x.txt"}), ".json, .csv or .html");
  expect_mistake(bench({"--case", small, "--output", "/no/such/folder/x.json"}),
                 "cannot write /no/such/folder/x.json: No such file");
  expect_mistake(bench({"--case", small, "--device", "cuda:sm90"}), "is not present");
  for (const char* option : {"--model", "--page-size", "--kv-cache-dtype"})
    expect_mistake(bench({"--case", small, option, "16"}), option);
}

TEST(Bench, ARunThatFailsLeavesNoFile) {
  const attune::testing_support::ScratchFolder folder;
  const std::string output = folder / "out.json";
  const Outcome refused = bench({"--case", "gqa/decode/bf16/hd64/gqa1/page16/b1x16", "--output",
                                 output, "--attention-backend", "gdn"});
  EXPECT_EQ(refused.code, kNoBackend);
  EXPECT_THAT(refused.err, HasSubstr("gdn cannot serve the gqa layers (decode)"));
  EXPECT_FALSE(std::filesystem::exists(output));
}

TEST(Bench, ACaseThatNobodyServesIsSaidWithEveryReason) {
  const std::string served = "gqa/decode/fp32/hd16/gqa1x1/page16/b1x16";
  const std::string refused = "dual_chunk/decode/fp32/hd16/gqa1x1/page16/b1x16";
  const Outcome o = bench({"--case", served + "," + refused, "--attention-backend",
                           "torch_native,gdn", "--threads", "1"});
  EXPECT_EQ(o.code, kDone) << o.err;
  EXPECT_THAT(o.out, HasSubstr(served));
  EXPECT_THAT(o.err, HasSubstr(served + ": not on every backend\n  gdn: variant: wanted "));
  EXPECT_THAT(o.err, HasSubstr(refused + ": no backend serves it\n  torch_native: "));
  EXPECT_THAT(o.err, HasSubstr("\n  gdn: "));
}

class Results : public testing::Test {
 protected:
  /// A result of one case that took so long.
  [[nodiscard]] std::string of(const std::string& name, double ms) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << R"({"rows": [{"case": "gqa/decode/bf16/hd64/gqa1/page16/b1x16",)"
                        << R"( "backend": "cpu", "device": "cpu", "ms": )" << ms << "}]}";
    return path;
  }
  [[nodiscard]] std::string text(const std::string& content) const {
    const std::string path = (folder_ / "text.json").string();
    std::ofstream(path) << content;
    return path;
  }

 private:
  attune::testing_support::ScratchFolder folder_;
};

TEST_F(Results, ARegressionExitsWithOne) {
  const std::string before = of("before.json", 1.0);
  EXPECT_EQ(bench({"compare", before, of("same.json", 1.04)}).code, kDone);
  const Outcome slower = bench({"compare", before, of("slower.json", 1.06)});
  EXPECT_EQ(slower.code, kFailed);
  EXPECT_THAT(slower.out, HasSubstr("REGRESSED"));
  EXPECT_EQ(bench({"compare", before, of("slower.json", 1.06), "--max-regression", "10%"}).code,
            kDone);
}

TEST_F(Results, WhatIsNoResultOrNoShareIsNamed) {
  const std::string good = of("good.json", 1.0);
  expect_mistake(bench({"compare", good, "/no/such.json"}), "/no/such.json");
  for (const char* content : {"", "{}", "[1]", R"({"rows": 3})", R"({"rows": [3]})",
                              R"({"rows": [{"case": 1, "backend": [], "ms": "x"}]})"}) {
    const Outcome o = bench({"compare", good, text(content)});
    EXPECT_EQ(o.code, kBadInput) << content << o.err;
    EXPECT_EQ(bench({"growth", text(content)}).code, kBadInput) << content;
  }
  for (const char* share : {"x", "-1", "nan", "inf", "5%%", ""})
    EXPECT_EQ(bench({"compare", good, good, "--max-regression", share}).code, kBadInput) << share;
}

}  // namespace
}  // namespace attune::cli
