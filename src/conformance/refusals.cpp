#include "conformance/refusals.hpp"

#include <algorithm>
#include <string>

#include "base/join.hpp"
#include "conformance/cases.hpp"
#include "registry/rules.hpp"

namespace attune::conformance {
namespace {

using base::join;

/// What a change may touch.
struct Asked {
  AttentionSpec spec;
  DeviceInfo device;
  SelectionOptions options{};
  std::int32_t page_size = 1;
  bool factory_too = true;  ///< the factory sees the change as well
};

struct Change {
  std::string_view rule;
  /// False where the row declares it, so that there is nothing to refuse.
  bool (*apply)(const BackendDescriptor&, const Capability&, Asked&);
};

/// No row of the backend on this kind of device has the feature for this variant.
bool lacks(const BackendDescriptor& backend, const Capability& row, Feature feature) {
  return std::none_of(
      backend.capabilities.begin(), backend.capabilities.end(), [&](const Capability& other) {
        return other.device == row.device && other.variants.contains(row.variants[0]) &&
               other.features.has(feature);
      });
}

template <class T, class List>
bool replace_by_undeclared(T& value, const List& declared, std::initializer_list<T> candidates) {
  for (const T& candidate : candidates) {
    if (declared.contains(candidate)) continue;
    value = candidate;
    return true;
  }
  return false;
}

template <Feature kFeature>
bool without(const BackendDescriptor& backend, const Capability& row, Asked& asked,
             void (*change)(AttentionSpec&)) {
  if (!lacks(backend, row, kFeature)) return false;
  change(asked.spec);
  return true;
}

constexpr Change kChanges[] = {
    {"device",
     [](const BackendDescriptor& backend, const Capability&, Asked& asked) {
       for (const DeviceKind kind : {DeviceKind::npu, DeviceKind::xpu, DeviceKind::cuda}) {
         const bool served =
             std::any_of(backend.capabilities.begin(), backend.capabilities.end(),
                         [&](const Capability& other) { return other.device == kind; });
         if (served) continue;
         asked.device = {.kind = kind};
         return true;
       }
       return false;
     }},
    {"isa",
     [](const BackendDescriptor&, const Capability& row, Asked& asked) {
       if (row.device != DeviceKind::cpu || row.isa == CpuIsa::scalar) return false;
       asked.device.isa = CpuIsa::scalar;
       return true;
     }},
    {"variant",
     [](const BackendDescriptor& backend, const Capability&, Asked& asked) {
       for (const Variant variant :
            {Variant::dual_chunk, Variant::sparse_mla, Variant::gdn, Variant::minimax_sparse}) {
         const bool served =
             std::any_of(backend.capabilities.begin(), backend.capabilities.end(),
                         [&](const Capability& other) { return other.variants.contains(variant); });
         if (served) continue;
         asked.spec.variant = variant;
         return true;
       }
       return false;
     }},
    {"head_dims",
     [](const BackendDescriptor& backend, const Capability& row, Asked& asked) {
       const bool limited = row.max_head_dim > 0 || row.head_dim_multiple > 1;
       if (row.head_dims.empty() && !limited) return false;
       // A row beside it may take these types at any width: cpu's fp8 latents in their own layout
       // and in the plain one.
       for (const Capability& other : backend.capabilities)
         if (other.device == row.device && other.status != BackendStatus::not_built &&
             other.variants.contains(asked.spec.variant) && other.head_dims.empty() &&
             other.max_head_dim == 0 && other.head_dim_multiple == 1 &&
             other.q_dtypes.contains(asked.spec.q_dtype) &&
             other.kv_dtypes.contains(asked.spec.kv_dtype))
           return false;
       const int dim = !row.head_dims.empty()      ? 7
                       : row.head_dim_multiple > 1 ? row.head_dim_multiple + 1
                                                   : row.max_head_dim + 1;
       AttentionSpec& s = asked.spec;
       s.head_dim_qk = dim;
       s.head_dim_vo = is_latent(s.variant) ? dim - 2 : dim;
       s.kv_lora_rank = is_latent(s.variant) ? dim - 2 : 0;
       s.qk_rope_head_dim = is_latent(s.variant) ? 2 : 0;
       return true;
     }},
    {"gqa_group",
     [](const BackendDescriptor&, const Capability& row, Asked& asked) {
       if (row.gqa_group_sizes.empty()) return false;
       int group = 0;
       if (!replace_by_undeclared(group, row.gqa_group_sizes, {7, 5, 11, 13})) return false;
       asked.spec.num_qo_heads = group * asked.spec.num_kv_heads;
       return true;
     }},
    {"q_dtype",
     [](const BackendDescriptor&, const Capability& row, Asked& asked) {
       DType& q = asked.spec.q_dtype;
       if (!replace_by_undeclared(q, row.q_dtypes, {DType::f32, DType::f16, DType::f64}))
         return false;
       asked.spec.o_dtype = q;
       return true;
     }},
    {"kv_dtype",
     [](const BackendDescriptor& backend, const Capability& row, Asked& asked) {
       for (const DType kv : {DType::f16, DType::fp8_e5m2, DType::i32}) {
         // A sibling row may declare what this one does not.
         const bool served = std::any_of(backend.capabilities.begin(), backend.capabilities.end(),
                                         [&](const Capability& other) {
                                           return other.device == row.device &&
                                                  other.variants.contains(row.variants[0]) &&
                                                  other.kv_dtypes.contains(kv);
                                         });
         if (served) continue;
         asked.spec.kv_dtype = kv;
         return true;
       }
       return false;
     }},
    {"page_size",
     [](const BackendDescriptor&, const Capability& row, Asked& asked) {
       if (is_linear(row.variants[0])) return false;  // a state has no pages
       std::int32_t page = 257;  // where any size up to 256 is declared; a factory may take more
       asked.factory_too = !row.page_sizes.empty();
       if (asked.factory_too) replace_by_undeclared(page, row.page_sizes, {24, 48, 96});
       asked.options.page_size = asked.page_size = page;
       return true;
     }},
    {"sliding_window",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::sliding_window>(b, r, a,
                                               [](AttentionSpec& s) { s.window_left = 7; });
     }},
    {"soft_cap",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::soft_cap>(b, r, a,
                                         [](AttentionSpec& s) { s.logits_soft_cap = 30.0f; });
     }},
    {"sinks",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::sinks>(b, r, a, [](AttentionSpec& s) { s.sinks = true; });
     }},
    {"alibi",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::alibi>(b, r, a, [](AttentionSpec& s) { s.alibi = true; });
     }},
    {"relative_bias",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::relative_bias>(b, r, a,
                                              [](AttentionSpec& s) { s.relative_bias = true; });
     }},
    {"custom_mask",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::custom_mask>(b, r, a,
                                            [](AttentionSpec& s) { s.custom_mask = true; });
     }},
    {"block_mask",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::block_mask>(b, r, a, [](AttentionSpec& s) { s.block_mask = true; });
     }},
    {"score_mod",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::score_mod>(b, r, a, [](AttentionSpec& s) { s.score_mod = true; });
     }},
    {"attention_chunk",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::attention_chunk>(b, r, a,
                                                [](AttentionSpec& s) { s.attention_chunk = 8192; });
     }},
    {"xai_temperature",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::xai_temperature>(
           b, r, a, [](AttentionSpec& s) { s.xai_temperature_len = 1024; });
     }},
    {"cross_attention",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::cross_attention>(b, r, a, [](AttentionSpec& s) {
         s.kind = AttentionKind::cross;
         s.causal = false;
       });
     }},
    {"encoder_only",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::encoder_only>(b, r, a, [](AttentionSpec& s) {
         s.kind = AttentionKind::encoder_only;
         s.causal = false;
       });
     }},
    {"unequal_head_dims",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       // Where dims are listed, another rule speaks for them.
       if (!has_kv_heads(a.spec.variant) || !r.head_dims.empty()) return false;
       return without<Feature::unequal_head_dims>(b, r, a, [](AttentionSpec& s) {
         s.head_dim_qk = 64;
         s.head_dim_vo = 32;
       });
     }},
    {"kv_scales",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::kv_scales>(b, r, a, [](AttentionSpec& s) { s.kv_scales = true; });
     }},
    {"per_head_scales",
     [](const BackendDescriptor& b, const Capability& r, Asked& a) {
       return without<Feature::per_head_scales>(b, r, a,
                                                [](AttentionSpec& s) { s.per_head_scales = true; });
     }},
};

