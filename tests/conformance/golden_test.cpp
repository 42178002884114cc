// The project's golden models on the reference backend. `attune verify --golden` does the same on
// every backend.
#include "conformance/golden.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/reference/descriptor.hpp"
#include "device/thread_pool.hpp"

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

Result<runtime::BackendSet> all_reference(const model::ModelConfig& config, std::int32_t page_size,
                                          Executor& executor) {
  runtime::BackendSet set;
  set.page_size = page_size;
  set.attention = model::attention_groups(config, {.compute = DType::f32, .kv = DType::f32});
  for (const model::AttentionGroup& group : set.attention) {
    BackendContext context;
    context.spec = group.spec;
    context.device = cpu_device();
    context.page_size = page_size;
    context.executor = &executor;
    Result<std::unique_ptr<Backend>> made = backends::reference::make(context);
    if (!made.ok()) return made.status();
    runtime::GroupBackends both;
    both.prefill = std::move(*made);
    both.decode = both.prefill;
    set.groups.push_back(std::move(both));
  }
  return set;
}

class GoldenModel : public testing::TestWithParam<std::string> {};

TEST_P(GoldenModel, AgreesOnReference) {
  auto pool = device::ThreadPool::make({.num_threads = 1});
  ASSERT_TRUE(pool.ok());
  GoldenRun run;
  run.folder = models_folder() + "/" + GetParam();
  run.executor = pool->get();
  run.isa = cpu_device().isa;
  run.make_backends = [&](const model::ModelConfig& config, std::int32_t page_size) {
    return all_reference(config, page_size, **pool);
  };
  const Result<GoldenOutcome> outcome = check_golden(run);
  ASSERT_TRUE(outcome.ok()) << outcome.status().text();
  EXPECT_LE(outcome->max_excess, 1.0)
      << outcome->worst << ", largest error " << outcome->max_abs_err;
  EXPECT_TRUE(outcome->tokens_match);
  EXPECT_GT(outcome->num_logits, 0);
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
