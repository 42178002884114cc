// The pages under docs/ are what the catalog renders today. To write them again:
// build/release/bin/attune tables --write docs
#include "registry/tables.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include <attune/registry.hpp>

namespace attune::registry {
namespace {

std::string file(const std::string& path) {
  std::ifstream stream(std::string(ATTUNE_SOURCE_DIR) + "/" + path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST(Tables, DocsAreCurrent) {
  const Result<Registry> registry = Registry::open({});
  ASSERT_TRUE(registry.ok());
  constexpr const char* kHow = "stale: run `attune tables --write docs`";
  EXPECT_TRUE(file("docs/backends.md") == backends_markdown(registry->list()))
      << "docs/backends.md is " << kHow;
  EXPECT_TRUE(file("docs/selection.md") == selection_markdown()) << "docs/selection.md is " << kHow;
}

TEST(Tables, HelpHasALineForEachBackend) {
  const Result<Registry> registry = Registry::open({});
  ASSERT_TRUE(registry.ok());
  const std::string help = backends_help(registry->list());
  EXPECT_EQ(static_cast<std::size_t>(std::count(help.begin(), help.end(), '\n')),
            registry->list().size());
}

}  // namespace
}  // namespace attune::registry
