#include "runtime/backend_set.hpp"

#include <utility>

namespace attune::runtime {
namespace {

Result<std::shared_ptr<Backend>> make_one(const Registry& registry, const std::string& name,
                                          const BackendContext& context) {
  Result<std::unique_ptr<Backend>> made = registry.make(name, context);
  if (!made.ok()) return made.status();
  return std::shared_ptr<Backend>(std::move(*made));
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
