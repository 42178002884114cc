#include "backends/shared/cuda/hopper_prefill.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include <attune/validate.hpp>

#include "backends/shared/cuda/card.hpp"
#include "backends/shared/cuda/declared.hpp"
#include "backends/shared/cuda/dense_glue.hpp"
#include "backends/shared/cuda/hopper_tiles.hpp"
#include "base/join.hpp"
#include "base/math.hpp"
#include "device/cuda/memory.hpp"
#include "plan/workspace.hpp"
#include "plan/workspace_image.hpp"

namespace attune::backends::shared {
namespace {

namespace sm90 = kernels::ragged_prefill::sm90;

/// Offsets of a workspace, counted and handed out by the same lines.
struct Parts {
  std::byte* rows = nullptr;       ///< of keys and values that are copied first
  sm90::WorkList* list = nullptr;  ///< from here on a copy of the plan's image
  std::uint32_t* num_rows = nullptr;
  attention::PrefillTile* items = nullptr;
  std::int32_t* kv_indices = nullptr;
};
Parts lay_out(plan::WorkspaceCutter& cut, std::int64_t row_bytes, std::int64_t max_items,
              std::int64_t kv_entries) {
  Parts parts;
  parts.rows = cut.take<std::byte>(row_bytes);
  parts.list = cut.take<sm90::WorkList>(1);
  parts.num_rows = cut.take<std::uint32_t>(1);
  parts.items = cut.take<attention::PrefillTile>(max_items);
  parts.kv_indices = cut.take<std::int32_t>(kv_entries);
  return parts;
}

struct HopperPlan final : Plan {
  attention::BatchFacts facts;
  Workspace workspace;
  Parts parts;
  std::int64_t max_rows = 0;
  std::int64_t max_items = 0;
  std::int64_t max_entries = 0;
  hopper::Choice choice;
  plan::PrefillSchedule schedule;
  plan::WorkspaceImage image;
};

class HopperPrefill final : public Backend {
 public:
  HopperPrefill(const BackendContext& context, const BackendDescriptor& descriptor,
                hopper::Tiler tiler)
      : context_(context), descriptor_(descriptor), tiler_(std::move(tiler)) {
    context_.executor = nullptr;
  }

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return descriptor_; }
  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override;
  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                          Stream stream) override;
  Status refresh(Plan& plan, const BatchView& batch, Stream stream) override;
  Status append_kv(const LayerCall& call, Stream stream) override {
    return cuda::append_kv(call, context_, stream);
  }
  Status run(const Plan& plan, const LayerCall& call, Stream stream) override;

 private:
  Status fill(HopperPlan& plan, const BatchView& batch, Stream stream) const;

  BackendContext context_;
  const BackendDescriptor& descriptor_;
  hopper::Tiler tiler_;
};

WorkspaceSize HopperPrefill::workspace_size(const BatchBounds& bounds) const {
  plan::WorkspaceCutter count;
  lay_out(count, tiler_.max_rows(bounds) * tiler_.row_bytes(),
          tiler_.max_tiles(bounds.max_batch, bounds.max_qo_tokens), bounds.max_kv_entries);
  return {.device_bytes = count.bytes()};
}

Status HopperPrefill::fill(HopperPlan& plan, const BatchView& batch, Stream stream) const {
  const std::int64_t rows = plan.choice.copies_first ? tiler_.rows_of(batch) : 0;
  if (rows > plan.max_rows)
    return invalid_argument(base::join("the plan's workspace holds ", plan.max_rows,
                                       " rows of keys and values, the batch has ", rows,
                                       ": make a new plan"));
  const auto num_rows = static_cast<std::uint32_t>(rows);
  const sm90::WorkList list = tiler_.schedule(plan.choice, batch, plan.schedule);
  const std::vector<attention::PrefillTile>& tiles = plan.schedule.tiles;
  const auto num_items = static_cast<std::int64_t>(tiles.size());
  const auto num_entries = static_cast<std::int64_t>(batch.kv_indices.size());
  if (num_items > plan.max_items || num_entries > plan.max_entries) {
    return invalid_argument(base::join("the plan's workspace holds ", plan.max_items, " tiles and ",
                                       plan.max_entries, " page ids, the batch needs ", num_items,
                                       " and ", num_entries, ": make a new plan"));
  }
  plan.image.cover(plan.parts.list, plan.parts.kv_indices + num_entries);
  plan.image.put_one(plan.parts.list, list);
  plan.image.put_one(plan.parts.num_rows, num_rows);
  plan.image.put(plan.parts.items, tiles);
  plan.image.put(plan.parts.kv_indices, batch.kv_indices);
  return device::cuda::copy_to_device(
      plan.image.place(), plan.image.data(), plan.image.bytes(), stream,
      base::join(descriptor_.name, ": copying a plan to the device"));
}

