#include "backends/shared/cpu_sparse.hpp"

#include <algorithm>
#include <cstdint>

#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "backends/shared/cpu_blocks.hpp"
#include "backends/shared/cpu_planned.hpp"
#include "backends/shared/dense_glue.hpp"
#include "backends/shared/sparse_checks.hpp"
#include "base/join.hpp"
#include "base/math.hpp"
#include "kernels/top_k/top_k.hpp"

namespace attune::backends::shared {
namespace {

namespace dense = kernels::dense;
using attention::BatchFacts;

/// Keys that a thread scores at a time where there are fewer tokens than threads.
constexpr std::int64_t kScoreChunk = 1024;

/// One run: what its work items share.
struct SparseRun {
  const SparseSetup& setup;
  const CpuSparsePlan& plan;
  const LayerCall& call;
  std::int32_t page_size;
  dense::Params params;  ///< over slots, as pages of one token
  bool by_token;         ///< a thread scores all keys of a token, into its own row of scores
  std::int64_t chunks;   ///< else: of the longest token's keys

  [[nodiscard]] bool ragged() const { return plan.facts.source == KvSource::ragged; }

  [[nodiscard]] const std::int32_t* pages_of(std::int64_t token) const {
    const auto request =
        static_cast<std::size_t>(plan.request_of_token[static_cast<std::size_t>(token)]);
    return plan.kv_indices.data() + plan.kv_indptr[request];
  }

  [[nodiscard]] float* scores_of(std::int64_t token, int thread) const {
    return plan.parts.scores + (by_token ? thread : token) * plan.max_kv_len;
  }

  [[nodiscard]] std::int64_t seen_by(std::int64_t token) const {
    return plan.visible[static_cast<std::size_t>(token)];
  }

  void score(std::int64_t token, std::int64_t first, std::int64_t last, int thread) const {
    const AttentionSpec& spec = setup.dense.spec;
    const SparseCall& sparse = *call.sparse;
    const TensorView& keys = ragged() ? sparse.index_k : sparse.index_cache;
    kernels::index_scores::Params p{
        .q = sparse.index_q.as<const char>() +
             token * sparse.index_q.stride[0] * static_cast<std::int64_t>(size_of(spec.q_dtype)),
        .q_dtype = spec.q_dtype,
        .q_head_stride = sparse.index_q.stride[1],
        .weights = sparse.index_weights.as<const float>() + token * sparse.index_weights.stride[0],
        .num_heads = spec.index_num_heads,
        .head_dim = spec.index_head_dim,
        .keys = keys.data,
        .page_stride = keys.stride[0]};
    if (ragged()) {
      const auto request = plan.request_of_token[static_cast<std::size_t>(token)];
      p.keys = keys.as<const char>() + plan.kv_indptr[static_cast<std::size_t>(request)] *
                                           keys.stride[0] *
                                           static_cast<std::int64_t>(size_of(spec.index_dtype));
    } else {
      p.token_stride = keys.stride[1];
      p.page_size = page_size;
      p.pages = pages_of(token);
    }
    setup.scores->run(p, first, last, scores_of(token, thread),
                      plan.parts.index_scratch + thread * plan.index_floats);
  }

  /// Where nothing is to be left out nothing is scored.
  [[nodiscard]] bool keeps_all(std::int64_t token) const {
    return seen_by(token) <= setup.dense.spec.index_topk;
  }

  void score_chunk(std::int64_t item, int thread) const {
    const std::int64_t token = item / chunks;
    const std::int64_t first = item % chunks * kScoreChunk;
    const std::int64_t last = std::min(first + kScoreChunk, seen_by(token));
    if (first < last && !keeps_all(token)) score(token, first, last, thread);
  }

  void choose(std::int64_t token, int thread) const {
    if (by_token && !keeps_all(token)) score(token, 0, seen_by(token), thread);
    const TensorView& lists = call.sparse->topk_indices;
    auto* const list = lists.as<std::int32_t>() + token * lists.stride[0];
    const std::int64_t topk = setup.dense.spec.index_topk;
    const std::int64_t kept =
        kernels::top_k::keep_largest(scores_of(token, thread), seen_by(token), topk, list);
    std::fill(list + kept, list + topk, -1);
  }

  /// A list as slots, without what is no visible key.
  void find_slots(std::int64_t token, int /*thread*/) const {
    const TensorView& lists = call.sparse->topk_indices;
    const auto* const list = lists.as<const std::int32_t>() + token * lists.stride[0];
    const std::int64_t topk = setup.dense.spec.index_topk;
    const std::int64_t seen = seen_by(token);
    std::int32_t* const slots = plan.parts.slots + token * topk;
    const std::int32_t* const pages = ragged() ? nullptr : pages_of(token);
    const auto request =
        static_cast<std::size_t>(plan.request_of_token[static_cast<std::size_t>(token)]);
    std::int64_t kept = 0;
    for (std::int64_t n = 0; n < topk; ++n) {
      const std::int32_t key = list[n];
      if (key < 0 || key >= seen) continue;
      slots[kept++] = pages == nullptr ? plan.kv_indptr[request] + key
                                       : pages[key / page_size] * page_size + key % page_size;
    }
    plan.parts.kept[token] = {0, kept};
  }

  void attend(std::int64_t n, int thread) const {
    dense::Item item = plan.items[static_cast<std::size_t>(n)];
    const attention::KeyRange kept = plan.parts.kept[item.first_token];
    item.kv_begin = std::min(item.kv_begin, kept.end);
    item.kv_end = std::min(item.kv_end, kept.end);
    if (item.kv_begin >= item.kv_end) item.kv_begin = item.kv_end = 0;
    item.kv_len = kept.end;
    item.shared = kept;
    void* const scratch = plan.parts.scratch + thread * plan.scratch_bytes;
    const dense::KernelRow& kernel =
        decodes(setup.dense.spec, 1) ? *setup.dense.decode : *setup.dense.prefill;
    kernel.run(params, item, scratch);
  }

