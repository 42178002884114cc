// Models that commands are tested with: tiny ones of the tree, and real ones where they were fetched.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/typed_command.hpp"

namespace attune::cli {

inline std::string golden(const std::string& family) {
  return std::string(ATTUNE_SOURCE_DIR) + "/tests/golden/models/" + family;
}

inline nlohmann::json stored(const std::string& name) {
  std::ifstream file(std::string(ATTUNE_SOURCE_DIR) + "/tests/golden/" + name);
  return nlohmann::json::parse(file);
}

/// Real models, where tools/fetch_test_models.sh has put them.
inline std::string real_model(const std::string& name) {
  return std::string(ATTUNE_SOURCE_DIR) + "/.cache/" + name;
}

/// The one JSON document of a command that succeeded.
inline nlohmann::json parsed(const testing_support::Outcome& o) {
  EXPECT_EQ(o.code, kDone) << o.err;
  return nlohmann::json::parse(o.out, nullptr, false);
}

inline testing_support::Outcome generate(const std::string& model, std::vector<std::string> words) {
  words.insert(words.begin(), {"generate", "--model", model});
  return testing_support::typed({add_generate}, std::move(words));
}

}  // namespace attune::cli
