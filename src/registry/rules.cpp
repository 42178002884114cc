#include "registry/rules.hpp"

#include <algorithm>

#include "base/join.hpp"
#include "registry/feature_rules.hpp"
#include "registry/model_rules.hpp"

namespace attune::registry {
namespace {

using base::join;

template <class List, class ToText>
std::string listed(const List& list, ToText to_text) {
  std::vector<std::string> words;
  for (const auto& item : list) words.push_back(std::string(to_text(item)));
  return one_of(words);
}

std::string sm_text(int sm) { return join("SM ", sm / 10, ".", sm % 10); }

std::string device_text(const DeviceInfo& d) {
  if (d.kind == DeviceKind::cuda) return d.sm == 0 ? "cuda of unknown SM" : sm_text(d.sm);
  if (d.kind == DeviceKind::hip && !d.arch.empty()) return d.arch;
  return std::string(name(d.kind));
}

bool sm_fits(const Capability& row, int sm) {
  // The SM of a GPU that NVML does not describe is found out by make().
  if (sm == 0 || row.sm.empty()) return true;
  for (const SmRange& range : row.sm)
    if (sm >= range.min && sm <= range.max) return true;
  return false;
}

bool device_fits(const RuleInput& in) {
  if (in.row.device != in.device.kind) return false;
  if (in.device.kind == DeviceKind::cuda) return sm_fits(in.row, in.device.sm);
  if (in.device.kind == DeviceKind::hip)
    return in.row.archs.empty() || in.row.archs.contains(std::string_view(in.device.arch));
  return true;
}

std::string device_wanted(const RuleInput& in) {
  if (in.row.device == DeviceKind::cuda && in.device.kind == DeviceKind::cuda)
    return listed(in.row.sm, [](const SmRange& r) {
      return r.min == r.max ? sm_text(r.min)
                            : sm_text(r.min) + join(" to ", r.max / 10, ".", r.max % 10);
    });
  if (in.row.device == DeviceKind::hip && in.device.kind == DeviceKind::hip)
    return listed(in.row.archs, [](std::string_view a) { return a; });
  return std::string(name(in.row.device));
}

/// Every device kind of a backend, for "needs cuda or hip, have cpu".
std::string kinds_wanted(const RuleInput& in) {
  if (in.row.device == in.device.kind) return device_wanted(in);
  std::vector<std::string> kinds;
  for (const Capability& row : in.backend.capabilities) {
    const std::string kind(name(row.device));
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return one_of(kinds);
}

/// Of the rows for the kind of device that was asked about; another kind's would mislead.
std::string variant_wanted(const RuleInput& in) {
  std::vector<std::string> words;
  for (const Capability& row : in.backend.capabilities)
    for (Variant v : row.variants) {
      if (row.device != in.row.device) continue;
      const std::string word(name(v));
      if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
    }
  return one_of(words);
}

std::string variant_have(const RuleInput& in) {
  const AttentionSpec& s = in.spec;
  if (s.variant != Variant::gqa) return std::string(name(s.variant));
  return join("gqa ", s.num_qo_heads, "/", s.num_kv_heads, ", head dim ", s.head_dim_qk);
}

bool is_latent(const AttentionSpec& s) { return s.kv_lora_rank > 0; }

std::string dims_text(const AttentionSpec& s) {
  if (is_latent(s)) return join(s.kv_lora_rank, "+", s.qk_rope_head_dim);
  if (s.head_dim_qk == s.head_dim_vo) return join(s.head_dim_qk);
  return join(s.head_dim_qk, " and ", s.head_dim_vo);
}

bool dims_fit(const RuleInput& in) {
  if (is_linear(in.spec.variant)) return true;
  const HeadDims dims{in.spec.head_dim_qk, in.spec.head_dim_vo};
  if (!in.row.head_dims.empty()) return in.row.head_dims.contains(dims);
  const int multiple = in.row.head_dim_multiple;
  if (dims.qk % multiple != 0 || dims.vo % multiple != 0) return false;
  return in.row.max_head_dim == 0 || std::max(dims.qk, dims.vo) <= in.row.max_head_dim;
}

std::string dims_wanted(const RuleInput& in) {
  if (in.row.head_dims.empty()) {
    const std::string most =
        in.row.max_head_dim == 0 ? "" : join(" of at most ", in.row.max_head_dim);
    if (in.row.head_dim_multiple > 1) return join("multiples of ", in.row.head_dim_multiple, most);
    return join("at most ", in.row.max_head_dim);
  }
  return listed(in.row.head_dims, [&](const HeadDims& d) {
    if (is_latent(in.spec)) return join(d.vo, "+", d.qk - d.vo);
    return d.qk == d.vo ? join(d.qk) : join(d.qk, " and ", d.vo);
  });
}

/// Linear variants keep states and encoders keep nothing: neither has pages.
bool has_pages(const AttentionSpec& s) {
  return !is_linear(s.variant) && s.kind != AttentionKind::encoder_only;
}

bool page_fits(const RuleInput& in) {
  const std::int32_t page = in.options.page_size;
  if (page == 0 || !has_pages(in.spec)) return true;
  if (in.spec.compress_ratio > 0 && page % in.spec.compress_ratio != 0) return false;
  if (in.row.page_sizes.empty()) return page >= 1 && page <= 256;
  return in.row.page_sizes.contains(page);
}

std::string page_wanted(const RuleInput& in) {
  if (in.row.page_sizes.empty() && in.spec.compress_ratio > 1)
    return join("multiples of ", in.spec.compress_ratio, " up to 256");
  if (in.row.page_sizes.empty()) return "1 to 256";
  const auto numbers = [](const auto& list) {
    return listed(list, [](auto n) { return std::to_string(n); });
  };
  std::string text = numbers(in.row.page_sizes);
  // Another row may have this page size for other groups of heads.
  for (const Capability& other : in.backend.capabilities)
    if (other.device == in.row.device && other.page_sizes.contains(in.options.page_size) &&
        other.variants.contains(in.spec.variant) && !other.gqa_group_sizes.empty())
      text += join(" (", in.options.page_size, " with ", numbers(other.gqa_group_sizes),
                   " query heads a KV head)");
  return text;
}

const ModelConstraint* broken_constraint(const RuleInput& in) {
  if (is_linear(in.spec.variant) || in.spec.variant == Variant::minimax_sparse) return nullptr;
  const DeviceClass where = device_class(in.device);
  for (const ModelConstraint& c : kModelConstraints) {
    if (!c.architectures.empty() && !matches(c.architectures, in.model.architecture)) continue;
    if (!c.devices.empty() && !c.devices.contains(where)) continue;
    if (!holds(c.when, in.spec, in.options, in.model)) continue;
    const bool allowed = c.allowed.empty() || c.allowed.contains(in.backend.name);
    if (!allowed || c.denied.contains(in.backend.name)) return &c;
  }
  return nullptr;
}

std::string constraint_wanted(const RuleInput& in) {
  const ModelConstraint& c = *broken_constraint(in);
  const auto same = [](std::string_view n) { return n; };
  const std::string who =
      c.allowed.empty() ? "not " + listed(c.denied, same) : listed(c.allowed, same);
  return join(who, " (", c.because, ")");
}

constexpr bool kOfVariant = true;
constexpr bool kOfAny = false;

constexpr Rule kRules[] = {
    {"device", kOfAny, device_fits, kinds_wanted,
     [](const RuleInput& in) { return device_text(in.device); }},
    {"isa", kOfAny,
     [](const RuleInput& in) {
       return in.row.device != DeviceKind::cpu || in.device.kind != DeviceKind::cpu ||
              in.device.isa >= in.row.isa;
     },
     [](const RuleInput& in) {
       return in.row.isa == CpuIsa::amx
                  ? std::string("amx (CPU bits, saved state and the kernel's permission)")
                  : std::string(name(in.row.isa));
     },
     [](const RuleInput& in) { return std::string(name(in.device.isa)); }},
    {"variant", kOfAny,
     [](const RuleInput& in) { return in.row.variants.contains(in.spec.variant); }, variant_wanted,
     variant_have},
    {"phase", kOfVariant, [](const RuleInput& in) { return in.row.phases.contains(in.phase); },
     [](const RuleInput& in) {
       return listed(in.row.phases, [](Phase p) { return name(p); }) + " only";
     },
     [](const RuleInput& in) { return std::string(name(in.phase)); }},
    {"head_dims", kOfVariant, dims_fit, dims_wanted,
     [](const RuleInput& in) { return dims_text(in.spec); }},
    {"gqa_group", kOfVariant,
     [](const RuleInput& in) {
       return in.row.gqa_group_sizes.empty() || is_linear(in.spec.variant) ||
              in.row.gqa_group_sizes.contains(in.spec.gqa_group_size());
     },
     [](const RuleInput& in) {
       return listed(in.row.gqa_group_sizes, [](int g) { return std::to_string(g); }) +
              " query heads a KV head";
     },
     [](const RuleInput& in) { return std::to_string(in.spec.gqa_group_size()); }},
    {"q_dtype", kOfVariant,
     [](const RuleInput& in) { return in.row.q_dtypes.contains(in.spec.q_dtype); },
     [](const RuleInput& in) { return listed(in.row.q_dtypes, [](DType t) { return name(t); }); },
     [](const RuleInput& in) { return std::string(name(in.spec.q_dtype)); }},
    {"kv_dtype", kOfVariant,
     [](const RuleInput& in) { return in.row.kv_dtypes.contains(in.spec.kv_dtype); },
     [](const RuleInput& in) { return listed(in.row.kv_dtypes, [](DType t) { return name(t); }); },
     [](const RuleInput& in) { return std::string(name(in.spec.kv_dtype)); }},
    {"page_size", kOfVariant, page_fits, page_wanted,
     [](const RuleInput& in) { return std::to_string(in.options.page_size); }},
    {"architecture", kOfAny, [](const RuleInput& in) { return broken_constraint(in) == nullptr; },
     constraint_wanted,
     [](const RuleInput& in) {
       return join(in.backend.name, " for ",
                   in.model.architecture.empty() ? "this model" : in.model.architecture);
     }},
    {"built", kOfAny,
     [](const RuleInput& in) {
       // What can be made was asked for this kind of device.
       const bool can_make = in.can_make || in.row.device != in.device.kind;
       return in.options.assume_built || (in.row.status != BackendStatus::not_built && can_make);
     },
     [](const RuleInput& in) {
       return in.row.status == BackendStatus::not_built
                  ? std::string(in.backend.needs)
                  : std::string("libattune_cuda.so beside this program");
     },
     [](const RuleInput& in) {
       return std::string(in.row.status == BackendStatus::not_built ? "not built" : "no such file");
     }},
};

/// How much of a row fits before numbers are compared: the refusals of the nearest row are the ones
/// that help.
int nearness(const RuleInput& in) {
  int score = 0;
  if (in.row.device == in.device.kind) score += 8;
  if (in.row.variants.contains(in.spec.variant)) score += 4;
  if (in.row.phases.contains(in.phase)) score += 2;
  const bool elsewhere = in.row.device != in.device.kind;
  if (elsewhere ? in.row.status != BackendStatus::not_built : device_fits(in)) score += 1;
  return score;
}

std::vector<Refusal> refusals_of(const RuleInput& in) {
  std::vector<Refusal> refusals;
  const std::string backend(in.backend.name);
  // The numbers and features of a row for another variant or kind of device say nothing about this
  // one.
  const bool comparable =
      in.row.variants.contains(in.spec.variant) && in.row.device == in.device.kind;
  for (const Rule& rule : kRules)
    if ((comparable || !rule.of_variant) && !rule.holds(in))
      refusals.push_back({backend, std::string(rule.name), rule.wanted(in), rule.have(in)});
  if (!comparable) return refusals;
  const ModelConstraint* constraint = broken_constraint(in);
  for (const FeatureRule& rule : feature_rules()) {
    if (!rule.asked(in.spec, in.options)) continue;
    const bool withheld = constraint != nullptr && constraint->withheld.has(rule.feature);
    if (in.row.features.has(rule.feature) && !withheld) continue;
    refusals.push_back({backend, std::string(name(rule.feature)),
                        withheld ? "a request without it, or a name that the model's rule lists"
                                 : "a request without it",
                        rule.have(in.spec, in.options)});
  }
  return refusals;
}

/// In the order in which they speak.
std::vector<const Capability*> rows_of(const BackendDescriptor& backend, bool assume_built) {
  std::vector<const Capability*> rows;
  for (const Capability& row : backend.capabilities) rows.push_back(&row);
  // Where every entry is taken as built, what the name stands for speaks before what there is of
  // it.
  if (assume_built)
    std::stable_partition(rows.begin(), rows.end(), [](const Capability* row) {
      return row->status == BackendStatus::not_built;
    });
  return rows;
}

}  // namespace

std::span<const Rule> rules() { return kRules; }

std::string one_of(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

bool Verdict::only_unbuilt() const { return refusals.size() == 1 && refusals[0].rule == "built"; }

Verdict judge(const BackendDescriptor& backend, const Request& request, bool can_make) {
  Verdict best;
  Verdict accepted;
  int best_score = -1;
  for (const Capability* row : rows_of(backend, request.options.assume_built)) {
    const RuleInput in{backend,         *row,          request.spec, request.phase, request.device,
                       request.options, request.model, can_make};
    std::vector<Refusal> refusals = refusals_of(in);
    if (refusals.empty()) {
      accepted.accepting.push_back(row);
      continue;
    }
    const int score = nearness(in);
    const bool nearer =
        score > best_score || (score == best_score && refusals.size() < best.refusals.size());
    if (!nearer) continue;
    best_score = score;
    best = {row, {}, std::move(refusals)};
  }
  if (accepted.accepting.empty()) return best;
  accepted.row = accepted.accepting.front();
  return accepted;
}

Verdict judge_device(const BackendDescriptor& backend, const DeviceInfo& device,
                     const SelectionOptions& options, bool can_make) {
  Verdict best;
  const AttentionSpec nothing;
  const ModelFacts nobody{};
  int best_score = -1;
  for (const Capability& row : backend.capabilities) {
    const RuleInput in{backend, row, nothing, Phase::decode, device, options, nobody, can_make};
    std::vector<Refusal> refusals;
    for (const Rule& rule : kRules) {
      const bool of_device = rule.name == "device" || rule.name == "isa" || rule.name == "built";
      if (of_device && !rule.holds(in))
        refusals.push_back(
            {std::string(backend.name), std::string(rule.name), rule.wanted(in), rule.have(in)});
    }
    if (refusals.empty()) return {&row, {&row}, {}};
    const int score = (row.device == device.kind ? 8 : 0) + (device_fits(in) ? 4 : 0);
    if (score < best_score || (score == best_score && refusals.size() >= best.refusals.size()))
      continue;
    best_score = score;
    best = {&row, {}, std::move(refusals)};
  }
  return best;
}

}  // namespace attune::registry
