// Converted weights kept in a file: what is read is what was made, and nothing else is ever read.
#include "model/weights/converted_weights.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "device/thread_pool.hpp"
#include "model/cpu_ops.hpp"
#include "support/scratch_folder.hpp"

namespace attune::model {
namespace {

namespace fs = std::filesystem;
using State = ConvertedWeights::State;

constexpr std::uint64_t kSource = 77;

std::vector<std::byte> noise(std::size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(engine());
  return bytes;
}

class ConvertedWeightsTest : public testing::Test {
 protected:
  std::unique_ptr<ConvertedWeights> open(std::uint64_t source = kSource) {
    auto opened = ConvertedWeights::open(path_, source);
    EXPECT_TRUE(opened.ok()) << opened.status().text();
    return opened.ok() ? std::move(*opened) : nullptr;
  }
  void make_file() {
    auto made = open();
    ASSERT_EQ(made->state(), State::absent);
    for (std::uint64_t key = 0; key < records_.size(); ++key) made->write(key, records_[key]);
    ASSERT_TRUE(made->finish().ok());
  }
  bool reads(ConvertedWeights& file, std::uint64_t key) const {
    std::vector<std::byte> out(records_[key].size());
    return file.read(key, out) && out == records_[key];
  }
  std::string contents() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void replace(const std::string& contents) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << contents;
  }

