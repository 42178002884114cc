// Exponents of cost: fitted to series of rows that differ in one number.
#include "bench/growth.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "support/scratch_folder.hpp"

namespace attune::bench {
namespace {

GrowthPoint point(const std::string& name, double ms, double floor_ms, int threads = 1) {
  return {.case_name = name, .backend = "cpu", .threads = threads, .ms = ms, .floor_ms = floor_ms};
}

TEST(Growth, IsFittedWhereOneNumberVaries) {
  const std::string prefix = "gqa/prefill/bf16/hd128/gqa4/page16/b1x";
  std::vector<GrowthPoint> points;
  for (const int length : {512, 1024, 4096})
    points.push_back(
        point(prefix + std::to_string(length), 3e-6 * length * length, std::pow(length, 1.5)));
  for (const int heads : {8, 16, 32})
    points.push_back(
        point("gdn/prefill/bf16/hd128/h" + std::to_string(heads) + "/b1x4096", 0.5 * heads, heads));
  const std::vector<Growth> fits = fit_growth(points);
  ASSERT_EQ(fits.size(), 2u);
  EXPECT_EQ(fits[0].series, prefix + "N, 1 thread, cpu");
  EXPECT_EQ(fits[0].varies, "length");
  EXPECT_EQ(fits[0].values, (std::vector<int>{512, 1024, 4096}));
  EXPECT_NEAR(fits[0].exponent, 2.0, 1e-9);
  EXPECT_NEAR(fits[0].floor_exponent, 1.5, 1e-9);
  EXPECT_EQ(fits[1].series, "gdn/prefill/bf16/hd128/hN/b1x4096, 1 thread, cpu");
  EXPECT_EQ(fits[1].varies, "heads");
  EXPECT_NEAR(fits[1].exponent, 1.0, 1e-9);
}

TEST(Growth, OfThreadsNeedsTwoRuns) {
  const std::string name = "gqa/decode/bf16/hd128/gqa4/page16/b8x4096";
  EXPECT_TRUE(fit_growth({point(name, 4.0, 2.0)}).empty());
  const auto fits = fit_growth({point(name, 4.0, 2.0), point(name, 2.0, 1.0, 2)});
  ASSERT_EQ(fits.size(), 1u);
  EXPECT_EQ(fits[0].varies, "threads");
  EXPECT_NEAR(fits[0].exponent, -1.0, 1e-9);
}

TEST(Growth, ReadsResultFilesOfOneDevice) {
  const testing_support::ScratchFolder folder;
  const auto write = [&](const char* file, const char* device) {
    const std::string path = (folder / file).string();
    std::ofstream(path) << R"({"machine": {"threads": 2}, "rows": [{"case": "c", "backend": "cpu",)"
                        << R"("device": ")" << device
                        << R"(", "ms": 4.0, "percent_of_ceiling": 25.0}]})";
    return path;
  };
  const std::string cpu = write("cpu.json", "cpu");
  const auto points = read_growth({cpu});
  ASSERT_TRUE(points.ok()) << points.status().text();
  ASSERT_EQ(points->size(), 1u);
  EXPECT_EQ(points->front().threads, 2);
  EXPECT_DOUBLE_EQ(points->front().floor_ms, 1.0);
  EXPECT_EQ(read_growth({cpu, write("gpu.json", "cuda")}).status().code(),
            StatusCode::invalid_argument);
  EXPECT_EQ(read_growth({(folder / "none").string()}).status().code(),
            StatusCode::invalid_argument);
}

}  // namespace
}  // namespace attune::bench
