// attune embed as typed; on a real model where tools/fetch_test_models.sh has put it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/model_files.hpp"
#include "support/typed_command.hpp"

namespace attune::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing_support::expect_mistake;
using testing_support::Outcome;
using testing_support::typed;

Outcome attune(std::vector<std::string> words) { return typed({add_embed}, std::move(words)); }

TEST(MiniLm, EmbeddingsEqualThePublishedPipelines) {
  const std::string model = real_model("minilm");
  if (!fs::exists(model)) GTEST_SKIP() << "no " << model << ": tools/fetch_test_models.sh .cache";
  std::vector<std::string> words{"embed", "--model", model, "--json"};
  const json expected = stored("minilm_embeddings.json");
  for (const json& one : expected) {
    words.emplace_back("--text");
    words.push_back(one["text"].get<std::string>());
  }
  for (const char* backend : {"cpu", "torch_native", "reference"}) {
    std::vector<std::string> more = words;
    more.insert(more.end(), {"--attention-backend", backend});
    const json out = parsed(attune(more));
    ASSERT_EQ(out["embeddings"].size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(out["embeddings"][i]["tokens"], expected[i]["tokens"]);
      const auto have = out["embeddings"][i]["embedding"].get<std::vector<double>>();
      const auto want = expected[i]["embedding"].get<std::vector<double>>();
      ASSERT_EQ(have.size(), want.size());
      double worst = 0;
      for (std::size_t d = 0; d < want.size(); ++d)
        worst = std::max(worst, std::fabs(have[d] - want[d]));
      EXPECT_LE(worst, 1e-4) << backend << ": " << expected[i]["text"];
    }
  }
}

TEST(Embed, EachMistakeIsOneLine) {
  expect_mistake(attune({"embed", "--model", golden("llama"), "--text", "a"}), "tokenizer.json");
  expect_mistake(attune({"embed", "--model", golden("llama")}), "--text");
}

}  // namespace
}  // namespace attune::cli
