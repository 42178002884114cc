#include "runtime/step_plans.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace attune::runtime {
namespace {

constexpr std::size_t kWorkspaceAlignment = 256;

/// Doublings: what is decided from lengths (splits, a kernel for long keys) is decided anew in the
/// next one.
int length_class(const BatchView& view) {
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < view.batch_size(); ++i) longest = std::max(longest, view.kv_len(i));
  return std::bit_width(static_cast<std::uint64_t>(longest));
}

}  // namespace

StepPlans::StepPlans(const BackendSet& backends, const KvMemory& kv, const EngineOptions& options,
                     model::Ops& ops)
    : backends_(backends),
      kv_(kv),
      options_(options),
      ops_(ops),
      slots_(backends.groups.size()),
      parts_(backends.groups.size()),
      groups_(backends.groups.size()),
      latent_(backends.groups.size()) {}

Result<std::unique_ptr<StepPlans>> StepPlans::make(const model::ModelConfig& config,
                                                   const BackendSet& backends, const KvMemory& kv,
                                                   const EngineOptions& options, model::Ops& ops) {
  std::unique_ptr<StepPlans> plans(new StepPlans(backends, kv, options, ops));
  if (Status s = plans->allocate(); !s.ok()) return s;
  if (Status s = plans->allocate_latent(config); !s.ok()) return s;
  return plans;
}

Status StepPlans::allocate_latent(const model::ModelConfig& config) {
  if (options_.latent.chunk_tokens < 1)
    return invalid_argument("chunks of latents are expanded " +
                            std::to_string(options_.latent.chunk_tokens) +
                            " at once, wanted at least 1");
  const auto is_latent = [](const model::AttentionGroup& group) {
    return group.spec.variant == Variant::mla;
  };
  if (options_.latent != LatentOptions{} && std::ranges::none_of(backends_.attention, is_latent))
    return invalid_argument("a form of latent attention was asked for: this model has none");
  for (std::size_t g = 0; g < latent_.size(); ++g) {
    const ExpandedBackends& expanded = backends_.groups[g].expanded;
    const model::AttentionGroup& group = backends_.attention[g];
    if (!is_latent(group)) continue;
    if (options_.latent.form == LatentForm::expanded && expanded.prefix == nullptr)
      return unsupported("the expanded form of latent layers was wanted: " + expanded.refusal);
    if (options_.latent.form == LatentForm::absorbed || !expanded.usable()) continue;
    latent_[g] = std::make_unique<LatentPlans>(expanded, *config.attention_of(group.layers[0]),
                                               options_, ops_);
  }
  return {};
}

Status StepPlans::allocate() {
  for (std::size_t g = 0; g < slots_.size(); ++g) {
    for (const StepPart part : {StepPart::decode, StepPart::verify, StepPart::prefill}) {
      if (part == StepPart::verify && !options_.speculation.enabled()) continue;
      WorkspaceSize size =
          backends_.groups[g].of(phase_of(part, g)).workspace_size(bounds_of(part, g));
      // A plan for few page ids, refreshed with more of them: what rounding up took from those.
      if (size.device_bytes > 0) size.device_bytes += kWorkspaceAlignment;
      Slot& slot = slots_[g][static_cast<std::size_t>(part)];
      Result<model::Buffer> device = ops_.allocate(size.device_bytes);
      if (!device.ok()) return device.status();
      slot.device = std::move(*device);
      slot.host.resize(size.host_bytes);
      slot.workspace = {.device = slot.device.data(),
                        .device_bytes = size.device_bytes,
                        .host = slot.host.data(),
                        .host_bytes = size.host_bytes};
      workspace_bytes_ += static_cast<std::int64_t>(size.device_bytes + size.host_bytes);
    }
  }
  if (ops_.device() == DeviceKind::cpu) return {};
  const auto bytes = static_cast<std::size_t>(options_.max_step_tokens()) * sizeof(std::int64_t);
  for (std::size_t c = 0; c < kv_.groups().size(); ++c) {
    Result<model::Buffer> slots = ops_.allocate(bytes);
    if (!slots.ok()) return slots.status();
    device_slots_.push_back(std::move(*slots));
  }
  return {};
}

Phase StepPlans::phase_of(StepPart part, std::size_t group) const {
  const bool decodes = part == StepPart::decode ||
                       (part == StepPart::verify && options_.speculation.verify_as_decodes &&
                        kv_.group_of(group) >= 0);
  return decodes ? Phase::decode : Phase::prefill;
}

BatchBounds StepPlans::bounds_of(StepPart part, std::size_t group) const {
  const int cache_group = kv_.group_of(group);
  const std::int64_t pages =
      cache_group < 0
          ? 0
          : kv_.pages_of_request(static_cast<std::size_t>(cache_group), options_.context_limit);
  const bool decode_only = phase_of(part, group) == Phase::decode;
  const std::int64_t drafted = options_.max_decode_tokens();
  // Drafts that are decodes stand among these, too.
  const bool joined = part == StepPart::verify ||
                      (part == StepPart::decode && options_.speculation.verify_as_decodes);
  // Linear layers are shown the rows that fill a verification up as one request more.
  const bool fills_up = part == StepPart::verify && cache_group < 0;
  const std::int64_t batch = decode_only && joined && cache_group >= 0
                                 ? drafted
                                 : options_.scheduler.max_batch + (fills_up ? 1 : 0);
  return {.max_batch = batch,
          .max_qo_tokens = part == StepPart::verify   ? drafted
                           : part == StepPart::decode ? batch
                                                      : options_.scheduler.chunk_size,
          .max_kv_entries = batch * pages,
          .max_kv_len = std::min(options_.context_limit, pages * backends_.page_size),
          .max_positions = kv_.compressed_group_of(group) < 0 ? 0 : options_.context_limit,
          .page_size = backends_.page_size,
          .decode_only = decode_only};
}

