// The suite over the backends of this build: smoke runs and full runs, cut so that each stays
// short.
#include "conformance/suite.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "backends/cpu/descriptor.hpp"
#include "backends/cpu/with_cascade.hpp"
#include "backends/flashinfer/descriptor.hpp"
#include "backends/intel_amx/descriptor.hpp"
#include "backends/reference/descriptor.hpp"
#include "backends/torch_native/descriptor.hpp"
#include "conformance/cases.hpp"
#include "machine.hpp"

namespace attune::conformance {
namespace {

struct Built {
  std::string_view label;
  const BackendDescriptor* descriptor;
  BackendFactory make;
  CpuIsa cap = CpuIsa::amx;  ///< as --force-isa
  int least_threads = 2;
};

/// Whatever its cost test says of these small shapes.
Result<std::unique_ptr<Backend>> make_sharing_cpu(const BackendContext& context) {
  return backends::cpu::make_with_cascade(context, plan::CascadeMode::always);
}

void PrintTo(const Built& built, std::ostream* out) { *out << built.label; }

class EveryBackend : public ::testing::TestWithParam<Built> {
 protected:
  void expect_all_pass(const SuiteOptions& options) const {
    const SuiteReport report =
        run_suite(machine_.subject(*GetParam().descriptor, GetParam().make), options);
    double total = 0.0;
    CaseResult slowest;
    for (const CaseResult& r : report.cases) {
      EXPECT_NE(r.outcome.verdict, Verdict::failed) << r.name << ": " << r.outcome.reason;
      total += r.seconds;
      if (r.seconds > slowest.seconds) slowest = r;
    }
    std::printf("%d passed, %d failed, %d skipped in %.1f s; slowest %.2f s: %s\n",
                report.count(Verdict::passed), report.count(Verdict::failed),
                report.count(Verdict::skipped), total, slowest.seconds, slowest.name.c_str());
    EXPECT_FALSE(report.cases.empty());
  }

 private:
  Machine machine_{GetParam().cap, GetParam().least_threads};
};

TEST_P(EveryBackend, Smoke) { expect_all_pass({}); }
TEST_P(EveryBackend, FullGqaDecode) { expect_all_pass({.full = true, .match = "gqa/decode/*"}); }
TEST_P(EveryBackend, FullGqaPrefill) { expect_all_pass({.full = true, .match = "gqa/prefill/*"}); }
TEST_P(EveryBackend, FullMla) { expect_all_pass({.full = true, .match = "mla/*"}); }

constexpr Built kBuilt[] = {
    {"reference", &backends::reference::kDescriptor, backends::reference::kMake},
    {"torch_native", &backends::torch_native::kDescriptor, backends::torch_native::kMake},
    {"cpu", &backends::cpu::kDescriptor, backends::cpu::kMake},
    {"cpu_avx512", &backends::cpu::kDescriptor, backends::cpu::kMake, CpuIsa::avx512},
    {"cpu_avx2", &backends::cpu::kDescriptor, backends::cpu::kMake, CpuIsa::avx2},
    {"cpu_scalar", &backends::cpu::kDescriptor, backends::cpu::kMake, CpuIsa::scalar},
    // On real tiles, where there are some; tests/backends/intel_amx_test.cpp emulates them.
    {"intel_amx", &backends::intel_amx::kDescriptor, backends::intel_amx::kMake},
};

class EverySharing : public EveryBackend {};

/// Shared prefixes with every other factor, all levels taken.
TEST_P(EverySharing, FullShared) { expect_all_pass({.full = true, .match = "*shared*"}); }

constexpr Built kSharing[] = {
    // Enough threads that long levels are cut along their keys.
    {"cpu", &backends::cpu::kDescriptor, &make_sharing_cpu, CpuIsa::amx, 16},
    {"cpu_avx2", &backends::cpu::kDescriptor, &make_sharing_cpu, CpuIsa::avx2},
    {"cpu_scalar", &backends::cpu::kDescriptor, &make_sharing_cpu, CpuIsa::scalar},
};

INSTANTIATE_TEST_SUITE_P(Conformance, EverySharing, ::testing::ValuesIn(kSharing),
                         [](const auto& built) { return std::string(built.param.label); });

INSTANTIATE_TEST_SUITE_P(Conformance, EveryBackend, ::testing::ValuesIn(kBuilt),
                         [](const auto& built) { return std::string(built.param.label); });

TEST(Suite, NamesAreUniqueAndReadable) {
  const Machine machine;
  const auto names =
      case_names(machine.subject(backends::reference::kDescriptor, backends::reference::kMake),
                 {.full = true});
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_THAT(names, ::testing::Contains(
                         ::testing::StartsWith("gqa/decode/bf16/hd128/gqa4/page16/b6x333")));
}

/// A name's parts before and after its types, and its types.
std::pair<std::string, std::string> split_types(const std::string& name) {
  const std::size_t begin = name.find('/', name.find('/') + 1) + 1;
  const std::size_t end = name.find('/', begin);
  return {name.substr(0, begin) + name.substr(end), name.substr(begin, end - begin)};
}

TEST(Suite, OneDtypeKeepsEveryAnswerAndEveryShapeOnce) {
  const Machine machine;
  Subject subject = machine.subject(backends::flashinfer::kDescriptor, nullptr);
  subject.device = {.kind = DeviceKind::cuda, .sm = 90};
  const auto all = case_names(subject, {});
  const auto kept = case_names(subject, {.every_dtype = false});
  EXPECT_LT(kept.size(), all.size());
  const auto holds_answers = [](const std::string& name) {
    return name.ends_with("/append_then_run") || name.find("/matches_reference") != name.npos;
  };
  std::set<std::string> shapes;
  std::set<std::string> types;
  for (const std::string& name : kept) {
    if (holds_answers(name)) continue;
    const auto [shape, type] = split_types(name);
    EXPECT_TRUE(shapes.insert(shape).second) << shape;
    types.insert(type);
  }
  for (const std::string& name : all) {
    if (holds_answers(name)) {
      EXPECT_THAT(kept, ::testing::Contains(name));
    } else {
      EXPECT_TRUE(shapes.contains(split_types(name).first)) << name;
    }
  }
  EXPECT_GT(types.size(), 1u);
}

TEST(Suite, EveryDeclaredWordIsReachedByACase) {
  for (const Capability& row : backends::reference::kDescriptor.capabilities) {
    if (is_linear(row.variants[0])) continue;  // linear_suite_test.cpp
    std::set<std::string> open = declared_by(row);
    for (const Case& one : make_cases(row, 0))
      for (const std::string& word : exercised_by(one, row)) open.erase(word);
    EXPECT_THAT(open, ::testing::IsEmpty());
  }
}

TEST(Suite, GlobsMatchWholeNames) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("gqa/*/hd128/*", "gqa/decode/bf16/hd128/gqa4/page16"));
  EXPECT_TRUE(glob_match("*page1?*", "gqa/page16/x"));
  EXPECT_FALSE(glob_match("gqa/decode", "gqa/decode/bf16"));
  EXPECT_FALSE(glob_match("mla/*", "gqa/decode"));
}

}  // namespace
}  // namespace attune::conformance