  testing_support::ScratchFolder folder_;
  std::string path_ = folder_ / "weights";
  std::vector<std::vector<std::byte>> records_{noise(1, 1), noise(64, 2), noise(100000, 3),
                                               noise(0, 4), noise(4099, 5)};
};

TEST_F(ConvertedWeightsTest, ReadsWhatWasWritten) {
  make_file();
  auto file = open();
  ASSERT_EQ(file->state(), State::complete);
  for (std::uint64_t key = records_.size(); key-- > 0;) EXPECT_TRUE(reads(*file, key)) << key;
  ASSERT_TRUE(file->finish().ok());
  EXPECT_TRUE(fs::exists(path_));
}

TEST_F(ConvertedWeightsTest, OtherSourcesKeysAndSizesAreNotRead) {
  make_file();
  EXPECT_EQ(open(kSource + 1)->state(), State::other);
  auto file = open();
  std::vector<std::byte> out(63);
  EXPECT_FALSE(file->read(1, out));
  EXPECT_FALSE(file->read(records_.size(), out));
}

TEST_F(ConvertedWeightsTest, EveryCutIsFound) {
  make_file();
  const std::string whole = contents();
  for (std::size_t n : {std::size_t{0}, std::size_t{5}, std::size_t{63}, std::size_t{64},
                        std::size_t{5000}, whole.size() / 2, whole.size() - 1}) {
    replace(whole.substr(0, n));
    EXPECT_EQ(open()->state(), State::truncated) << n;
  }
}

TEST_F(ConvertedWeightsTest, AChangedByteIsFound) {
  make_file();
  const std::string whole = contents();
  std::mt19937 engine(9);
  constexpr std::size_t kNameBytes = 15;  // a file that begins otherwise is somebody else's
  for (int i = 0; i < 200; ++i) {
    std::string changed = whole;
    const std::size_t at = kNameBytes + engine() % (whole.size() - kNameBytes);
    changed[at] = static_cast<char>(changed[at] ^ (1 << engine() % 8));
    replace(changed);
    auto file = open();
    if (file->state() != State::complete) continue;
    // Whatever is read is right; what is not read is made again by the caller.
    for (std::uint64_t key = 0; key < records_.size(); ++key) {
      std::vector<std::byte> out(records_[key].size());
      EXPECT_TRUE(!file->read(key, out) || out == records_[key]) << "byte " << at;
    }
  }
}

TEST_F(ConvertedWeightsTest, ADamagedFileGoesAndAnUnfinishedOneLeavesNothing) {
  make_file();
  std::string changed = contents();
  changed[64 + 64 + 64] ^= 1;
  replace(changed);
  auto file = open();
  ASSERT_EQ(file->state(), State::complete);
  for (std::uint64_t key = 0; key < records_.size(); ++key) (void)reads(*file, key);
  EXPECT_TRUE(file->finish().ok());
  EXPECT_FALSE(fs::exists(path_));
  {
    auto unfinished = open();
    unfinished->write(1, records_[1]);
    const int probe = ::open(folder_.path().c_str(), O_TMPFILE | O_RDWR, 0600);
    EXPECT_TRUE(probe < 0 || fs::is_empty(folder_.path()));  // whatever stops the run now
    ::close(probe);
  }
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(ConvertedWeightsTest, AFolderThatIsNotThereIsRefusedAtOnce) {
  const auto opened = ConvertedWeights::open(folder_ / "none/weights", kSource);
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().text().find("none/weights"), std::string::npos);
}

TEST_F(ConvertedWeightsTest, WhatIsNotConvertedWeightsIsNeverReplaced) {
  for (const char* other : {"GGUF and gigabytes of somebody's model", "x", "attune tables 1"}) {
    replace(other);
    const auto opened = ConvertedWeights::open(path_, kSource);
    ASSERT_FALSE(opened.ok()) << other;
    EXPECT_NE(opened.status().text().find("name another"), std::string::npos);
    EXPECT_EQ(contents(), other);
  }
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_FALSE(ConvertedWeights::open(path_, kSource).ok());
  fs::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(ConvertedWeights::open(path_, kSource).ok());  // and nobody waits for its writer
}

TEST_F(ConvertedWeightsTest, KeysTellWeightsApart) {
  const std::vector<std::byte> bytes = noise(32 * 18, 6);
  std::vector<std::byte> others = bytes;
  others.back() ^= std::byte{1};
  const WeightView view{
      .data = bytes.data(), .type = WeightType::q4_0, .rank = 2, .shape = {32, 32}};
  WeightView turned = view;
  turned.shape = {16, 64};
  WeightView changed = view;
  changed.data = others.data();
  const std::uint64_t key = ConvertedWeights::key_of(view, WeightType::bf16);
  EXPECT_EQ(key, ConvertedWeights::key_of(view, WeightType::bf16));
  EXPECT_NE(key, ConvertedWeights::key_of(view, WeightType::f32));
  EXPECT_NE(key, ConvertedWeights::key_of(turned, WeightType::bf16));
  EXPECT_NE(key, ConvertedWeights::key_of(changed, WeightType::bf16));
}

TEST_F(ConvertedWeightsTest, ProductsHaveTheSameBits) {
  auto pool = device::ThreadPool::make({.num_threads = 2});
  ASSERT_TRUE(pool.ok());
  // Blocks of q4_0: a half as scale, 16 bytes of digits.
  constexpr std::int64_t kRows = 50, kColumns = 96;
  std::vector<std::byte> blocks = noise(kRows * kColumns / 32 * 18, 7);
  for (std::size_t b = 0; b < blocks.size(); b += 18) blocks[b + 1] = std::byte{0x2c};
  const WeightView view{
      .data = blocks.data(), .type = WeightType::q4_0, .rank = 2, .shape = {kRows, kColumns}};
  std::vector<float> x(3 * kColumns);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8.0f;
  for (const CpuWeights form : {CpuWeights::as_stored, CpuWeights::bf16, CpuWeights::f32}) {
    std::vector<std::vector<float>> answers;
    for (const State found : {State::absent, State::complete}) {
      auto file = open(kSource + static_cast<std::uint64_t>(form));
      EXPECT_EQ(file->state() == State::complete, found == State::complete);
      auto ops =
          make_cpu_ops(**pool, {.weights = form, .isa = cpu_device().isa, .converted = file.get()});
      ASSERT_TRUE(ops.ok());
      auto linear = (*ops)->make_linear({.weights = std::span(&view, 1)});
      ASSERT_TRUE(linear.ok());
      ASSERT_TRUE(file->finish().ok());
      std::vector<float> y(3 * kRows);
      (*ops)->linear(**linear, TensorView::dense(x.data(), DType::f32, {3, kColumns}),
                     TensorView::dense(y.data(), DType::f32, {3, kRows}));
      ASSERT_TRUE((*ops)->synchronize().ok());
      answers.push_back(std::move(y));
    }
    EXPECT_EQ(answers[0], answers[1]);
    EXPECT_TRUE(fs::exists(path_));
  }
}

}  // namespace
}  // namespace attune::model
