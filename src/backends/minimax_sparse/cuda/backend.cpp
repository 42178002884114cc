// An indexer scores blocks, each KV head of a token keeps the best, and what is kept is attended to:
// by the split-KV decode kernel as pages, by Hopper's prefill kernel where tokens are tiles
// (docs/decisions/0013-block-sparse.md).
#include "backends/minimax_sparse/cuda/backend.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "backends/minimax_sparse/cuda/checks.hpp"
#include "backends/minimax_sparse/cuda/plan.hpp"
#include "backends/minimax_sparse/descriptor.hpp"
#include "backends/shared/alignment.hpp"
#include "backends/shared/cuda/card.hpp"
#include "backends/shared/cuda/dense_glue.hpp"
#include "backends/shared/cuda/latent_params.hpp"
#include "backends/shared/cuda/paged_attention.hpp"
#include "backends/shared/cuda/paged_decode_run.hpp"
#include "backends/shared/cuda/paged_setup.hpp"
#include "device/cuda/memory.hpp"
#include "device/cuda/usable_sms.hpp"
#include "kernels/append_kv/sm80/launch.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::minimax_sparse {
namespace {

namespace paged = shared::paged;
using device::cuda::native;

/// A request of fewer query tokens is no prompt: its steps may be recorded, and grow.
constexpr std::int64_t kPromptTokens = 16;

class BlockBackend final : public Backend {
 public:
  BlockBackend(const BackendContext& context, const Indexer& indexer, paged::Setup lists,
               std::optional<Tiler> tiler, std::unique_ptr<Backend> dense)
      : context_(context),
        indexer_(indexer),
        lists_(std::move(lists)),
        tiler_(std::move(tiler)),
        dense_(std::move(dense)) {
    context_.executor = nullptr;
  }

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return kDescriptor; }
  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override;
  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                          Stream stream) override;
  Status refresh(Plan& plan, const BatchView& batch, Stream stream) override;
  Status append_kv(const LayerCall& call, Stream stream) override;
  Status run(const Plan& plan, const LayerCall& call, Stream stream) override;

 private:
  [[nodiscard]] Result<attention::BatchFacts> check(const BatchView& batch) const;
  [[nodiscard]] bool keeps_all(const attention::BatchFacts& facts) const {
    const AttentionSpec& spec = context_.spec;
    return facts.max_qo_len >= kPromptTokens &&
           facts.max_kv_len <= std::int64_t{spec.index_topk} * spec.index_block_size;
  }
  /// In front of plain attention's: of lists' work, then of tiles and of the selection.
  [[nodiscard]] std::size_t own_bytes(const BatchBounds& bounds) const;
  [[nodiscard]] TileSizes tile_sizes(const BatchBounds& bounds) const {
    return tiler_ ? tiler_->sizes(bounds) : TileSizes{};
  }
  void lay_out_plan(const BatchBounds& bounds, const Workspace& workspace, BlockPlan& plan) const;
  [[nodiscard]] Status fill(BlockPlan& plan, const BatchView& batch, bool fresh,
                            Stream stream) const;
  [[nodiscard]] Status check_call(const BlockPlan& plan, const LayerCall& call) const;
  [[nodiscard]] Status attend(const BlockPlan& plan, const attention::PagedKv& kv,
                              const LayerCall& call, Stream stream) const;

  BackendContext context_;
  Indexer indexer_;
  paged::Setup lists_;
  std::optional<Tiler> tiler_;
  std::unique_ptr<Backend> dense_;
};

std::size_t BlockBackend::own_bytes(const BatchBounds& bounds) const {
  plan::WorkspaceCutter count;
  if (tiler_) (void)tiler_->lay_out(count, tile_sizes(bounds));
  (void)lay_out(count, indexer_, selection_sizes(indexer_, bounds));
  return paged::workspace_bytes(lists_, paged::sizes_of(lists_, list_bounds(bounds))) +
         count.bytes();
}

WorkspaceSize BlockBackend::workspace_size(const BatchBounds& bounds) const {
  const std::size_t dense = bounds.decode_only ? 0 : dense_->workspace_size(bounds).device_bytes;
  return {.device_bytes = own_bytes(bounds) + dense};
}

