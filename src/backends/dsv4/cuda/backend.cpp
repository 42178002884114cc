#include "backends/dsv4/cuda/backend.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include <attune/compressed_call.hpp>
#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "attention/validate_compressed.hpp"
#include "backends/dsv4/cuda/plan.hpp"
#include "backends/dsv4/descriptor.hpp"
#include "backends/shared/alignment.hpp"
#include "backends/shared/cuda/card.hpp"
#include "backends/shared/cuda/dense_glue.hpp"
#include "backends/shared/cuda/latent_params.hpp"
#include "backends/shared/cuda/latent_setup.hpp"
#include "backends/shared/sparse_checks.hpp"
#include "base/join.hpp"
#include "base/math.hpp"
#include "device/cuda/memory.hpp"
#include "kernels/append_kv/sm80/launch.hpp"

namespace attune::backends::dsv4 {
namespace {

namespace mla = kernels::mla_decode;
namespace append = kernels::append_kv::sm80;
using device::cuda::native;

class Dsv4Backend final : public Backend {
 public:
  Dsv4Backend(const BackendContext& context, shared::cuda::LatentSetup latent,
              std::optional<shared::cuda::Selector> selector)
      : context_(context), latent_(std::move(latent)), selector_(std::move(selector)) {
    context_.executor = nullptr;
  }

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return kDescriptor; }
  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override {
    return {.device_bytes = workspace_bytes(sizes_of(bounds))};
  }
  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                          Stream stream) override;
  Status refresh(Plan& plan, const BatchView& batch, Stream stream) override;
  Status append_kv(const LayerCall& call, Stream stream) override;
  Status run(const Plan& plan, const LayerCall& call, Stream stream) override;

 private:
  [[nodiscard]] std::int32_t ratio() const { return context_.spec.compress_ratio; }
  /// Compressed keys of a page; 1 where there are none.
  [[nodiscard]] std::int32_t keys_of_page() const {
    return ratio() == 0 ? 1 : context_.page_size / ratio();
  }
  [[nodiscard]] Sizes sizes_of(const BatchBounds& bounds) const;
  [[nodiscard]] Result<attention::BatchFacts> facts_of(const BatchView& batch) const;
  [[nodiscard]] Status check_counts(const Sizes& sizes, const attention::BatchFacts& facts) const;
  void take_spare_room(std::int64_t spare_bytes, Sizes& sizes) const;
  void begin_selection(Dsv4Plan& plan) const;
  [[nodiscard]] Status fill(Dsv4Plan& plan, const BatchView& batch, bool first,
                            Stream stream) const;
  [[nodiscard]] Status check_call(const Dsv4Plan& plan, const LayerCall& call) const;
  [[nodiscard]] mla::Params params_of(const Dsv4Plan& plan, const LayerCall& call) const;

  BackendContext context_;
  shared::cuda::LatentSetup latent_;
  std::optional<shared::cuda::Selector> selector_;
};

Sizes Dsv4Backend::sizes_of(const BatchBounds& bounds) const {
  const AttentionSpec& spec = context_.spec;
  const std::int64_t keys = ratio() == 0 ? 0 : bounds.max_positions / ratio();
  Sizes sizes{.rules = latent_.rules,
              .limits = plan::latent_limits(latent_.rules, bounds.max_qo_tokens),
              .tokens = bounds.max_qo_tokens,
              .dim = spec.head_dim_vo,
              .window = std::int64_t{spec.window_left} + 1,
              .topk = spec.index_topk,
              .max_keys = keys,
              .kv_entries = bounds.max_kv_entries +
                            bounds.max_batch * base::ceil_div<std::int64_t>(keys, keys_of_page())};
  if (!selector_) return sizes;
  sizes.scores = shared::cuda::room_for_scores(sizes.tokens, keys);
  sizes.score_blocks = selector_->score_blocks();
  return sizes;
}

Result<attention::BatchFacts> Dsv4Backend::facts_of(const BatchView& batch) const {
  if (batch.source != KvSource::paged && batch.batch_size() > 0)
    return unsupported("dsv4 reads keys from pages only");
  return attention::validate_batch(batch, context_.spec, context_.page_size);
}

