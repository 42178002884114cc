// The fuzzers' corpus as an ordinary test: run it under the sanitizer presets.
#include <gtest/gtest.h>

#include <filesystem>

#include "../fuzz/text.hpp"
#include "files.hpp"

namespace attune::text {
namespace {

template <class Read>
int for_each_file(const std::string& folder, Read&& read) {
  int files = 0;
  const std::string path = std::string(ATTUNE_SOURCE_DIR) + "/tests/fuzz/corpus/" + folder;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    SCOPED_TRACE(entry.path().string());
    read(read_file(entry.path().string()));
    ++files;
  }
  return files;
}

TEST(TextCorpus, Tokenizers) { EXPECT_GT(for_each_file("tokenizer", fuzz::read_tokenizer), 8); }

TEST(TextCorpus, Templates) { EXPECT_GT(for_each_file("template", fuzz::read_template), 20); }

}  // namespace
}  // namespace attune::text