BatchView StepPlans::view_of(const PartBatch& part, std::size_t group) const {
  const int cache_group = kv_.group_of(group);
  if (cache_group < 0) return part.pageless;
  BatchView view = part.views[static_cast<std::size_t>(cache_group)];
  if (const int compressed = kv_.compressed_group_of(group); compressed >= 0) {
    const BatchView& pages = part.views[static_cast<std::size_t>(compressed)];
    view.compressed = {.kv_indptr = pages.kv_indptr, .kv_indices = pages.kv_indices};
  }
  return view;
}

StepPart StepPlans::part_of(const PartBatch& part, std::size_t group) const {
  const bool verifies = view_of(part, group).form == BatchForm::target_verify;
  return verifies ? StepPart::verify : part.part;
}

std::span<const std::int64_t> StepPlans::slots_on_device(const StepBatch& batch,
                                                         std::size_t cache_group) const {
  const std::span<const std::int64_t> slots = batch.slot_mapping(cache_group);
  if (device_slots_.empty()) return slots;
  return {static_cast<const std::int64_t*>(device_slots_[cache_group].data()), slots.size()};
}

Status StepPlans::refresh(Backend& backend, const BatchView& view, Kept& kept, int length) {
  if (kept.plan == nullptr) return invalid_argument("nothing was planned yet");
  if (kept.length_class != length)
    return invalid_argument("the longest request doubled since it was planned");
  return backend.refresh(*kept.plan, view, ops_.stream());
}

Result<const Plan*> StepPlans::keep_plan(Backend& backend, const BatchView& view,
                                         const StepShape& shape, Slot& slot) {
  Kept& kept = slot.kept[shape];
  const int now = length_class(view);
  if (Status fits = refresh(backend, view, kept, now); !fits.ok()) {
    if (kept.plan != nullptr) {
      ++replanning_.count;
      replanning_.last_reason = fits.text();
    }
    Result<PlanHandle> plan = backend.plan(view, slot.workspace, ops_.stream());
    if (!plan.ok()) return plan.status();
    kept = {.plan = std::move(*plan), .edition = ++num_editions_, .length_class = now};
  }
  edition_ = std::max(edition_, kept.edition);
  return kept.plan.get();
}

Status StepPlans::add_part(const PartBatch& part, std::size_t group, bool keep,
                           const StepShape& shape) {
  const StepPart seen = part_of(part, group);
  Backend& backend = backends_.groups[group].of(phase_of(seen, group));
  Slot& slot = slots_[group][static_cast<std::size_t>(seen)];
  const BatchView view = view_of(part, group);
  model::AttentionPart planned{
      .first_row = part.first_row, .num_rows = part.num_rows, .backend = &backend};
  const bool is_prompt =
      backends_.attention[group].spec.variant == Variant::mla && seen == StepPart::prefill;
  if (is_prompt && latent_[group] && latent_[group]->form_of(view) == LatentForm::expanded) {
    const auto expanded = latent_[group]->plan(view, part.first_row);
    if (!expanded.ok()) return expanded.status();
    planned.expanded = *expanded;
    ++latent_statistics_.expanded;
    latent_statistics_.prefix_chunks += static_cast<std::int64_t>(expanded->size()) - 1;
  } else if (keep) {
    // Pages are those of a row each, whoever's they are.
    const bool rows_only = kv_.group_of(group) >= 0;
    const Result<const Plan*> kept =
        keep_plan(backend, view, rows_only ? StepShape{.rows = shape.rows} : shape, slot);
    if (!kept.ok()) return kept.status();
    planned.plan = *kept;
  } else {
    Result<PlanHandle> made = backend.plan(view, slot.workspace, ops_.stream());
    if (!made.ok()) return made.status();
    slot.plan = std::move(*made);
    planned.plan = slot.plan.get();
  }
  if (is_prompt && planned.expanded.empty()) ++latent_statistics_.absorbed;
  parts_[group].push_back(planned);
  return {};
}

Status StepPlans::plan(const StepBatch& batch) {
  edition_ = 0;
  const bool keep = ops_.device() != DeviceKind::cpu && batch.parts().size() == 1 &&
                    batch.parts()[0].part == StepPart::decode;
  for (std::size_t c = 0; c < device_slots_.size(); ++c) {
    const std::span<const std::int64_t> slots = batch.slot_mapping(c);
    ops_.upload(device_slots_[c].data(), slots.data(), slots.size_bytes());
  }
  for (std::size_t g = 0; g < slots_.size(); ++g) {
    parts_[g].clear();
    for (const PartBatch& part : batch.parts())
      if (Status s = add_part(part, g, keep, batch.shape()); !s.ok()) return s;
    groups_[g] = {.parts = parts_[g], .slot_mapping = {}, .compressed_slots = {}};
    if (const int cache_group = kv_.group_of(g); cache_group >= 0)
      groups_[g].slot_mapping = slots_on_device(batch, static_cast<std::size_t>(cache_group));
    if (const int cache_group = kv_.compressed_group_of(g); cache_group >= 0)
      groups_[g].compressed_slots = slots_on_device(batch, static_cast<std::size_t>(cache_group));
  }
  return {};
}

}  // namespace attune::runtime