Result<attention::BatchFacts> BlockBackend::check(const BatchView& batch) const {
  if (batch.source != KvSource::paged && batch.batch_size() > 0)
    return unsupported("minimax_sparse reads keys from pages only");
  auto facts = attention::validate_batch(batch, context_.spec, context_.page_size);
  if (!facts.ok()) return facts;
  if (Status s = check_counts(context_.spec, context_.page_size, facts->num_qo_tokens); !s.ok())
    return s;
  return facts;
}

Status BlockBackend::fill(BlockPlan& plan, const BatchView& batch, bool fresh,
                          Stream stream) const {
  if (Status s = list_selection(indexer_, batch, plan.selection, stream); !s.ok()) return s;
  if (plan.tiles.used)
    if (Status s = tiler_->list(batch, plan.tiles, stream); !s.ok()) return s;
  if (Status s =
          paged::make_lists(lists_, list_batch(context_.spec, batch, plan), fresh, plan.lists);
      !s.ok())
    return s;
  return paged::upload(plan.lists, stream);
}

/// What the caller gave beyond a batch's needs is room for longer requests, where a plan may come to
/// see some: prompts are planned anew.
void BlockBackend::lay_out_plan(const BatchBounds& bounds, const Workspace& workspace,
                                BlockPlan& plan) const {
  paged::PagedPlan& lists = plan.lists;
  lists.sizes = paged::sizes_of(lists_, list_bounds(bounds));
  lists.parts = paged::parts_of(lists_, lists.sizes, workspace.device);
  plan::WorkspaceCutter cut(static_cast<std::byte*>(workspace.device) +
                            paged::workspace_bytes(lists_, lists.sizes));
  plan.tiles.sizes = tile_sizes(bounds);
  if (tiler_) plan.tiles.parts = tiler_->lay_out(cut, plan.tiles.sizes);
  Selection& selection = plan.selection;
  selection.sizes = selection_sizes(indexer_, bounds);
  if (!plan.keeps_all && !plan.tiles.used)
    selection.sizes.take_spare(
        indexer_, static_cast<std::int64_t>(workspace.device_bytes - own_bytes(bounds)));
  selection.parts = lay_out(cut, indexer_, selection.sizes);
}

Result<PlanHandle> BlockBackend::plan(const BatchView& batch, const Workspace& workspace,
                                      Stream stream) {
  auto facts = check(batch);
  if (!facts.ok()) return facts.status();
  const BatchBounds bounds = attention::bounds_of(batch);
  if (Status s = shared::cuda::check_workspace(workspace, workspace_size(bounds).device_bytes);
      !s.ok())
    return s;
  auto made = std::make_unique<BlockPlan>();
  made->facts = *facts;
  made->keeps_all = keeps_all(*facts);
  made->tiles.used = tiler_ && tiler_->takes(*facts);
  made->lists.usable = device::cuda::usable_sms(stream, lists_.num_sms);
  lay_out_plan(bounds, workspace, *made);
  if (Status s = paged::empty_mailboxes(made->lists, stream); !s.ok()) return s;
  begin_selection(indexer_, facts->max_qo_len, made->selection);
  if (Status s = fill(*made, batch, true, stream); !s.ok()) return s;
  made->decodes = made->lists.decode.work.num_items > 0;
  if (!made->keeps_all) return PlanHandle(std::move(made));
  const std::size_t own = own_bytes(bounds);
  auto dense = dense_->plan(batch,
                            {.device = static_cast<std::byte*>(workspace.device) + own,
                             .device_bytes = workspace.device_bytes - own},
                            stream);
  if (!dense.ok()) return dense.status();
  made->dense = std::move(*dense);
  return PlanHandle(std::move(made));
}

Status BlockBackend::refresh(Plan& plan, const BatchView& batch, Stream stream) {
  auto& mine = static_cast<BlockPlan&>(plan);
  auto facts = check(batch);
  if (!facts.ok()) return facts.status();
  if (Status s = shared::cuda::check_refresh(mine.facts, *facts); !s.ok()) return s;
  if (mine.keeps_all && !keeps_all(*facts))
    return invalid_argument(
        "the plan's prompts left no block out, and the batch's do: make a new plan");
  if (mine.tiles.used != (tiler_ && tiler_->takes(*facts)))
    return invalid_argument(
        "refresh wants prompts where the plan had some, and none else: make a new plan");
  if (Status s = fill(mine, batch, false, stream); !s.ok()) return s;
  if ((mine.lists.decode.work.num_items > 0) != mine.decodes)
    return invalid_argument("refresh wants the plan's mix of prefill and decode: make a new plan");
  if (mine.keeps_all)
    if (Status s = dense_->refresh(*mine.dense, batch, stream); !s.ok()) return s;
  mine.facts = *facts;
  return {};
}

