// A backend out of tree: one file and the installed headers. Copy it, change the descriptor and
// `attend`.
//
//   c++ -O3 -fPIC -shared plain.cpp -o libplain.so $(pkg-config --cflags --libs attune)
//   # Every case that the descriptor promises:
//   attune verify --plugin ./libplain.so --attention-backend plain
//   attune generate --plugin ./libplain.so --attention-backend plain --model …
#include <attune/plugin.hpp>
#include <attune/validate.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace attune;

// What selection, help, errors and the conformance suite know of this backend. What is not promised
// here is refused before make() is called, and need not be handled below.
constexpr BackendDescriptor kDescriptor{
    .name = "plain",
    .summary = "A template: fp32 attention by plain loops",
    .needs = "nothing",
    .capabilities = {{.device = DeviceKind::cpu,
                      .status = BackendStatus::experimental,
                      .variants = {Variant::gqa},
                      .phases = {Phase::prefill, Phase::decode},
                      .q_dtypes = {DType::f32},
                      .kv_dtypes = {DType::f32},
                      .preferred_page_size = 16,
                      .kv_layouts = {KvLayout::nhd},
                      .features = Feature::lse | Feature::sliding_window | Feature::mixed_batch |
                                  Feature::deterministic | Feature::batch_invariant |
                                  Feature::chunked_prefix}},
};

/// A plan keeps what run() needs; the caller's arrays may be gone by then.
struct PlainPlan final : Plan {
  std::vector<std::int32_t> qo_indptr, kv_indptr, kv_indices;
  std::vector<std::int64_t> kv_len, kv_offset;
  std::int64_t page_size = 1;
  attention::BatchFacts facts;
};

class Plain final : public Backend {
 public:
  explicit Plain(const BackendContext& context)
      : spec_(context.spec), page_size_(context.page_size) {}

  const BackendDescriptor& descriptor() const override { return kDescriptor; }
  WorkspaceSize workspace_size(const BatchBounds&) const override { return {}; }

  Result<PlanHandle> plan(const BatchView& batch, const Workspace&, Stream) override {
    auto made = std::make_unique<PlainPlan>();
    if (Status s = fill(*made, batch); !s.ok()) return s;
    return PlanHandle(std::move(made));
  }
  Status refresh(Plan& plan, const BatchView& batch, Stream) override {
    return fill(static_cast<PlainPlan&>(plan), batch);
  }

  Status append_kv(const LayerCall& call, Stream) override {
    if (Status s = attention::validate_append(call, spec_, page_size_, KvLayout::nhd); !s.ok())
      return s;
    const std::int64_t slots = call.k_cache.shape[0] * page_size_;
    if (Status s = attention::validate_slots(call.slot_mapping, slots); !s.ok()) return s;
    for (std::size_t t = 0; t < call.slot_mapping.size(); ++t) {
      const std::int64_t slot = call.slot_mapping[t];
      if (slot < 0) continue;
      write(call.k, call.k_cache, static_cast<std::int64_t>(t), slot, spec_.head_dim_qk);
      write(call.v, call.v_cache, static_cast<std::int64_t>(t), slot, spec_.head_dim_vo);
    }
    return {};
  }

  Status run(const Plan& plan, const LayerCall& call, Stream) override {
    const auto& p = static_cast<const PlainPlan&>(plan);
    if (Status s = attention::validate_run(call, p.facts, spec_, page_size_, KvLayout::nhd);
        !s.ok())
      return s;
    for (std::size_t i = 0; i + 1 < p.qo_indptr.size(); ++i)
      for (std::int64_t t = p.qo_indptr[i]; t < p.qo_indptr[i + 1]; ++t)
        for (int h = 0; h < spec_.num_qo_heads; ++h) attend(p, call, i, t, h);
    return {};
  }

 private:
  Status fill(PlainPlan& p, const BatchView& batch) const {
    const std::int64_t n = batch.batch_size();
    const Result<attention::BatchFacts> facts = attention::validate_batch(batch, spec_, page_size_);
    if (!facts.ok()) return facts.status();
    p.facts = *facts;
    p.qo_indptr.assign(batch.qo_indptr.begin(), batch.qo_indptr.end());
    if (p.qo_indptr.empty()) p.qo_indptr = {0};
    p.kv_indptr.assign(batch.kv_indptr.begin(), batch.kv_indptr.end());
    p.kv_indices.assign(batch.kv_indices.begin(), batch.kv_indices.end());
    p.page_size = page_size_;
    p.kv_len.clear();
    p.kv_offset.clear();
    for (std::int64_t i = 0; i < n; ++i) {
      p.kv_len.push_back(batch.kv_len(i));
      p.kv_offset.push_back(batch.first_kv_position(i));
    }
    return {};
  }

