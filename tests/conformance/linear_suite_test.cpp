// The suite over the linear backends of this build, and faults it must catch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <ostream>
#include <set>
#include <string>

#include <attune/linear_state.hpp>

#include "backends/gdn/descriptor.hpp"
#include "backends/kda/descriptor.hpp"
#include "backends/lightning/descriptor.hpp"
#include "backends/mamba2/descriptor.hpp"
#include "backends/reference/descriptor.hpp"
#include "backends/short_conv/descriptor.hpp"
#include "conformance/cases.hpp"
#include "conformance/suite.hpp"
#include "machine.hpp"

namespace attune::conformance {
namespace {

using ::testing::HasSubstr;

struct Built {
  std::string_view label;
  const BackendDescriptor* descriptor;
  BackendFactory make;
  Variant variant;
  CpuIsa cap = CpuIsa::amx;  ///< as --force-isa
};

void PrintTo(const Built& built, std::ostream* out) { *out << built.label; }

class LinearSuite : public ::testing::TestWithParam<Built> {};

TEST_P(LinearSuite, Full) {
  const Machine machine(GetParam().cap);
  const std::string match = std::string(name(GetParam().variant)) + "/*";
  const SuiteReport report = run_suite(machine.subject(*GetParam().descriptor, GetParam().make),
                                       {.full = true, .match = match});
  double total = 0.0;
  for (const CaseResult& r : report.cases) {
    EXPECT_EQ(r.outcome.verdict, Verdict::passed) << r.name << ": " << r.outcome.reason;
    total += r.seconds;
  }
  EXPECT_GT(report.cases.size(), 30u);
  std::printf("%zu cases in %.1f s\n", report.cases.size(), total);
}

constexpr Built kBuilt[] = {
    {"reference_gdn", &backends::reference::kDescriptor, backends::reference::kMake, Variant::gdn},
    {"reference_kda", &backends::reference::kDescriptor, backends::reference::kMake, Variant::kda},
    {"reference_mamba2", &backends::reference::kDescriptor, backends::reference::kMake,
     Variant::mamba2},
    {"reference_lightning", &backends::reference::kDescriptor, backends::reference::kMake,
     Variant::lightning},
    {"reference_short_conv", &backends::reference::kDescriptor, backends::reference::kMake,
     Variant::short_conv},
    {"gdn", &backends::gdn::kDescriptor, backends::gdn::kMake, Variant::gdn},
    {"kda", &backends::kda::kDescriptor, backends::kda::kMake, Variant::kda},
    {"mamba2", &backends::mamba2::kDescriptor, backends::mamba2::kMake, Variant::mamba2},
    {"lightning", &backends::lightning::kDescriptor, backends::lightning::kMake,
     Variant::lightning},
    {"short_conv", &backends::short_conv::kDescriptor, backends::short_conv::kMake,
     Variant::short_conv},
    {"gdn_avx2", &backends::gdn::kDescriptor, backends::gdn::kMake, Variant::gdn, CpuIsa::avx2},
    {"kda_avx2", &backends::kda::kDescriptor, backends::kda::kMake, Variant::kda, CpuIsa::avx2},
    {"mamba2_avx2", &backends::mamba2::kDescriptor, backends::mamba2::kMake, Variant::mamba2,
     CpuIsa::avx2},
    {"short_conv_avx2", &backends::short_conv::kDescriptor, backends::short_conv::kMake,
     Variant::short_conv, CpuIsa::avx2},
    {"gdn_scalar", &backends::gdn::kDescriptor, backends::gdn::kMake, Variant::gdn, CpuIsa::scalar},
    {"kda_scalar", &backends::kda::kDescriptor, backends::kda::kMake, Variant::kda, CpuIsa::scalar},
    {"mamba2_scalar", &backends::mamba2::kDescriptor, backends::mamba2::kMake, Variant::mamba2,
     CpuIsa::scalar},
    {"short_conv_scalar", &backends::short_conv::kDescriptor, backends::short_conv::kMake,
     Variant::short_conv, CpuIsa::scalar},
};

INSTANTIATE_TEST_SUITE_P(Conformance, LinearSuite, ::testing::ValuesIn(kBuilt),
                         [](const auto& built) { return std::string(built.param.label); });

TEST(LinearCases, ReachEveryDeclaredWord) {
  for (const BackendDescriptor* backend :
       {&backends::gdn::kDescriptor, &backends::kda::kDescriptor, &backends::mamba2::kDescriptor,
        &backends::lightning::kDescriptor, &backends::short_conv::kDescriptor}) {
    const Capability& row = backend->capabilities[0];
    std::set<std::string> open = declared_by(row);
    std::set<std::string> names;
    for (const Case& one : make_cases(row, 0)) {
      for (const std::string& word : exercised_by(one, row)) open.erase(word);
      EXPECT_TRUE(names.insert(one.name).second) << one.name;
    }
    EXPECT_THAT(open, ::testing::IsEmpty());
  }
}

enum class Fault {
  none,
  forgets_the_convolution,
  writes_rows_of_padding,
  writes_a_free_slot,
  state_rounded_to_bf16,
  ignores_beta_scale,
  leaves_the_state,
};

/// gdn with one fault.
class Faulty final : public Backend {
 public:
  Faulty(std::unique_ptr<Backend> inner, Fault fault) : inner_(std::move(inner)), fault_(fault) {}

