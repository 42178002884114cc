// The fuzzers' corpus as an ordinary test: run it under the sanitizer presets.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "../fuzz/weights.hpp"

namespace attune::model {
namespace {

/// Reads every file of a corpus folder, each from memory of exactly its size.
template <class Read>
int for_each_file(const std::string& folder, Read&& read) {
  int files = 0;
  const std::string path = std::string(ATTUNE_SOURCE_DIR) + "/tests/fuzz/corpus/" + folder;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
    read(std::as_bytes(std::span(bytes)));
    ++files;
  }
  return files;
}

TEST(WeightsCorpus, Gguf) { EXPECT_GT(for_each_file("gguf", fuzz::read_gguf), 5); }

TEST(WeightsCorpus, Safetensors) {
  EXPECT_GT(for_each_file("safetensors", fuzz::read_safetensors), 5);
}

}  // namespace
}  // namespace attune::model