  void write(const TensorView& from, const TensorView& cache, std::int64_t t, std::int64_t slot,
             int dim) const {
    for (int h = 0; h < spec_.num_kv_heads; ++h)
      std::copy_n(from.as<float>() + t * from.stride[0] + h * from.stride[1], dim,
                  cache.as<float>() + slot / page_size_ * cache.stride[0] +
                      slot % page_size_ * cache.stride[1] + h * cache.stride[2]);
  }

  /// One query row of one head, over the keys it may see, with the running maximum of online
  /// softmax.
  void attend(const PlainPlan& p, const LayerCall& call, std::size_t i, std::int64_t t,
              int h) const {
    const std::int64_t qo_len = p.qo_indptr[i + 1] - p.qo_indptr[i];
    const std::int64_t position = p.kv_len[i] - qo_len + (t - p.qo_indptr[i]);
    const std::int64_t last = spec_.causal ? std::min(position + 1, p.kv_len[i]) : p.kv_len[i];
    const std::int64_t first =
        spec_.window_left < 0 ? 0 : std::max<std::int64_t>(0, position - spec_.window_left);
    const int kv_head = h / spec_.gqa_group_size();
    const float* q = call.q.as<float>() + t * call.q.stride[0] + h * call.q.stride[1];
    float* o = call.o.as<float>() + t * call.o.stride[0] + h * call.o.stride[1];
    std::fill_n(o, spec_.head_dim_vo, 0.0f);
    float m = -INFINITY;
    float d = 0.0f;
    for (std::int64_t j = first; j < last; ++j) {
      const std::int64_t page =
          p.kv_indices[static_cast<std::size_t>(p.kv_indptr[i] + j / p.page_size)];
      const auto at = [&](const TensorView& cache) {
        return cache.as<float>() + page * cache.stride[0] + j % p.page_size * cache.stride[1] +
               kv_head * cache.stride[2];
      };
      const float* k = at(call.k_cache);
      float s = 0.0f;
      for (int c = 0; c < spec_.head_dim_qk; ++c) s += q[c] * k[c];
      s *= spec_.sm_scale * call.q_scale;
      const float bigger = std::max(m, s);
      const float old = std::exp(m - bigger);
      const float now = std::exp(s - bigger);
      const float* v = at(call.v_cache);
      for (int c = 0; c < spec_.head_dim_vo; ++c) o[c] = o[c] * old + now * v[c];
      d = d * old + now;
      m = bigger;
    }
    if (d > 0.0f)
      for (int c = 0; c < spec_.head_dim_vo; ++c) o[c] /= d;
    if (call.lse.defined())
      call.lse.as<float>()[t * call.lse.stride[0] + h * call.lse.stride[1]] =
          d > 0.0f ? m + std::log(d) : -INFINITY;
  }

  AttentionSpec spec_;
  std::int32_t page_size_;
};

/// Refuses what the descriptor does not promise, for callers that did not ask the registry first.
Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  const AttentionSpec& s = context.spec;
  const struct {
    bool asked;
    const char* what;
  } kNotServed[] = {
      {context.device.kind != DeviceKind::cpu, "another device than the CPU"},
      {s.variant != Variant::gqa, "another variant than gqa"},
      {s.kind != AttentionKind::decoder, "cross or encoder attention"},
      {s.q_dtype != DType::f32 || s.o_dtype != DType::f32 || s.kv_dtype != DType::f32,
       "another dtype than fp32"},
      {context.kv_layout != KvLayout::nhd, "another layout than nhd"},
      {s.head_dim_qk != s.head_dim_vo, "unequal head dims"},
      {s.logits_soft_cap != 0.0f, "a soft cap"},
      {s.attention_chunk != 0, "chunked attention"},
      {s.window_right >= 0, "a window to the right"},
      {s.sinks, "sinks"},
      {s.alibi, "ALiBi"},
      {s.relative_bias, "a relative bias"},
      {s.custom_mask, "a custom mask"},
      {s.block_mask, "a block mask"},
      {s.score_mod, "a score function"},
      {s.xai_temperature_len != 0, "a query temperature"},
      {s.kv_scales || s.per_head_scales, "scales"},
  };
  for (const auto& [asked, what] : kNotServed)
    if (asked) return unsupported(std::string("plain does not serve ") + what);
  if (Status valid = attention::validate_spec(s); !valid.ok()) return valid;
  return std::unique_ptr<Backend>(std::make_unique<Plain>(context));
}

constexpr PluginBackend kBackends[] = {{&kDescriptor, &make}};
constexpr PluginEntry kEntry{.name = "plain", .backends = kBackends, .num_backends = 1};

}  // namespace

extern "C" const attune::PluginEntry* attune_backend_entry_v1() { return &kEntry; }
