// The project's golden models on every backend that this machine can use: what `attune verify
// --golden` does.
#include "conformance/golden.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <attune/registry.hpp>

#include "device/thread_pool.hpp"
#include "model/config_parse.hpp"
#include "model/cpu_ops.hpp"

namespace attune::conformance {
namespace {

std::string models_folder() { return std::string(ATTUNE_SOURCE_DIR) + "/tests/golden/models"; }

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(models_folder()))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// The families whose every layer is softmax attention over a cache: reference and cpu take all of
/// them, and torch_native refuses only what its descriptor does not name.
const std::set<std::string> kDense{
    "cohere2",     "exaone4", "gemma2",      "gemma3_text", "gemma4_text",   "gpt_oss",
    "granite_swa", "llama",   "llama4_text", "minimax_m2",  "mimo_v2_flash", "mistral",
    "olmo3",       "qwen2",   "qwen2_1m",    "qwen3",       "smollm3"};
const std::set<std::string> kReasons{"soft_cap", "sinks", "attention_chunk", "variant"};

class GoldenModel : public testing::TestWithParam<std::string> {
 protected:
  Result<GoldenOutcome> run(std::string_view backend) {
    GoldenRun run;
    run.folder = models_folder() + "/" + GetParam();
    auto ops =
        model::make_cpu_ops(*threads_, {.weights = model::CpuWeights::f32, .isa = device_.isa});
    if (!ops.ok()) return ops.status();
    run.ops = ops->get();
    run.tolerance = golden_tolerance(DType::f32);
    run.make_backends = [this, backend](const model::ModelConfig& config, std::int32_t page_size) {
      runtime::BackendRequest request;
      request.device = device_;
      request.selection.prefill = request.selection.decode = std::string(backend);
      request.selection.page_size = page_size;
      request.selection.kv_dtype = DType::f32;
      request.dtypes = {.compute = DType::f32, .kv = DType::f32};
      return runtime::make_backends(*registry_, config, request, *threads_);
    };
    return check_golden(run);
  }

  DeviceInfo device_ = cpu_device();
  Result<Registry> registry_ = Registry::open({});
  std::unique_ptr<device::ThreadPool> threads_ =
      std::move(device::ThreadPool::make({.num_threads = 2})).value();
};

TEST_P(GoldenModel, AgreesOnEveryBackend) {
  int passed = 0;
  for (const BackendStanding& standing : registry_->standings(device_)) {
    if (!standing.usable) continue;
    const std::string backend(standing.descriptor->name);
    SCOPED_TRACE(backend);
    const Result<GoldenOutcome> outcome = run(backend);
    if (!outcome.ok()) {
      ASSERT_EQ(outcome.status().code(), StatusCode::unsupported) << outcome.status().text();
      ASSERT_FALSE(outcome.status().refusals().empty()) << outcome.status().text();
      if (!kDense.contains(GetParam())) continue;
      const std::string rule = outcome.status().refusals()[0].rule;
      // Where there are tiles: they multiply bf16, and these runs are in fp32.
      if (backend == "intel_amx" && rule == "q_dtype") continue;
      EXPECT_TRUE(kReasons.contains(rule)) << rule;
      EXPECT_TRUE(backend != "reference" && backend != "cpu");
      continue;
    }
    EXPECT_LE(outcome->max_excess, 1.0)
        << outcome->worst << ", largest error " << outcome->max_abs_err;
    EXPECT_TRUE(outcome->tokens_match);
    EXPECT_GT(outcome->num_logits, 0);
    ++passed;
  }
  EXPECT_GE(passed, 1) << "no backend runs " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModel, testing::ValuesIn(model_names()),
                         [](const auto& param) { return param.param; });

TEST(Golden, SaysWhatIsMissing) {
  const auto golden = load_golden(models_folder() + "/none", 96);
  EXPECT_EQ(golden.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(golden.status().text().find("golden.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace attune::conformance
