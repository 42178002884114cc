// A suite is worth what it catches: the reference with one fault planted must fail, and for the
// right reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include <attune/sparse_call.hpp>

#include "backends/reference/descriptor.hpp"
#include "conformance/suite.hpp"
#include "machine.hpp"

namespace attune::conformance {
namespace {

using ::testing::HasSubstr;

enum class Fault {
  none,
  lse_in_base_2,
  window_off_by_one,
  no_sinks,
  no_soft_cap,
  writes_behind_o,
  leaves_empty_rows,
  workspace_has_slack,
  writes_into_the_cache,
  refuses_caps,
  keeps_one_key_fewer,
  lists_unlike_what_was_read,
  index_keys_into_other_slots,
};

/// The reference with one fault.
class Faulty final : public Backend {
 public:
  Faulty(std::unique_ptr<Backend> inner, Fault fault) : inner_(std::move(inner)), fault_(fault) {}

  [[nodiscard]] const BackendDescriptor& descriptor() const override {
    return inner_->descriptor();
  }
  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override {
    WorkspaceSize size = inner_->workspace_size(bounds);
    if (fault_ == Fault::workspace_has_slack) size.device_bytes += 256;
    return size;
  }
  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                          Stream stream) override {
    return inner_->plan(batch, workspace, stream);
  }
  Status append_kv(const LayerCall& given, Stream stream) override {
    if (fault_ != Fault::index_keys_into_other_slots || given.slot_mapping.empty())
      return inner_->append_kv(given, stream);
    SparseCall latents_only = *given.sparse;
    latents_only.index_k = {};
    LayerCall call = given;
    call.sparse = &latents_only;
    return inner_->append_kv(call, stream);
  }
  Status refresh(Plan& plan, const BatchView& batch, Stream stream) override {
    return inner_->refresh(plan, batch, stream);
  }
  Status run(const Plan& plan, const LayerCall& given, Stream stream) override {
    LayerCall call = given;
    if (fault_ == Fault::no_sinks) call.sinks = nullptr;
    if (fault_ == Fault::keeps_one_key_fewer) return run_short_lists(plan, call, stream);
    Status status = inner_->run(plan, call, stream);
    if (status.ok()) spoil(call);
    return status;
  }

 private:
  /// Chooses, drops each list's last entry, attends to the rest.
  Status run_short_lists(const Plan& plan, const LayerCall& call, Stream stream) {
    if (Status s = inner_->run(plan, call, stream); !s.ok()) return s;
    const TensorView& lists = call.sparse->topk_indices;
    std::vector<std::int32_t> dropped;
    for (std::int64_t row = 0; row < lists.shape[0]; ++row) {
      std::int32_t& last = lists.as<std::int32_t>()[row * lists.stride[0] + lists.shape[1] - 1];
      dropped.push_back(last);
      last = -1;
    }
    SparseCall given{.topk_indices = lists};
    LayerCall again = call;
    again.sparse = &given;
    Status status = inner_->run(plan, again, stream);
    for (std::int64_t row = 0; row < lists.shape[0]; ++row)
      lists.as<std::int32_t>()[row * lists.stride[0] + lists.shape[1] - 1] =
          dropped[static_cast<std::size_t>(row)];
    return status;
  }

  void spoil(const LayerCall& call) const {
    const bool first_row_empty =
        call.lse.defined() && call.lse.num_elements() > 0 && call.lse.as<float>()[0] < -1e30f;
    if (fault_ == Fault::lse_in_base_2 && call.lse.defined())
      for (std::int64_t i = 0; i < call.lse.num_elements(); ++i)
        call.lse.as<float>()[i] *= 1.4426950f;
    auto* o = static_cast<unsigned char*>(call.o.data);
    if (fault_ == Fault::writes_behind_o)
      o[static_cast<std::size_t>(call.o.shape[0] * call.o.stride[0]) * size_of(call.o.dtype)] = 0;
    if (fault_ == Fault::leaves_empty_rows && first_row_empty) o[0] = o[1] = o[2] = o[3] = 0xff;
    if (fault_ == Fault::lists_unlike_what_was_read && call.sparse->topk_indices.num_elements() > 0)
      ++*call.sparse->topk_indices.as<std::int32_t>();
    if (fault_ == Fault::writes_into_the_cache && call.k_cache.defined())
      ++*static_cast<char*>(call.k_cache.data);
  }

  std::unique_ptr<Backend> inner_;
  Fault fault_;
};

std::string failures_with(Fault fault, const char* match) {
  const Machine machine;
  Subject subject = machine.subject(backends::reference::kDescriptor, nullptr);
  subject.make = [fault](const BackendContext& given) -> Result<std::unique_ptr<Backend>> {
    BackendContext context = given;
    AttentionSpec& spec = context.spec;
    if (fault == Fault::refuses_caps && spec.logits_soft_cap > 0)
      return unsupported("no caps today");
    if (fault == Fault::window_off_by_one && spec.window_left >= 0) ++spec.window_left;
    if (fault == Fault::no_soft_cap) spec.logits_soft_cap = 0.0f;
    if (fault == Fault::no_sinks) spec.sinks = false;
    auto inner = backends::reference::make(context);
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

TEST(PlantedFaults, AreAllFound) {
  EXPECT_EQ(failures_with(Fault::none, "gqa/*tails*"), "");
  EXPECT_THAT(failures_with(Fault::lse_in_base_2, "gqa/*tails*"), HasSubstr("lse of row"));
  EXPECT_THAT(failures_with(Fault::window_off_by_one, "gqa/*every_window_start*"),
              HasSubstr("tolerance"));
  EXPECT_THAT(failures_with(Fault::no_sinks, "gqa/*sinks*matches_reference"),
              HasSubstr("tolerance"));
  EXPECT_THAT(failures_with(Fault::no_soft_cap, "gqa/*cap*matches_reference"),
              HasSubstr("tolerance"));
  EXPECT_THAT(failures_with(Fault::writes_behind_o, "gqa/*tails*"),
              HasSubstr("behind o were overwritten"));
  EXPECT_THAT(failures_with(Fault::leaves_empty_rows, "gqa/*one_key_each*"),
              HasSubstr("nan, want 0.0"));
  EXPECT_THAT(failures_with(Fault::workspace_has_slack, "gqa/*workspace_exact"),
              HasSubstr("was accepted"));
  EXPECT_THAT(failures_with(Fault::writes_into_the_cache, "gqa/*tails*"),
              HasSubstr("into the cache"));
  EXPECT_THAT(failures_with(Fault::refuses_caps, "gqa/*cap*matches_reference"),
              HasSubstr("declared, yet refused"));
  EXPECT_EQ(failures_with(Fault::none, "sparse_mla/prefill/bf16/hd96x64*tails*"), "");
  EXPECT_THAT(failures_with(Fault::keeps_one_key_fewer, "sparse_mla/prefill/bf16/hd96x64*tails*"),
              HasSubstr("tolerance"));
  EXPECT_THAT(
      failures_with(Fault::lists_unlike_what_was_read, "sparse_mla/prefill/bf16/hd96x64*tails*"),
      HasSubstr("topk_indices of query 0"));
  EXPECT_THAT(failures_with(Fault::index_keys_into_other_slots,
                            "sparse_mla/prefill/bf16/hd96x64*append_then_run"),
              HasSubstr("not what was appended"));
}

}  // namespace
}  // namespace attune::conformance