  [[nodiscard]] const BackendDescriptor& descriptor() const override {
    return inner_->descriptor();
  }
  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override {
    return inner_->workspace_size(bounds);
  }
  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                          Stream stream) override {
    slots_.assign(batch.state_indices.begin(), batch.state_indices.end());
    first_rows_.assign(batch.qo_indptr.begin(), batch.qo_indptr.end());
    return inner_->plan(batch, workspace, stream);
  }
  Status append_kv(const LayerCall& call, Stream stream) override {
    return inner_->append_kv(call, stream);
  }
  Status refresh(Plan& plan, const BatchView& batch, Stream stream) override {
    return inner_->refresh(plan, batch, stream);
  }
  Status run(const Plan& plan, const LayerCall& given, Stream stream) override {
    if (given.linear == nullptr) return inner_->run(plan, given, stream);
    LayerCall call = given;
    LinearCall linear = *given.linear;
    call.linear = &linear;
    if (fault_ == Fault::ignores_beta_scale) linear.beta_scale = 1.0f;
    if (fault_ == Fault::forgets_the_convolution)
      for (std::int32_t slot : slots_)
        if (slot >= 0) clear(linear.conv_state, slot);
    Status status = inner_->run(plan, call, stream);
    if (status.ok()) spoil(call);
    return status;
  }

 private:
  static char* row(const TensorView& view, std::int64_t at) {
    return static_cast<char*>(view.data) +
           at * view.stride[0] * static_cast<std::int64_t>(size_of(view.dtype));
  }
  static void clear(const TensorView& view, std::int64_t slot) {
    const auto bytes = static_cast<std::size_t>(view.stride[0]) * size_of(view.dtype);
    std::fill_n(row(view, slot), bytes, 0);
  }
  void spoil(const LayerCall& call) const {
    const TensorView& state = call.linear->state;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i] < 0 && fault_ == Fault::writes_rows_of_padding && call.o.shape[0] > 0)
        *row(call.o, first_rows_[i]) = 0;
      if (slots_[i] < 0) continue;
      if (fault_ == Fault::leaves_the_state) clear(state, slots_[i]);
      if (fault_ == Fault::state_rounded_to_bf16)
        for (std::int64_t c = 0; c < state.stride[0]; ++c) {
          char* element = row(state, slots_[i]) + c * 4;
          element[0] = element[1] = 0;
        }
    }
    if (fault_ == Fault::writes_a_free_slot)
      for (std::int32_t slot = 0; slot < state.shape[0]; ++slot)
        if (std::find(slots_.begin(), slots_.end(), slot) == slots_.end()) *row(state, slot) = 0;
  }

  std::unique_ptr<Backend> inner_;
  Fault fault_;
  std::vector<std::int32_t> slots_, first_rows_;
};

std::string failures_with(Fault fault, const char* match) {
  const Machine machine;
  Subject subject = machine.subject(backends::gdn::kDescriptor, nullptr);
  subject.make = [fault](const BackendContext& context) -> Result<std::unique_ptr<Backend>> {
    auto inner = backends::gdn::make(context);
    if (!inner.ok()) return inner;
    return std::unique_ptr<Backend>(std::make_unique<Faulty>(std::move(*inner), fault));
  };
  const SuiteReport report = run_suite(subject, {.match = match});
  EXPECT_FALSE(report.cases.empty()) << match;
  std::string text;
  for (const CaseResult& r : report.cases)
    if (r.outcome.verdict == Verdict::failed) text += r.name + ": " + r.outcome.reason + "\n";
  return text;
}

TEST(LinearPlantedFaults, AreAllFound) {
  constexpr auto kAll = "gdn/*matches_reference";
  EXPECT_EQ(failures_with(Fault::none, kAll), "");
  EXPECT_THAT(failures_with(Fault::forgets_the_convolution, kAll), HasSubstr("tolerance"));
  EXPECT_THAT(failures_with(Fault::writes_rows_of_padding, kAll),
              HasSubstr("though it is padding"));
  EXPECT_THAT(failures_with(Fault::writes_a_free_slot, kAll), HasSubstr("which no request owns"));
  EXPECT_THAT(failures_with(Fault::state_rounded_to_bf16, kAll), HasSubstr("the state of row"));
  EXPECT_THAT(failures_with(Fault::ignores_beta_scale, kAll), HasSubstr("rich"));
  EXPECT_THAT(failures_with(Fault::leaves_the_state, kAll), HasSubstr("the state of row"));
  EXPECT_THAT(failures_with(Fault::leaves_the_state, "gdn/*resumes_anywhere"),
              HasSubstr("pieces of 2"));
}

}  // namespace
}  // namespace attune::conformance
