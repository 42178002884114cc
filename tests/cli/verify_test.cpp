// attune verify as typed: exit codes, and one JSON document.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <string>
#include <utility>
#include <vector>

#include "cli/model_files.hpp"
#include "support/typed_command.hpp"

namespace attune::cli {
namespace {

using testing_support::expect_mistake;
using testing_support::Outcome;
using testing_support::typed;

Outcome verify(std::vector<std::string> words) {
  words.insert(words.begin(), "verify");
  return typed({add_verify}, std::move(words));
}

TEST(Verify, OneBackendAndAGlobAsJson) {
  const Outcome o =
      verify({"--attention-backend", "cpu", "--match", "gqa/prefill/*tails*", "--json"});
  EXPECT_EQ(o.code, kDone);
  const auto json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["passed"], 1);
  EXPECT_EQ(json["failed"], 0);
  const auto& first = json["cases"][0];
  EXPECT_EQ(first["backend"], "cpu");
  EXPECT_EQ(first["status"], "passed");
  EXPECT_THAT(first["name"].get<std::string>(), ::testing::HasSubstr("tails"));
  EXPECT_GT(first["tolerance"].get<double>(), first["max_abs_err"].get<double>());
}

TEST(Verify, CascadeRunsItsCasesAndNoOthers) {
  const Outcome o = verify({"--attention-backend", "cpu", "--cascade", "--json"});
  EXPECT_EQ(o.code, kDone);
  const auto json = nlohmann::json::parse(o.out);
  EXPECT_GT(json["passed"], 10);
  EXPECT_EQ(json["failed"], 0);
  EXPECT_EQ(json["skipped"], 0);
  for (const auto& one : json["cases"])
    EXPECT_THAT(one["name"].get<std::string>(), ::testing::EndsWith("/cascade_equals_flat"));
  EXPECT_EQ(verify({"--cascade", "--match", "gqa/*"}).code, kBadInput);
  const Outcome nobody = verify({"--attention-backend", "torch_native", "--cascade"});
  EXPECT_EQ(nobody.code, kNoBackend);
  EXPECT_THAT(nobody.err, ::testing::HasSubstr("cascade"));
}

TEST(Verify, EveryBackendIsAnsweredFor) {
  const Outcome o = verify({"--match", "gqa/prefill/*tails*", "--json"});
  EXPECT_EQ(o.code, kDone);
  bool fa3_skipped = false;
  const auto json = nlohmann::json::parse(o.out);
  for (const auto& one : json["cases"])
    fa3_skipped = fa3_skipped || (one["backend"] == "fa3" && one["status"] == "skipped" &&
                                  !one["reason"].get<std::string>().empty());
  EXPECT_TRUE(fa3_skipped);
}

TEST(Verify, BadInputIsNamed) {
  EXPECT_EQ(verify({"--cases", "some"}).code, kBadInput);
  const Outcome typo = verify({"--attention-backend", "cpuu"});
  EXPECT_EQ(typo.code, kBadInput);
  EXPECT_THAT(typo.err, ::testing::HasSubstr("nearest: cpu"));
  const Outcome nothing = verify({"--match", "no/such/*"});
  EXPECT_EQ(nothing.code, kBadInput);
  EXPECT_THAT(nothing.err, ::testing::HasSubstr("no case"));
  expect_mistake(verify({"--page-size", "4"}), "--page-size means nothing");
  expect_mistake(verify({"--golden", "folder", "--seed", "4"}), "--seed means nothing");
  expect_mistake(verify({"--golden", golden("llama"), "--attention-backend", "cpuu"}),
                 "nearest: cpu");
  EXPECT_EQ(verify({"--attention-backend", "fa3"}).code, kNoBackend);
}

}  // namespace
}  // namespace attune::cli
