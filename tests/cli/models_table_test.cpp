// docs/models.md is what the program would write. Write it again:
// build/release/bin/attune tables --write docs --models tests/golden/models
#include "cli/models_table.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace attune::cli {
namespace {

TEST(ModelsTable, ThePageIsCurrent) {
  const std::string root = ATTUNE_SOURCE_DIR;
  const Result<Registry> registry = Registry::open({});
  ASSERT_TRUE(registry.ok());
  const Result<std::string> page = models_markdown(root + "/tests/golden/models", *registry);
  ASSERT_TRUE(page.ok()) << page.status().text();
  std::ifstream file(root + "/docs/models.md");
  std::stringstream stored;
  stored << file.rdbuf();
  EXPECT_EQ(stored.str(), *page)
      << "stale: run `attune tables --write docs --models tests/golden/models`";
}

TEST(ModelsTable, AFolderWithoutModelsIsNamed) {
  const Result<Registry> registry = Registry::open({});
  const Result<std::string> page = models_markdown("/no/such/folder", *registry);
  ASSERT_FALSE(page.ok());
  EXPECT_NE(page.status().text().find("/no/such/folder"), std::string::npos);
}

}  // namespace
}  // namespace attune::cli