/// Lists of all tokens, and slots of all pages, are counted in 31 bits.
Status Dsv4Backend::check_counts(const Sizes& sizes, const attention::BatchFacts& facts) const {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (sizes.tokens <= kMost / sizes.list_keys() && facts.max_page_id < kMost / context_.page_size &&
      facts.max_compressed_page_id < kMost / keys_of_page())
    return {};
  return unsupported(
      base::join("dsv4 counts listed keys and their slots in 31 bits: ", sizes.tokens,
                 " tokens of ", sizes.list_keys(), " keys over ", facts.max_page_id + 1, " and ",
                 facts.max_compressed_page_id + 1, " pages"));
}

/// What the caller gave beyond a batch's needs is room for longer requests: a compressed key more is
/// a score a row, or a place in every list, and at most a page id a token in both tables.
void Dsv4Backend::take_spare_room(std::int64_t spare_bytes, Sizes& sizes) const {
  constexpr std::int64_t kAlignments = 3 * 64;
  const std::int64_t tokens = std::max<std::int64_t>(1, sizes.tokens);
  const std::int64_t rows = selector_ ? sizes.score_rows() : tokens;
  std::int64_t more =
      std::max<std::int64_t>(0, spare_bytes - kAlignments) / (4 * (rows + 2 * tokens));
  // … as long as lists can be counted.
  if (sizes.topk == 0)
    more = std::clamp<std::int64_t>(
        std::numeric_limits<std::int32_t>::max() / tokens - sizes.list_keys(), 0, more);
  sizes.kv_entries += 2 * more * tokens;
  if (ratio() == 0) return;
  sizes.max_keys += more;
  if (selector_) sizes.scores = std::min(rows, sizes.tokens) * sizes.max_keys;
}

/// Its keys are the compressed ones; without an indexer there is only how many a token may see.
void Dsv4Backend::begin_selection(Dsv4Plan& plan) const {
  plan.selection = {.tokens = plan.sizes.tokens,
                    .max_keys = plan.sizes.max_keys,
                    .page_size = keys_of_page(),
                    .parts = plan.parts,
                    .kv_indices = plan.parts.kv_indices,
                    .slots = plan.parts.lists,
                    .slots_stride = plan.sizes.list_keys(),
                    .slots_before = plan.parts.window_keys,
                    .kept = plan.parts.lengths};
  if (!selector_) return;
  selector_->begin(std::max<std::int64_t>(1, plan.facts.max_qo_len), plan.sizes.score_rows(),
                   plan.selection);
}

Status Dsv4Backend::fill(Dsv4Plan& plan, const BatchView& batch, bool first, Stream stream) const {
  if (Status s = make_image(context_.spec, batch, first, plan); !s.ok()) return s;
  if (Status s =
          device::cuda::copy_to_device(plan.image.place(), plan.image.data(), plan.image.bytes(),
                                       stream, "dsv4: copying a plan to the device");
      !s.ok())
    return s;
  return kernels::key_lists::sm80::launch(
      {.tokens = plan.parts.tokens,
       .kv_indices = plan.parts.kv_indices,
       .window_page = context_.page_size,
       .first_page = keys_of_page(),
       .lists = plan.parts.lists,
       .stride = plan.sizes.list_keys(),
       .lengths = plan.parts.lengths,
       .num_tokens = static_cast<std::int32_t>(plan.tokens.size())},
      native(stream));
}

Result<PlanHandle> Dsv4Backend::plan(const BatchView& batch, const Workspace& workspace,
                                     Stream stream) {
  auto facts = facts_of(batch);
  if (!facts.ok()) return facts.status();
  auto made = std::make_unique<Dsv4Plan>();
  made->facts = *facts;
  made->sizes = sizes_of(attention::bounds_of(batch));
  if (Status s = check_counts(made->sizes, *facts); !s.ok()) return s;
  const std::size_t wanted = workspace_bytes(made->sizes);
  if (Status s = shared::cuda::check_workspace(workspace, wanted); !s.ok()) return s;
  take_spare_room(static_cast<std::int64_t>(workspace.device_bytes - wanted), made->sizes);
  made->parts = lay_out(workspace.device, made->sizes);
  begin_selection(*made);
  if (Status s = fill(*made, batch, true, stream); !s.ok()) return s;
  return PlanHandle(std::move(made));
}

