// A model with latents of the widths that GPU kernels are made for, 512 + 64, and one of
// MiniCPM3's, through the whole engine on the emulated card: absorbed and expanded, prefilled in
// pieces and decoded, held against the reference backend on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <attune/device.hpp>
#include <attune/registry.hpp>

#include "runtime/session.hpp"
#include "support/latent_checkpoint.hpp"
#include "support/scratch_folder.hpp"

namespace attune::runtime {
namespace {

struct Course {
  std::string device = "cuda:0";
  std::string backend = "fa3";
  LatentForm form = LatentForm::absorbed;
  testing_support::LatentWidths widths{};
  DType kv = DType::bf16;
};

struct Outcome {
  std::vector<Request> requests;
  EngineStatistics statistics;
};

Outcome run(const std::string& folder, const Course& course) {
  auto checkpoint = model::open_checkpoint(folder);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().text();
  const Result<Registry> registry = Registry::open({});
  const Result<DeviceInfo> device = parse_device(course.device);
  EXPECT_TRUE(device.ok()) << device.status().text();
  SessionOptions options;
  options.device = *device;
  options.engine = {.context_limit = 200,
                    .pool_tokens = 1024,
                    .scheduler = {.chunk_size = 40, .max_batch = 4},
                    .latent = {.form = course.form, .chunk_tokens = 24},
                    .keep_logits = true};
  const bool on_card = device->kind == DeviceKind::cuda;
  const auto make = [&](const model::ModelConfig& config, Executor& executor,
                        std::optional<DType>) {
    BackendRequest request;
    request.device = *device;
    request.selection.prefill = request.selection.decode = course.backend;
    request.dtypes = {.compute = on_card ? DType::bf16 : DType::f32, .kv = course.kv};
    return make_backends(*registry, config, request, executor);
  };
  auto session = Session::open(std::move(*checkpoint), make, options);
  EXPECT_TRUE(session.ok()) << session.status().text();
  if (!session.ok()) return {};
  Engine& engine = (*session)->engine();
  std::vector<RequestId> ids;
  for (const std::int32_t length : {70, 5, 33}) {
    RequestOptions request{.want_logits = true};
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < length; ++i) tokens.push_back(3 + (length * 31 + i * 17) % 90);
    // Forced, so that a near-tie does not part the courses.
    for (std::int32_t i = 0; i < 5; ++i) request.forced_tokens.push_back(7 + i);
    request.max_new_tokens = 5;
    const auto id = engine.submit(tokens, request);
    EXPECT_TRUE(id.ok()) << id.status().text();
    ids.push_back(*id);
  }
  while (!engine.idle()) {
    const auto events = engine.step();
    EXPECT_TRUE(events.ok()) << events.status().text();
    if (!events.ok()) return {};
  }
  Outcome outcome{.requests = {}, .statistics = engine.statistics()};
  for (RequestId id : ids) outcome.requests.push_back(engine.take(id));
  return outcome;
}

class LatentModel : public testing::TestWithParam<Course> {};

TEST_P(LatentModel, GivesTheReferencesLogits) {
  const Course& course = GetParam();
  const testing_support::ScratchFolder folder;
  testing_support::write_latent_checkpoint(folder.path(), course.widths);
  const Outcome want =
      run(folder.path().string(), {.device = "cpu", .backend = "reference", .kv = course.kv});
  const Outcome have = run(folder.path().string(), course);
  ASSERT_EQ(have.requests.size(), want.requests.size());
  for (std::size_t r = 0; r < want.requests.size(); ++r) {
    const std::vector<float>& a = have.requests[r].logits;
    const std::vector<float>& b = want.requests[r].logits;
    ASSERT_EQ(a.size(), b.size());
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(a[i] - b[i], 2);
      norm += std::pow(b[i], 2);
    }
    // Queries, keys and outputs are rounded to bf16, and so are the inputs of products.
    // Latents that differ in bf16 may be neighbours in fp8.
    EXPECT_LT(std::sqrt(difference / norm), course.kv == DType::bf16 ? 0.02 : 0.03)
        << "request " << r;
  }
  const bool expanded = course.form == LatentForm::expanded;
  EXPECT_EQ(have.statistics.latent.absorbed > 0, !expanded);
  EXPECT_EQ(have.statistics.latent.prefix_chunks > 0, expanded);
  EXPECT_GT(have.statistics.graphs.replayed, 0) << have.statistics.graphs.refusal;
}

INSTANTIATE_TEST_SUITE_P(
    Card, LatentModel,
    testing::Values(Course{.backend = "fa3"},
                    Course{.backend = "fa3", .form = LatentForm::expanded},
                    Course{.backend = "flashinfer"},
                    Course{.backend = "flashinfer", .form = LatentForm::expanded},
                    Course{.backend = "flashmla"},
                    Course{.backend = "flashmla", .kv = DType::fp8_e4m3},
                    Course{.backend = "triton", .widths = testing_support::kMiniCpm3Widths},
                    Course{.backend = "triton",
                           .form = LatentForm::expanded,
                           .widths = testing_support::kMiniCpm3Widths}),
    [](const auto& test) {
      return test.param.backend + "_" + std::string(name(test.param.form)) +
             (test.param.kv == DType::bf16 ? "" : "_" + std::string(name(test.param.kv)));
    });

}  // namespace
}  // namespace attune::runtime