Result<PlanHandle> HopperPrefill::plan(const BatchView& batch, const Workspace& workspace,
                                       Stream stream) {
  auto facts = attention::validate_batch(batch, context_.spec, context_.page_size);
  if (!facts.ok()) return facts.status();
  const BatchBounds bounds = attention::bounds_of(batch);
  const std::size_t wanted = workspace_size(bounds).device_bytes;
  if (Status s = cuda::check_workspace(workspace, wanted); !s.ok()) return s;
  auto made = std::make_unique<HopperPlan>();
  made->facts = *facts;
  made->workspace = workspace;
  made->choice = tiler_.choose(batch);
  require(made->choice.kernel.kernel != nullptr,
          "make_hopper_prefill leaves a kernel for every source of keys");
  made->max_rows = tiler_.max_rows(bounds);
  made->max_items = tiler_.max_tiles(bounds.max_batch, bounds.max_qo_tokens);
  // What the caller gave beyond this batch's needs is room for more page ids.
  made->max_entries =
      bounds.max_kv_entries +
      static_cast<std::int64_t>((workspace.device_bytes - wanted) / sizeof(std::int32_t));
  plan::WorkspaceCutter cut(workspace.device);
  made->parts =
      lay_out(cut, made->max_rows * tiler_.row_bytes(), made->max_items, made->max_entries);
  if (Status s = fill(*made, batch, stream); !s.ok()) return s;
  return PlanHandle(std::move(made));
}

Status HopperPrefill::refresh(Plan& plan, const BatchView& batch, Stream stream) {
  auto& mine = static_cast<HopperPlan&>(plan);
  auto facts = attention::validate_batch(batch, context_.spec, context_.page_size);
  if (!facts.ok()) return facts.status();
  if (Status s = cuda::check_refresh(mine.facts, *facts); !s.ok()) return s;
  if (Status s = fill(mine, batch, stream); !s.ok()) return s;
  mine.facts = *facts;
  return {};
}

Status HopperPrefill::run(const Plan& plan, const LayerCall& call, Stream stream) {
  const auto& mine = static_cast<const HopperPlan&>(plan);
  if (Status s = attention::validate_run(call, mine.facts, context_.spec, context_.page_size,
                                         context_.kv_layout);
      !s.ok())
    return s;
  if (mine.facts.num_qo_tokens == 0) return {};
  return tiler_.launch(mine.choice, mine.facts,
                       {mine.parts.list, mine.parts.items, mine.parts.kv_indices, mine.parts.rows,
                        mine.max_rows, mine.parts.num_rows},
                       call, stream);
}

Status check_context(const BackendContext& context, std::string_view who) {
  const AttentionSpec& spec = context.spec;
  if (context.device.kind != DeviceKind::cuda)
    return unsupported(base::join(who, " runs on cuda, not on ", name(context.device.kind)));
  if (const std::string_view what = hopper::unserved(spec); !what.empty())
    return unsupported(base::join(who, " has no kernel with ", what));
  if (Status s = attention::validate_spec(spec); !s.ok()) return s;
  if (context.page_size < 1)
    return invalid_argument(base::join("page_size must be positive, have ", context.page_size));
  return {};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_hopper_prefill(const BackendContext& context,
                                                     const BackendDescriptor& descriptor,
                                                     sm90::Strategy strategy) {
  if (Status s = check_context(context, descriptor.name); !s.ok()) return s;
  const AttentionSpec& spec = context.spec;
  const auto card = cuda::enter_hopper(descriptor.name, context);
  if (!card.ok()) return card.status();
  if (Status s = cuda::check_declared(descriptor, context, card->sm); !s.ok()) return s;
  auto tiler = hopper::Tiler::make(context, strategy, true);
  if (!tiler.ok()) return tiler.status();
  if (!tiler->serves(KvSource::ragged) || !tiler->serves(KvSource::paged))
    return unsupported(base::join(descriptor.name, " has no kernel for head dims ",
                                  spec.head_dim_qk, "/", spec.head_dim_vo, " in ",
                                  name(spec.q_dtype), " over pages of ", context.page_size, " in ",
                                  name(spec.kv_dtype)));
  return std::unique_ptr<Backend>(
      std::make_unique<HopperPrefill>(context, descriptor, std::move(*tiler)));
}

}  // namespace attune::backends::shared