  void merge(std::int64_t n, int thread) const {
    auto* const sums = reinterpret_cast<float*>(plan.parts.scratch + thread * plan.scratch_bytes);
    kernels::merge_states::run(params, plan.merges[static_cast<std::size_t>(n)],
                               plan.sources.data(), sums);
  }
};

class CpuSparseBackend final : public CpuPlanned<SparseSetup, CpuSparsePlan> {
 public:
  using CpuPlanned::CpuPlanned;

  Status run(const Plan& plan, const LayerCall& call, Stream) override;

 private:
  [[nodiscard]] Status check(const BatchView& batch, const BatchFacts& facts) const override {
    if (setup_.dense.packed_latents && batch.source != KvSource::paged && batch.batch_size() > 0)
      return unsupported(base::join(descriptor_.name, " reads mla_latent_fp8 from pages only"));
    return check_kept_counts(descriptor_.name, facts, context_.spec, context_.page_size);
  }
  [[nodiscard]] dense::Params params_of(const CpuSparsePlan& plan, const LayerCall& call) const;
  template <auto kAct>
  void for_each(std::int64_t items, const SparseRun& run) const;
};

dense::Params CpuSparseBackend::params_of(const CpuSparsePlan& plan, const LayerCall& call) const {
  const AttentionSpec& spec = context_.spec;
  const auto rows_of = [](const TensorView& view) {
    return dense::Rows{.data = view.data,
                       .dtype = view.dtype,
                       .token_stride = view.stride[0],
                       .head_stride = view.stride[1]};
  };
  attention::PagedKv kv = plan.facts.source == KvSource::ragged
                              ? ragged_keys(call, spec.variant)
                              : paged_keys(call, context_.kv_layout, context_.page_size);
  if (plan.facts.source == KvSource::paged) {
    kv.k_page_stride = kv.k_token_stride;
    kv.v_page_stride = kv.v_token_stride;
  }
  kv.page_size = 1;
  kv.indptr = plan.list_indptr.data();
  kv.indices = plan.parts.slots;
  dense::Params p{
      .q = rows_of(call.q),
      .o = rows_of(call.o),
      .kv = kv,
      .packed_latents = setup_.dense.packed_latents,
      .head_dim_qk = spec.head_dim_qk,
      .head_dim_vo = spec.head_dim_vo,
      .gqa_group_size = spec.gqa_group_size(),
      .logit_scale = spec.sm_scale * call.q_scale * call.k_scale,
      .v_scale = call.v_scale,
      .visible = plan.parts.kept,
      .partial_o = plan.parts.partial_o,
      .partial_lse = plan.parts.partial_lse,
      .scratch = decodes(spec, 1) ? decode_scratch(setup_.dense) : prefill_scratch(setup_.dense)};
  if (call.lse.defined()) {
    p.lse = call.lse.as<float>();
    p.lse_token_stride = call.lse.stride[0];
    p.lse_head_stride = call.lse.stride[1];
  }
  return p;
}

template <auto kAct>
void CpuSparseBackend::for_each(std::int64_t items, const SparseRun& run) const {
  executor_->run(
      items,
      [](void* context, std::int64_t item, int thread) {
        (static_cast<const SparseRun*>(context)->*kAct)(item, thread);
      },
      const_cast<SparseRun*>(&run));
}

Status CpuSparseBackend::run(const Plan& plan, const LayerCall& call, Stream) {
  const auto& mine = static_cast<const CpuSparsePlan&>(plan);
  if (Status s = attention::validate_run(call, mine.facts, context_.spec, context_.page_size,
                                         context_.kv_layout);
      !s.ok())
    return s;
  const std::int64_t tokens = mine.facts.num_qo_tokens;
  if (tokens == 0) return {};
  const bool paged = mine.facts.source == KvSource::paged && mine.facts.max_page_id >= 0;
  if (paged)
    if (Status s = check_pages_adjoin(descriptor_.name, call.k_cache, context_.page_size); !s.ok())
      return s;
  const SparseRun run{
      .setup = setup_,
      .plan = mine,
      .call = call,
      .page_size = context_.page_size,
      .params = params_of(mine, call),
      .by_token = tokens >= setup_.dense.num_threads,
      .chunks = base::ceil_div(std::max<std::int64_t>(mine.longest_visible, 1), kScoreChunk)};
  if (call.sparse->index_q.defined()) {
    if (!run.by_token) for_each<&SparseRun::score_chunk>(tokens * run.chunks, run);
    for_each<&SparseRun::choose>(tokens, run);
  }
  for_each<&SparseRun::find_slots>(tokens, run);
  for_each<&SparseRun::attend>(static_cast<std::int64_t>(mine.items.size()), run);
  for_each<&SparseRun::merge>(static_cast<std::int64_t>(mine.merges.size()), run);
  return {};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_sparse(const BackendContext& context,
                                                 const BackendDescriptor& descriptor,
                                                 const SparseSetup& setup) {
  if (setup.scores == nullptr)
    return unsupported(base::join(descriptor.name, " has no kernel for index keys in ",
                                  name(context.spec.index_dtype)));
  return std::unique_ptr<Backend>(std::make_unique<CpuSparseBackend>(context, descriptor, setup));
}

}  // namespace attune::backends::shared