Status Dsv4Backend::refresh(Plan& plan, const BatchView& batch, Stream stream) {
  auto& mine = static_cast<Dsv4Plan&>(plan);
  auto facts = facts_of(batch);
  if (!facts.ok()) return facts.status();
  if (Status s = shared::cuda::check_refresh(mine.facts, *facts); !s.ok()) return s;
  if (Status s = check_counts(mine.sizes, *facts); !s.ok()) return s;
  if (Status s = fill(mine, batch, false, stream); !s.ok()) return s;
  mine.facts = *facts;
  return {};
}

Status Dsv4Backend::append_kv(const LayerCall& call, Stream stream) {
  const AttentionSpec& spec = context_.spec;
  if (Status s = attention::validate_append(call, spec, context_.page_size, context_.kv_layout);
      !s.ok())
    return s;
  if (Status s =
          append::launch(shared::cuda::latent_append(call, call.k, call.k_cache, spec.head_dim_qk,
                                                     1.0f, context_.page_size),
                         native(stream));
      !s.ok())
    return s;
  if (call.compressed == nullptr) return {};
  const auto store = [&](const TensorView& in, const TensorView& cache, int columns) {
    append::Params p = shared::cuda::latent_append(call, in, cache, columns, 1.0f, keys_of_page());
    p.slot_mapping = call.compressed->slot_mapping.data();
    p.tokens_per_row = ratio();
    return append::launch(p, native(stream));
  };
  if (Status s = store(call.compressed->k, call.compressed->cache, spec.head_dim_qk); !s.ok())
    return s;
  if (call.sparse == nullptr || !call.sparse->index_k.defined()) return {};
  return store(call.sparse->index_k, call.sparse->index_cache, spec.index_head_dim);
}

mla::Params Dsv4Backend::params_of(const Dsv4Plan& plan, const LayerCall& call) const {
  // Compressed keys are the first pool. Where there are none nothing is looked for in it.
  const TensorView& window = call.k_cache.defined() ? call.k_cache : call.q;
  const bool compresses = call.compressed != nullptr && call.compressed->cache.defined();
  const TensorView& first = compresses ? call.compressed->cache : window;
  mla::Params p = shared::cuda::latent_params(context_.spec, plan.facts, plan.shape, call);
  p.k = first.data;
  p.k_token_stride = first.stride[1];
  p.k_page_stride = p.k_token_stride;  // keys are read by slot, as pages of one token
  const auto address = [](const TensorView& pool) {
    return reinterpret_cast<std::intptr_t>(pool.data);
  };
  p.second_pool = (address(window) - address(first)) /
                  static_cast<std::intptr_t>(size_of(context_.spec.kv_dtype));
  p.second_slot_stride = window.stride[1];
  p.sinks = call.sinks;
  p.page_size = 1;
  p.causal = 0;  // lists hold visible keys alone
  p.lengths = plan.parts.lengths;
  p.kv_indices = plan.parts.lists;
  shared::cuda::set_work(plan.parts, p);
  return p;
}

