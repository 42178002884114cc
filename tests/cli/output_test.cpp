// Results that stdout does not take: a full disk is a failure, a reader that has left is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "cli/command.hpp"
#include "cli/model_files.hpp"
#include "support/scratch_folder.hpp"

namespace attune::cli {
namespace {

class Output : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(program_)) GTEST_SKIP() << "the program is not built";
  }

  /// The program with `words` in a shell's command; its exit code and what it wrote to stderr.
  int run(const std::string& words, const std::string& output) {
    const std::filesystem::path err = scratch_ / "stderr";
    const std::string command = "bash -c 'set -o pipefail; " + program_ + " " + words + " 2>" +
                                err.string() + " " + output + "'";
    const int status = std::system(command.c_str());
    std::stringstream text;
    text << std::ifstream(err).rdbuf();
    err_ = text.str();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const std::string program_ = std::string(ATTUNE_BINARY_DIR) + "/bin/attune";
  const std::string config_ =
      std::string(ATTUNE_SOURCE_DIR) + "/tests/data/configs/gpt-oss-20b.json";
  const attune::testing_support::ScratchFolder scratch_;
  std::string err_;
};

TEST_F(Output, AFullDiskIsAFailure) {
  for (const std::string& words :
       {std::string("--version"), std::string("--help"), std::string("bench --help"),
        std::string("backends"), std::string("backends --json --device cpu:avx2"),
        std::string("doctor"), std::string("tables"), std::string("tables --format json"),
        "explain --device cpu:avx2 --model " + config_,
        "generate --tokens 1,2 --max-new-tokens 2 --model " + golden("llama"),
        std::string("verify --attention-backend cpu --match gqa/decode/*pages_permuted")}) {
    EXPECT_EQ(run(words, ">/dev/full"), kFailed) << words;
    EXPECT_THAT(err_, testing::HasSubstr("cannot write to")) << words;
  }
}

TEST_F(Output, ABadCommandStaysOne) {
  EXPECT_EQ(run("explain", ">/dev/full"), kBadInput);
  EXPECT_EQ(run("backends --nosuch", ">/dev/full"), kBadInput);
}

TEST_F(Output, AReaderThatLeftEndsItQuietly) {
  // More than stdio keeps to itself, for a reader that has left before it comes.
  EXPECT_EQ(run("explain --device cuda:sm90 --assume-built --model " + config_,
                "| { exec 0<&-; sleep 1; }"),
            kDone);
  EXPECT_EQ(err_, "");
}

}  // namespace
}  // namespace attune::cli
