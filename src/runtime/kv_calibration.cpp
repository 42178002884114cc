#include "runtime/kv_calibration.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/engine.hpp"

namespace attune::runtime {
namespace {

constexpr float kInt8Max = 127.0f;
constexpr float kHeadroom = 1.1f;  ///< over the calibration text's range
constexpr float kLeastRange = 1e-6f;

/// The largest magnitude of each KV head over the first `num_tokens` slots of a layer's pages.
std::vector<float> head_ranges(const TensorView& cache, KvLayout layout, std::int64_t page_size,
                               std::int64_t num_tokens) {
  const std::size_t head_axis = layout == KvLayout::hnd ? 1 : 2;
  const std::size_t token_axis = layout == KvLayout::hnd ? 2 : 1;
  const std::int64_t num_heads = cache.shape[head_axis];
  std::vector<float> ranges(static_cast<std::size_t>(num_heads), kLeastRange);
  const auto* values = cache.as<float>();
  for (std::int64_t t = 0; t < num_tokens; ++t) {
    for (std::int64_t h = 0; h < num_heads; ++h) {
      const float* row = values + t / page_size * cache.stride[0] +
                         t % page_size * cache.stride[token_axis] + h * cache.stride[head_axis];
      float& range = ranges[static_cast<std::size_t>(h)];
      for (std::int64_t d = 0; d < cache.shape[3]; ++d) range = std::max(range, std::fabs(row[d]));
    }
  }
  return ranges;
}

}  // namespace

bool needs_calibration(const BackendSet& backends) {
  return std::any_of(backends.attention.begin(), backends.attention.end(),
                     [](const model::AttentionGroup& group) {
                       return !is_linear(group.spec.variant) && group.spec.kv_dtype == DType::i8;
                     });
}

Result<KvScales> calibrate_kv(model::Model& model, model::Ops& ops, BackendSet backends,
                              std::span<const std::int32_t> tokens) {
  if (ops.device() != DeviceKind::cpu)
    return unsupported("int8 KV caches are calibrated on cpu only in this build");
  const auto num_tokens = static_cast<std::int64_t>(tokens.size());
  const std::int64_t page_size = backends.page_size;
  const std::vector<GroupBackends> groups = backends.groups;
  const std::vector<model::AttentionGroup> attention = backends.attention;
  EngineOptions options;
  options.context_limit = num_tokens + 1;
  options.scheduler = {.chunk_size = num_tokens, .max_batch = 1};
  auto engine = Engine::make(model, ops, std::move(backends), options);
  if (!engine.ok()) return engine.status();
  const Result<RequestId> id = (*engine)->submit(tokens, {.max_new_tokens = 0});
  if (!id.ok()) return id.status();
  if (auto events = (*engine)->step(); !events.ok()) return events.status();

  // One step held every page at once, and a fresh pool hands out low ids first: token t of each
  // layer lies in slot t, also where a window has let go of it since.
  const auto num_layers = static_cast<std::size_t>(model.config().num_layers());
  std::vector<std::vector<float>> factors(2 * num_layers);
  std::size_t count = 0;
  for (std::size_t g = 0; g < attention.size(); ++g) {
    for (int layer : attention[g].layers) {
      const auto l = static_cast<std::size_t>(layer);
      const cache::KvStorage& kv = (*engine)->kv();
      if (is_linear(attention[g].spec.variant) || !kv.k(l).defined()) continue;
      const KvLayout layout = groups[g].kv_layout;
      factors[2 * l] = head_ranges(kv.k(l), layout, page_size, num_tokens);
      factors[2 * l + 1] = head_ranges(kv.v(l), layout, page_size, num_tokens);
      count += 2 * factors[2 * l].size();
    }
  }
  KvScales scales;
  Result<model::Buffer> memory = ops.allocate(count * sizeof(float));
  if (!memory.ok()) return memory.status();
  scales.memory_ = std::move(*memory);
  scales.views_.resize(num_layers);
  auto* next = static_cast<float*>(scales.memory_.data());
  for (std::size_t l = 0; l < num_layers; ++l) {
    for (const bool is_k : {true, false}) {
      std::vector<float>& ranges = factors[2 * l + (is_k ? 0 : 1)];
      if (ranges.empty()) continue;
      for (float& range : ranges) range *= kHeadroom / kInt8Max;
      ops.upload(next, ranges.data(), ranges.size() * sizeof(float));
      (is_k ? scales.views_[l].k : scales.views_[l].v) = next;
      next += ranges.size();
    }
  }
  if (Status s = ops.synchronize(); !s.ok()) return s;
  return scales;
}

}  // namespace attune::runtime
