#include "runtime/backend_set.hpp"

#include <utility>

#include "model/linear_families.hpp"

namespace attune::runtime {
namespace {

Result<std::shared_ptr<Backend>> make_one(const Registry& registry, const std::string& name,
                                          const BackendContext& context) {
  Result<std::unique_ptr<Backend>> made = registry.make(name, context);
  if (!made.ok()) return made.status();
  return std::shared_ptr<Backend>(std::move(*made));
}

/// The name that serves `spec` over ragged keys: `name`, or whatever the registry chooses.
Result<std::string> choose_expanded(const Registry& registry, const BackendRequest& request,
                                    const std::string& name, const AttentionSpec& spec,
                                    FeatureSet also = {}) {
  // Nothing decodes in this form: who could does not matter.
  SelectionOptions options{.prefill = name, .fallback = FallbackPolicy::allow};
  options.required = FeatureSet(Feature::ragged_kv) | Feature::lse | also;
  const ModelQuery query{.architecture = {}, .groups = {{.kind = "expanded", .spec = spec}}};
  const Result<Selection> chosen = registry.select(query, request.device, options);
  if (!chosen.ok()) return chosen.status();
  return chosen->groups[0].of(Phase::prefill)->backend;
}

ExpandedBackends make_expanded(const Registry& registry, const BackendRequest& request,
                               const model::ModelConfig& config, const GroupSelection& chosen,
                               BackendContext context) {
  if (request.batch_invariant) return {.refusal = "batch-invariant: the forms round differently"};
  const AttentionSpec& latent = chosen.group.spec;
  const bool plain = latent.window_left < 0 && latent.attention_chunk == 0 && !latent.sinks &&
                     !latent.kv_scales && !latent.custom_mask;
  if (!plain || chosen.kv_layout != KvLayout::mla_latent ||
      (latent.kv_dtype != DType::f32 && latent.kv_dtype != DType::bf16 &&
       latent.kv_dtype != DType::f16))
    return {.refusal = "only plain latents of 16 or 32 bits are expanded"};
  const model::AttentionConfig& attention = *config.attention_of(chosen.group.layers[0]);
  const AttentionSpec own = model::expanded_spec(latent, attention, true);
  const AttentionSpec prefix = model::expanded_spec(latent, attention, false);

  // A name that serves ordinary heads too serves both forms; what the user named is not replaced.
  const PhaseSelection& prefill = *chosen.of(Phase::prefill);
  Result<std::string> name = choose_expanded(registry, request, prefill.backend, own);
  if (!name.ok() && prefill.chosen_by != ChosenBy::user)
    name = choose_expanded(registry, request, "auto", own);
  if (!name.ok()) return {.refusal = name.status().text()};
  context.page_size = 1;
  context.kv_layout = KvLayout::nhd;
  context.spec = own;
  Result<std::shared_ptr<Backend>> made = make_one(registry, *name, context);
  if (!made.ok()) return {.refusal = made.status().text()};
  ExpandedBackends expanded{.own = std::move(*made)};
  const Result<std::string> joins =
      choose_expanded(registry, request, *name, prefix, Feature::chunked_prefix);
  if (!joins.ok()) {
    expanded.refusal = *name + " joins no chunks of a cached prefix: " + joins.status().text();
    return expanded;
  }
  context.spec = prefix;
  made = make_one(registry, *name, context);
  if (made.ok())
    expanded.prefix = std::move(*made);
  else
    expanded.refusal = made.status().text();
  return expanded;
}

}  // namespace

Result<BackendSet> make_backends(const Registry& registry, const model::ModelConfig& config,
                                 const BackendRequest& request, Executor& executor) {
  const bool int8 = request.selection.kv_dtype == DType::i8;
  ModelQuery query{.architecture = config.architecture, .groups = {}};
  for (model::AttentionGroup& group : model::attention_groups(config, request.dtypes)) {
    if (int8 && !is_linear(group.spec.variant)) {
      if (group.spec.variant != Variant::gqa) {
        return unsupported("int8 KV caches are calibrated for gqa layers only, have " +
                           std::string(name(group.spec.variant)));
      }
      group.spec.kv_scales = group.spec.per_head_scales = true;
    }
    query.groups.push_back({.layers = std::move(group.layers),
                            .kind = std::move(group.kind),
                            .spec = group.spec,
                            .encoder = group.encoder});
  }
  SelectionOptions options = request.selection;
  model::name_family_backends(config, options);
  if (request.batch_invariant) options.required = options.required | Feature::batch_invariant;
  Result<Selection> selection = registry.select(query, request.device, options);
  if (!selection.ok()) return selection.status();

  BackendSet set;
  // Linear groups have no pages; a model of nothing else needs no page size.
  set.page_size = selection->page_size > 0 ? selection->page_size : 1;
  for (const GroupSelection& chosen : selection->groups) {
    BackendContext context;
    context.spec = chosen.group.spec;
    context.device = request.device;
    context.page_size = chosen.page_size > 0 ? chosen.page_size : 1;
    context.kv_layout = chosen.kv_layout.value_or(KvLayout::nhd);
    context.executor = &executor;
    context.batch_invariant = request.batch_invariant;

    GroupBackends backends;
    backends.kv_layout = context.kv_layout;
    const PhaseSelection* prefill = chosen.of(Phase::prefill);
    require(prefill != nullptr, "every group is prefilled");
    Result<std::shared_ptr<Backend>> made = make_one(registry, prefill->backend, context);
    if (!made.ok()) return made.status();
    backends.prefill = std::move(*made);
    backends.decode = backends.prefill;
    const PhaseSelection* decode = chosen.of(Phase::decode);
    if (decode != nullptr && decode->backend != prefill->backend) {
      made = make_one(registry, decode->backend, context);
      if (!made.ok()) return made.status();
      backends.decode = std::move(*made);
    }
    if (context.spec.variant == Variant::mla)
      backends.expanded = make_expanded(registry, request, config, chosen, context);
    set.groups.push_back(std::move(backends));
    set.attention.push_back({.layers = chosen.group.layers,
                             .kind = chosen.group.kind,
                             .spec = chosen.group.spec,
                             .encoder = chosen.group.encoder});
  }
  set.selection = std::move(*selection);
  return set;
}

}  // namespace attune::runtime