std::string rules_of(const std::vector<Refusal>& refusals) {
  std::vector<std::string> names;
  for (const Refusal& r : refusals) names.push_back(r.rule);
  return names.empty() ? "nobody" : registry::one_of(names);
}

Outcome hold(const Subject& subject, const Capability& row, Phase phase, const Change& change,
             const Asked& asked) {
  const registry::ModelFacts no_model{};
  const auto verdict = registry::judge(*subject.descriptor,
                                       {.spec = asked.spec,
                                        .phase = phase,
                                        .device = asked.device,
                                        .options = asked.options,
                                        .model = no_model},
                                       true);
  if (verdict.refusals.size() != 1 || verdict.refusals[0].rule != change.rule)
    return failed(
        join("want a refusal by ", change.rule, " alone, have ", rules_of(verdict.refusals)));
  if (!asked.factory_too) return {};
  const auto made = subject.make({.spec = asked.spec,
                                  .device = asked.device,
                                  .page_size = asked.page_size,
                                  .kv_layout = row.kv_layouts[0],
                                  .executor = subject.executor});
  if (made.ok()) return failed("not declared, yet the factory makes it");
  return {};
}

}  // namespace

std::vector<CaseResult> check_refusals(const Subject& subject, const Capability& row,
                                       std::string_view match) {
  std::vector<CaseResult> results;
  const BackendDescriptor& backend = *subject.descriptor;
  for (const Phase phase : row.phases) {
    const Case plain = plain_case(row, phase);
    for (const Change& change : kChanges) {
      Asked asked{.spec = plain.spec, .device = subject.device, .page_size = plain.page_size};
      if (!change.apply(backend, row, asked)) continue;
      CaseResult result{
          .name = join(name(row.variants[0]), "/refusal/", change.rule, "/", name(phase)),
          .backend = std::string(backend.name)};
      if (!glob_match(match, result.name)) continue;
      result.outcome = hold(subject, row, phase, change, asked);
      results.push_back(std::move(result));
    }
  }
  return results;
}

}  // namespace attune::conformance