Status BlockBackend::append_kv(const LayerCall& call, Stream stream) {
  if (Status s = shared::cuda::append_kv(call, context_, stream); !s.ok()) return s;
  if (call.sparse == nullptr || !call.sparse->index_k.defined()) return {};
  return kernels::append_kv::sm80::launch(
      shared::cuda::latent_append(call, call.sparse->index_k, call.sparse->index_cache,
                                  context_.spec.index_head_dim, 1.0f, context_.page_size),
      native(stream));
}

Status BlockBackend::check_call(const BlockPlan& plan, const LayerCall& call) const {
  if (Status s = attention::validate_run(call, plan.facts, context_.spec, context_.page_size,
                                         context_.kv_layout);
      !s.ok())
    return s;
  if (plan.facts.num_qo_tokens == 0) return {};
  if (Status s = shared::check_alignment("q", call.q); !s.ok()) return s;
  if (Status s = shared::check_alignment("o", call.o); !s.ok()) return s;
  if (Status s = shared::check_alignment("keys", call.k_cache); !s.ok()) return s;
  return shared::check_alignment("values", call.v_cache);
}

Status BlockBackend::attend(const BlockPlan& plan, const attention::PagedKv& kv,
                            const LayerCall& call, Stream stream) const {
  kernels::paged_decode::sm80::Params p = paged::decode_params(lists_, plan.lists, call);
  p.kv = kv;
  p.kv.indices = plan.selection.parts.pages;
  p.lengths = plan.selection.parts.kept;
  p.list_entries = static_cast<std::int32_t>(indexer_.pages_of_list());
  return paged::launch_decode(lists_, plan.lists, p, stream);
}

Status BlockBackend::run(const Plan& plan, const LayerCall& call, Stream stream) {
  const auto& mine = static_cast<const BlockPlan&>(plan);
  if (Status s = check_call(mine, call); !s.ok() || mine.facts.num_qo_tokens == 0) return s;
  const auto cache = part_cache(context_, call, mine.facts);
  if (!cache.ok()) return cache.status();
  if (Status s =
          select_blocks(indexer_, mine.selection, cache->parts_of_page, *call.sparse, stream);
      !s.ok())
    return s;
  if (mine.keeps_all && call.sparse->index_q.defined()) {
    LayerCall whole = call;
    whole.sparse = nullptr;
    return dense_->run(*mine.dense, whole, stream);
  }
  if (mine.tiles.used)
    if (Status s =
            tiler_->run(mine.tiles, mine.facts, mine.selection.parts.kv_indices, call, stream);
        !s.ok())
      return s;
  return mine.decodes ? attend(mine, cache->kv, call, stream) : Status{};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  if (Status s = check_context(context); !s.ok()) return s;
  const auto card = shared::cuda::enter_hopper(kDescriptor.name, context);
  if (!card.ok()) return card.status();
  BackendContext plain = context;
  AttentionSpec& spec = plain.spec;
  spec.variant = Variant::gqa;
  spec.index_num_heads = spec.index_head_dim = spec.index_topk = 0;
  spec.index_block_size = spec.index_init_blocks = spec.index_local_blocks = 0;
  spec.index_dtype = AttentionSpec{}.index_dtype;
  auto lists = paged::make_setup(plain, kDescriptor, {.lists = true});
  if (!lists.ok()) return lists.status();
  auto dense = shared::make_paged_attention(plain, kDescriptor, {.hopper = true, .mails = false});
  if (!dense.ok()) return dense.status();
  auto tiler = Tiler::make(context);
  if (!tiler.ok()) return tiler.status();
  const Indexer indexer{.spec = context.spec,
                        .page_size = context.page_size,
                        .part_keys = part_keys(context.spec, context.page_size),
                        .num_sms = card->num_sms};
  return std::unique_ptr<Backend>(std::make_unique<BlockBackend>(
      context, indexer, std::move(*lists), std::move(*tiler), std::move(*dense)));
}

}  // namespace attune::backends::minimax_sparse