Status Dsv4Backend::check_call(const Dsv4Plan& plan, const LayerCall& call) const {
  if (Status s = attention::validate_run(call, plan.facts, context_.spec, context_.page_size,
                                         context_.kv_layout);
      !s.ok())
    return s;
  if (call.q_scale <= 0)
    return invalid_argument(base::join("dsv4 wants a positive q_scale, have ", call.q_scale));
  const auto check_pool = [&](const char* what, const TensorView& pool, std::int32_t page_size) {
    if (Status s = shared::check_alignment(what, pool); !s.ok()) return s;
    return shared::check_pages_adjoin(kDescriptor.name, pool, page_size);
  };
  if (Status s = shared::check_alignment("q", call.q); !s.ok()) return s;
  if (Status s = shared::check_alignment("o", call.o); !s.ok()) return s;
  if (Status s = check_pool("the window's cache", call.k_cache, context_.page_size); !s.ok())
    return s;
  if (call.compressed == nullptr) return {};
  if (Status s = check_pool("the cache of compressed keys", call.compressed->cache, keys_of_page());
      !s.ok())
    return s;
  return selector_ ? shared::cuda::Selector::check_call(plan.selection, *call.sparse) : Status{};
}

Status Dsv4Backend::run(const Plan& plan, const LayerCall& call, Stream stream) {
  const auto& mine = static_cast<const Dsv4Plan&>(plan);
  if (Status s = check_call(mine, call); !s.ok()) return s;
  if (mine.facts.num_qo_tokens == 0) return {};
  if (selector_)
    if (Status s = selector_->select(mine.selection, *call.sparse, stream); !s.ok()) return s;
  const mla::Params p = params_of(mine, call);
  return latent_.launch(shared::cuda::grid_of(latent_, mine.sizes.limits, mine.shape, p), p,
                        native(stream));
}

/// What the kernels cannot, asked before anything of CUDA is touched.
Status check_context(const BackendContext& context) {
  const AttentionSpec& spec = context.spec;
  if (context.device.kind != DeviceKind::cuda)
    return unsupported(base::join("dsv4 runs on cuda, not on ", name(context.device.kind)));
  if (spec.variant != Variant::dsv4)
    return unsupported(base::join("dsv4 serves dsv4, not ", name(spec.variant)));
  if (Status s = attention::validate_spec(spec); !s.ok()) return s;
  if (context.batch_invariant)
    return unsupported(
        "dsv4 cuts work by the whole batch: a request's bits may depend on its neighbours");
  if (context.kv_layout != KvLayout::mla_latent)
    return unsupported(base::join("dsv4 reads mla_latent, not ", name(context.kv_layout)));
  if (context.page_size < 1)
    return invalid_argument(base::join("page_size must be positive, have ", context.page_size));
  if (Status s = attention::validate_compressed_pages(spec, context.page_size); !s.ok()) return s;
  if (spec.head_dim_qk % 8 != 0 || spec.head_dim_qk > mla::kDimQk)
    return unsupported(base::join("dsv4 reads keys whose columns are multiples of 8, ", mla::kDimQk,
                                  " at most, have ", spec.head_dim_qk));
  const DType dtype = spec.q_dtype;
  const bool indexes = spec.index_topk > 0;
  if ((dtype != DType::bf16 && dtype != DType::f16) || spec.kv_dtype != dtype ||
      spec.o_dtype != dtype || (indexes && spec.index_dtype != dtype))
    return unsupported(base::join(
        "dsv4 wants q, o, keys and index keys all in bf16 or all in fp16, have ", name(dtype), ", ",
        name(spec.o_dtype), ", ", name(spec.kv_dtype), " and ", name(spec.index_dtype)));
  return indexes ? shared::cuda::Selector::check_spec(kDescriptor.name, spec) : Status{};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda(const BackendContext& context) {
  if (Status s = check_context(context); !s.ok()) return s;
  const auto card = shared::cuda::enter_hopper(kDescriptor.name, context);
  if (!card.ok()) return card.status();
  std::optional<shared::cuda::Selector> selector;
  if (context.spec.index_topk > 0) {
    auto made = shared::cuda::Selector::make(context.spec, card->num_sms);
    if (!made.ok()) return made.status();
    selector = std::move(*made);
  }
  auto latent = shared::cuda::latent_setup(context, *card, shared::cuda::LatentKeys::pools);
  if (!latent.ok()) return latent.status();
  return std::unique_ptr<Backend>(
      std::make_unique<Dsv4Backend>(context, std::move(*latent), std::move(selector)));
}

}  // namespace attune::backends::dsv4
