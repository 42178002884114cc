// A linear family out of tree, by the public headers alone: a moving average of each value, whose
// decay is a head's own, and the record of the models that have it.
//   state <- exp(-slope) state + (1 - exp(-slope)) v;  o = state
#include <attune/linear_state.hpp>
#include <attune/plugin.hpp>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

namespace {

using namespace attune;

constexpr BackendDescriptor kDescriptor{
    .name = "average",
    .summary = "A moving average a head, for tests of families from outside",
    .needs = "nothing",
    .capabilities = {{.device = DeviceKind::cpu,
                      .status = BackendStatus::experimental,
                      .variants = {Variant::lightning},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::f32},
                      .kv_dtypes = {DType::f32},
                      .features = Feature::mixed_batch | Feature::deterministic}},
};

struct AveragePlan final : Plan {
  std::vector<std::int32_t> qo_indptr, slots;
};

class Average final : public Backend {
 public:
  explicit Average(const AttentionSpec& spec) : spec_(spec) {}

  const BackendDescriptor& descriptor() const override { return kDescriptor; }
  WorkspaceSize workspace_size(const BatchBounds&) const override { return {}; }
  Result<PlanHandle> plan(const BatchView& batch, const Workspace&, Stream) override {
    auto made = std::make_unique<AveragePlan>();
    fill(*made, batch);
    return PlanHandle(std::move(made));
  }
  Status refresh(Plan& plan, const BatchView& batch, Stream) override {
    fill(static_cast<AveragePlan&>(plan), batch);
    return {};
  }
  Status append_kv(const LayerCall&, Stream) override { return {}; }
  Status run(const Plan& plan, const LayerCall& call, Stream) override {
    const auto& p = static_cast<const AveragePlan&>(plan);
    const LinearCall& linear = *call.linear;
    const std::int64_t dim = spec_.linear_head_dim_v;
    for (std::size_t i = 0; i < p.slots.size(); ++i) {
      if (p.slots[i] < 0) continue;
      float* const state = linear.state.as<float>() + p.slots[i] * linear.state.stride[0];
      for (std::int64_t t = p.qo_indptr[i]; t < p.qo_indptr[i + 1]; ++t) {
        const float* const v = linear.v.as<float>() + t * linear.v.stride[0];
        float* const o = call.o.as<float>() + t * call.o.stride[0];
        for (std::int64_t c = 0; c < spec_.linear_num_v_heads * dim; ++c) {
          const float kept = std::exp(-linear.slopes[c / dim]);
          state[c] = kept * state[c] + (1 - kept) * v[c];
          o[c] = state[c];
        }
      }
    }
    return {};
  }

 private:
  static void fill(AveragePlan& plan, const BatchView& batch) {
    plan.qo_indptr.assign(batch.qo_indptr.begin(), batch.qo_indptr.end());
    plan.slots.assign(batch.state_indices.begin(), batch.state_indices.end());
  }

  AttentionSpec spec_;
};

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  return std::unique_ptr<Backend>(std::make_unique<Average>(context.spec));
}

bool matches(const FamilyConfig& config) { return config.text("model_type") == "toy"; }

LinearFamilyLayers describe(const FamilyConfig& config) {
  LinearFamilyLayers layers{.variant = Variant::lightning,
                            .num_k_heads = static_cast<int>(config.integer("average_heads", 3)),
                            .num_v_heads = static_cast<int>(config.integer("average_heads", 3)),
                            .head_dim_k = 1,
                            .head_dim_v = static_cast<int>(config.integer("average_dim", 4)),
                            .v = "average.value",
                            .output = "average.output",
                            .feed_forward = config.has("average_layers")};
  for (const double slope : config.numbers("average_slopes"))
    layers.slopes.push_back(static_cast<float>(slope));
  for (const double layer : config.numbers("average_layers"))
    layers.layers.push_back(static_cast<int>(layer));
  return layers;
}

constexpr PluginBackend kBackends[] = {{&kDescriptor, &make}};
constexpr LinearFamilyRecord kFamilies[] = {
    {.name = "average", .backend = "average", .matches = &matches, .describe = &describe}};
constexpr PluginEntry kEntry{.name = "average",
                             .backends = kBackends,
                             .num_backends = 1,
                             .families = kFamilies,
                             .num_families = 1};

}  // namespace

extern "C" const attune::PluginEntry* attune_backend_entry_v1() { return &kEntry; }
