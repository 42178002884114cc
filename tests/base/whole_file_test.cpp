// Files that appear whole or not at all.
#include "base/whole_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/scratch_folder.hpp"

namespace attune::base {
namespace {

namespace fs = std::filesystem;

class WholeFile : public testing::Test {
 protected:
  [[nodiscard]] std::string contents() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  }

  testing_support::ScratchFolder folder_;
  std::string path_ = folder_ / "out.json";
};

TEST_F(WholeFile, AskingWhetherCreatesNothing) {
  EXPECT_TRUE(check_writable(path_).ok());
  EXPECT_EQ(files(), 0);
}

TEST_F(WholeFile, ReplacesWhatWasThereAndLeavesNothingBeside) {
  ASSERT_TRUE(write_whole(path_, "first, and longer").ok());
  fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_TRUE(write_whole(path_, "second").ok());
  EXPECT_EQ(contents(), "second");
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(WholeFile, ALinkStaysALink) {
  const std::string target = folder_ / "target";
  ASSERT_TRUE(write_whole(target, "old").ok());
  fs::create_symlink(target, path_);
  ASSERT_TRUE(write_whole(path_, "new").ok());
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(contents(), "new");
}

TEST_F(WholeFile, APipeIsWrittenNotReplaced) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const int reader = ::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  EXPECT_TRUE(check_writable(path_).ok());
  EXPECT_TRUE(write_whole(path_, "text").ok());
  std::string read(4, '\0');
  EXPECT_EQ(::read(reader, read.data(), read.size()), 4);
  EXPECT_EQ(read, "text");
  EXPECT_TRUE(fs::is_fifo(path_));
  ::close(reader);
}

TEST_F(WholeFile, FoldersAndMissingFoldersAreRefusedByName) {
  for (const fs::path& place : {folder_.path(), folder_ / "no/out.json"}) {
    const std::string path = place;
    EXPECT_NE(check_writable(path).text().find(path), std::string::npos);
    EXPECT_NE(write_whole(path, "text").text().find(path), std::string::npos);
  }
}

}  // namespace
}  // namespace attune::base
