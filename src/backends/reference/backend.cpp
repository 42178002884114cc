// The oracle: softmax attention in double precision, by obvious loops, exactly as the head of
// <attune/spec.hpp> states it. Nothing here is fast; every other backend is held to it, and it is
// itself held to tests/golden and to hand-worked cases.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include <attune/backend.hpp>
#include <attune/compressed_call.hpp>
#include <attune/descriptor.hpp>
#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "attention/lse.hpp"
#include "attention/mask.hpp"
#include "attention/validate_compressed.hpp"
#include "backends/reference/batch_arrays.hpp"
#include "backends/reference/descriptor.hpp"
#include "backends/reference/indexer.hpp"
#include "backends/reference/kv_rows.hpp"
#include "backends/shared/dense_glue.hpp"
#include "backends/shared/linear_backend.hpp"
#include "base/join.hpp"
#include "tensor/element.hpp"

namespace attune::backends::reference {
namespace {

using attention::BatchFacts;

KvRows compressed_rows(const LayerCall& call, bool ragged) {
  return vector_rows(ragged ? call.compressed->k : call.compressed->cache, ragged);
}

class ReferencePlan final : public Plan {
 public:
  ReferencePlan(BatchArrays batch, const Workspace& workspace)
      : arrays(std::move(batch)), workspace_(workspace) {}

  BatchArrays arrays;

  [[nodiscard]] const Workspace& workspace() const { return workspace_; }

 private:
  Workspace workspace_;
};

/// One thread's slice of the workspace.
struct Slice {
  double* q;       ///< [q_columns]
  double* row;     ///< [max(head_dim_qk, head_dim_vo)]: one stored key or value
  double* o;       ///< [head_dim_vo]
  double* logits;  ///< [max_logits]
};

bool is_compressed(const AttentionSpec& spec) { return spec.compress_ratio > 0; }
bool has_indexer(const AttentionSpec& spec) { return spec.index_topk > 0; }
bool keeps_blocks(const AttentionSpec& spec) { return spec.index_block_size > 0; }

/// Of one request, at most.
struct Lengths {
  std::int64_t keys = 0;
  std::int64_t compressed = 0;
};
template <class FactsOrBounds>
Lengths lengths_of(const AttentionSpec& spec, const FactsOrBounds& most) {
  return {.keys = most.max_kv_len,
          .compressed = is_compressed(spec) ? most.max_positions / spec.compress_ratio : 0};
}
/// What an indexer chooses among.
std::int64_t indexed(const AttentionSpec& spec, const Lengths& n) {
  return is_compressed(spec) ? n.compressed : n.keys;
}

/// A list of kept keys may name one more than once, a list of blocks means each once.
std::int64_t max_logits(const AttentionSpec& spec, const Lengths& n) {
  const bool keys = has_indexer(spec) && !keeps_blocks(spec);
  const std::int64_t kept = keys ? std::max<std::int64_t>(indexed(spec, n), spec.index_topk) : 0;
  if (is_compressed(spec)) return n.keys + std::max(kept, n.compressed);
  return std::max(n.keys, kept);
}

/// A query head, a key, and a score and a place for every key.
std::int64_t indexer_doubles(const AttentionSpec& spec, const Lengths& n) {
  if (!has_indexer(spec)) return 0;
  return 2 * std::int64_t{spec.index_head_dim} + indexed(spec, n) + (indexed(spec, n) + 1) / 2;
}

std::int64_t thread_doubles(const AttentionSpec& spec, const Lengths& n) {
  return std::int64_t{spec.q_columns()} + std::max(spec.head_dim_qk, spec.head_dim_vo) +
         spec.head_dim_vo + max_logits(spec, n) + indexer_doubles(spec, n);
}

Slice slice_of(const Workspace& workspace, const AttentionSpec& spec, const Lengths& n,
               int thread) {
  auto* base = static_cast<double*>(workspace.device) + thread * thread_doubles(spec, n);
  double* row = base + spec.q_columns();
  double* o = row + std::max(spec.head_dim_qk, spec.head_dim_vo);
  return {.q = base, .row = row, .o = o, .logits = o + spec.head_dim_vo};
}

IndexerScratch indexer_scratch(const Workspace& workspace, const AttentionSpec& spec,
                               const Lengths& n, int thread) {
  double* const q = static_cast<double*>(workspace.device) +
                    (thread + 1) * thread_doubles(spec, n) - indexer_doubles(spec, n);
  double* const scores = q + 2 * spec.index_head_dim;
  return {.q = q,
          .key = q + spec.index_head_dim,
          .scores = scores,
          .order = reinterpret_cast<std::int32_t*>(scores + indexed(spec, n))};
}

/// log2(p) / log2(len) beyond `len`, 1 up to it.
double xai_temperature(std::int64_t position, std::int64_t len) {
  if (len <= 0 || position <= len) return 1.0;
  return std::log2(static_cast<double>(position)) / std::log2(static_cast<double>(len));
}

/// Everything one run shares; computes one (query token, query head) at a time.
struct Run {
  const AttentionSpec& spec;
  const BatchArrays& batch;
  const LayerCall& call;
  const Workspace& workspace;
  KvRows k;
  KvRows v;
  KvRows compressed;  ///< keys and values

  /// The logit before any mask, in the order of <attune/spec.hpp>.
  [[nodiscard]] double logit(double dot, double k_scale, std::int64_t h, std::int64_t p,
                             std::int64_t j) const {
    double s = static_cast<double>(spec.sm_scale) * call.q_scale * k_scale * dot;
    const double cap = spec.logits_soft_cap;
    if (cap > 0) s = cap * std::tanh(s / cap);
    s *= xai_temperature(p, spec.xai_temperature_len);
    if (call.alibi_slopes != nullptr)
      s -= static_cast<double>(call.alibi_slopes[h]) * static_cast<double>(std::abs(p - j));
    return s;
  }

  /// What the program's function makes of a logit.
  [[nodiscard]] double modified(double s, std::size_t request, std::int64_t h, std::int64_t p,
                                std::int64_t j) const {
    if (!spec.score_mod) return s;
    auto score = static_cast<float>(s);
    call.score_mod.apply({.first = {.request = static_cast<std::int64_t>(request),
                                    .qo_head = static_cast<int>(h),
                                    .q_position = p,
                                    .kv_position = j},
                          .scores = &score,
                          .count = 1},
                         call.score_mod.context);
    return score;
  }

  /// Which of a head's queries meets the key at position j.
  [[nodiscard]] std::int64_t query_for(std::int64_t p, std::int64_t j) const {
    if (spec.variant != Variant::dual_chunk) return 0;
    const std::int64_t chunks_back = p / spec.dual_chunk_len - j / spec.dual_chunk_len;
    return std::min<std::int64_t>(chunks_back, kDualChunkQueries - 1);
  }

  /// A query: whose it is, where it stands, which of the request's keys it may see.
  struct Query {
    std::size_t request;
    std::int64_t row;  ///< within its request
    std::int64_t position;
    attention::KeyRange keys;  ///< key indices
  };

  [[nodiscard]] Query query_of(std::int64_t token) const {
    const auto i =
        static_cast<std::size_t>(batch.request_of_token[static_cast<std::size_t>(token)]);
    const std::int64_t offset = batch.kv_offset[i];
    const std::int64_t end = offset + batch.kv_len[i];
    const std::int64_t row = token - batch.qo_indptr[i];
    const std::int64_t p = end - (batch.qo_indptr[i + 1] - batch.qo_indptr[i]) + row;
    const attention::MaskRule rule{.causal = spec.causal && !spec.custom_mask && !spec.block_mask,
                                   .window_left = spec.window_left,
                                   .window_right = spec.window_right,
                                   .attention_chunk = spec.attention_chunk};
    const attention::KeyRange range = attention::visible_range(rule, p, offset, end);
    return {i, row, p, {range.begin - offset, range.end - offset}};
  }

  /// Compressed keys that a query sees: those whose tokens all stand at its position or before.
  [[nodiscard]] std::int64_t compressed_end(const Query& q) const {
    if (!is_compressed(spec) || q.position < 0) return 0;
    return (q.position + 1) / spec.compress_ratio;
  }

  /// A stored key that a query attends to.
  struct Key {
    const KvRows& k;
    const KvRows& v;
    std::int64_t slot;
    std::int64_t position;
  };

  /// Keys `seen` of those an indexer chooses among: the ones that the query's list names, or all.
  template <class Do>
  void for_each_kept(std::int64_t token, std::int64_t kv_head, attention::KeyRange seen,
                     const Do& act) const {
    if (!has_indexer(spec)) {
      for (std::int64_t c = seen.begin; c < seen.end; ++c) act(c);
      return;
    }
    const std::int32_t* const list = list_of(call, token, keeps_blocks(spec) ? kv_head : 0);
    if (keeps_blocks(spec)) {
      const std::int32_t* const end = list + spec.index_topk;
      for (std::int64_t c = seen.begin; c < seen.end; ++c)
        if (std::find(list, end, c / spec.index_block_size) != end) act(c);
      return;
    }
    for (int n = 0; n < spec.index_topk; ++n)
      if (list[n] >= seen.begin && list[n] < seen.end) act(std::int64_t{list[n]});
  }

  /// The keys that a query head attends to, in order: of its window, then compressed ones.
  template <class Do>
  void for_each_key(const Query& q, std::int64_t token, std::int64_t h, const Do& act) const {
    const std::int64_t kv_head = h / spec.gqa_group_size();
    const std::int64_t offset = batch.kv_offset[q.request];
    const auto plain = [&](std::int64_t c) {
      if (batch.mask_allows(q.request, q.row, h, c))
        act(Key{k, v, batch.slot(q.request, c), offset + c});
    };
    if (!is_compressed(spec)) return for_each_kept(token, kv_head, q.keys, plain);
    for (std::int64_t c = q.keys.begin; c < q.keys.end; ++c) plain(c);
    for_each_kept(token, kv_head, {0, compressed_end(q)}, [&](std::int64_t w) {
      act(Key{compressed, compressed, batch.compressed_slot(q.request, w, spec.compress_ratio),
              w * spec.compress_ratio});
    });
  }

  /// Fills the lists of one query from its indexer.
  void choose(std::int64_t token, int thread) const {
    if (!keeps_blocks(spec)) return choose_keys(token, thread);
    for (int kv_head = 0; kv_head < spec.num_kv_heads; ++kv_head)
      choose_blocks(token, kv_head, thread);
  }

  void choose_blocks(std::int64_t token, int kv_head, int thread) const {
    const Query q = query_of(token);
    const IndexerScratch work =
        indexer_scratch(workspace, spec, lengths_of(spec, batch.facts), thread);
    const KvRows keys = index_rows(call, batch.facts.source == KvSource::ragged);
    const std::int64_t size = spec.index_block_size;
    const std::int64_t blocks = (q.keys.end + size - 1) / size;
    for (std::int64_t block = 0; block < blocks && blocks > spec.index_topk; ++block) {
      work.scores[block] = -std::numeric_limits<double>::infinity();
      for (std::int64_t c = block * size; c < std::min((block + 1) * size, q.keys.end); ++c) {
        keys.read(batch.slot(q.request, c), 0, work.key);
        const double score = block_key_score(spec, call, token, kv_head, work.key, work.q);
        if (score > work.scores[block]) work.scores[block] = score;  // a NaN is not
      }
    }
    keep_best_blocks(spec, blocks, work, list_of(call, token, kv_head));
  }

  void choose_keys(std::int64_t token, int thread) const {
    const Query q = query_of(token);
    const IndexerScratch work =
        indexer_scratch(workspace, spec, lengths_of(spec, batch.facts), thread);
    const KvRows keys = index_rows(call, batch.facts.source == KvSource::ragged);
    const std::int64_t end = is_compressed(spec) ? compressed_end(q) : q.keys.end;
    const bool all = end <= spec.index_topk;
    for (std::int64_t c = 0; c < end && !all; ++c) {
      keys.read(is_compressed(spec) ? batch.compressed_slot(q.request, c, spec.compress_ratio)
                                    : batch.slot(q.request, c),
                0, work.key);
      work.scores[c] = index_score(spec, call, token, work.key, work.q);
    }
    keep_largest(spec, end, work, list_of(call, token, 0));
  }

  void compute(std::int64_t token, std::int64_t h, int thread) const {
    const Query query = query_of(token);
    const Slice work = slice_of(workspace, spec, lengths_of(spec, batch.facts), thread);
    const std::int64_t kv_head = h / spec.gqa_group_size();
    const double k_scale =
        call.k_scale_per_head != nullptr ? call.k_scale_per_head[kv_head] : call.k_scale;
    const double v_scale =
        call.v_scale_per_head != nullptr ? call.v_scale_per_head[kv_head] : call.v_scale;

    read_row(call.q, token, h, spec.q_columns(), work.q);
    double largest = -std::numeric_limits<double>::infinity();
    double* next = work.logits;
    for_each_key(query, token, h, [&](const Key& key) {
      key.k.read(key.slot, kv_head, work.row);
      const double* const q = work.q + query_for(query.position, key.position) * spec.head_dim_qk;
      double dot = 0.0;
      for (int d = 0; d < spec.head_dim_qk; ++d) dot += q[d] * work.row[d];
      *next = modified(logit(dot, k_scale, h, query.position, key.position), query.request, h,
                       query.position, key.position);
      largest = std::max(largest, *next++);
    });

    std::fill_n(work.o, spec.head_dim_vo, 0.0);
    double denominator = 0.0;
    next = work.logits;
    // A hidden key is skipped, not weighed with 0: its value may be NaN.
    for_each_key(query, token, h, [&](const Key& key) {
      const double score = *next++;
      if (score == -std::numeric_limits<double>::infinity()) return;
      const double weight = std::exp(score - largest);
      denominator += weight;
      key.v.read(key.slot, kv_head, work.row);
      for (int d = 0; d < spec.head_dim_vo; ++d) work.o[d] += weight * work.row[d];
    });
    const bool empty = denominator == 0.0;
    const double lse = empty ? attention::kEmptyLse<double> : largest + std::log(denominator);
    double factor = empty ? 0.0 : v_scale / denominator;
    if (call.sinks != nullptr)
      factor *= attention::sink_factor(lse, static_cast<double>(call.sinks[h]));

    const std::int64_t at = token * call.o.stride[0] + h * call.o.stride[1];
    for (int d = 0; d < spec.head_dim_vo; ++d)
      tensor::store_element(call.o.data, call.o.dtype, at + d, empty ? 0.0 : work.o[d] * factor);
    if (call.lse.defined())
      tensor::store_element(call.lse.data, DType::f32,
                            token * call.lse.stride[0] + h * call.lse.stride[1], lse);
  }
};

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(const BackendContext& context) : context_(context) {}

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return kDescriptor; }

  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override {
    if (bounds.max_qo_tokens == 0) return {};
    const std::int64_t doubles =
        num_threads() * thread_doubles(context_.spec, lengths_of(context_.spec, bounds));
    return {.device_bytes = static_cast<std::size_t>(doubles) * sizeof(double)};
  }

  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace, Stream) override {
    const auto facts = check(batch, workspace);
    if (!facts.ok()) return facts.status();
    return PlanHandle(std::make_unique<ReferencePlan>(BatchArrays(batch, *facts), workspace));
  }

  Status refresh(Plan& plan, const BatchView& batch, Stream) override {
    auto& mine = static_cast<ReferencePlan&>(plan);
    const auto facts = check(batch, mine.workspace());
    if (!facts.ok()) return facts.status();
    mine.arrays = BatchArrays(batch, *facts);
    return {};
  }

  Status append_kv(const LayerCall& call, Stream) override {
    const AttentionSpec& spec = context_.spec;
    if (Status s = attention::validate_append(call, spec, context_.page_size, context_.kv_layout);
        !s.ok())
      return s;
    if (call.slot_mapping.empty()) return {};
    const std::int64_t slots = call.k_cache.shape[0] * context_.page_size;
    if (Status s = attention::validate_slots(call.slot_mapping, slots); !s.ok()) return s;
    const KvRows k = key_rows(call, spec, context_.kv_layout);
    const KvRows v = value_rows(call, spec, context_.kv_layout);
    if (is_compressed(spec))
      if (Status s = append_compressed(call); !s.ok()) return s;
    const bool indexes =
        !is_compressed(spec) && call.sparse != nullptr && call.sparse->index_k.defined();
    for (std::size_t n = 0; n < call.slot_mapping.size(); ++n) {
      const std::int64_t slot = call.slot_mapping[n];
      if (slot < 0) continue;
      const auto token = static_cast<std::int64_t>(n);
      if (indexes) index_rows(call, false).write(slot, 0, call.sparse->index_k, token, 1.0);
      for (int h = 0; h < spec.num_kv_heads; ++h) {
        const double k_scale =
            call.k_scale_per_head != nullptr ? call.k_scale_per_head[h] : call.k_scale;
        const double v_scale =
            call.v_scale_per_head != nullptr ? call.v_scale_per_head[h] : call.v_scale;
        k.write(slot, h, call.k, token, k_scale);
        if (tensor::stores_v_apart(context_.kv_layout)) v.write(slot, h, call.v, token, v_scale);
      }
    }
    return {};
  }

  Status run(const Plan& plan, const LayerCall& call, Stream) override {
    const auto& mine = static_cast<const ReferencePlan&>(plan);
    const BatchArrays& batch = mine.arrays;
    const AttentionSpec& spec = context_.spec;
    if (Status s = attention::validate_run(call, batch.facts, spec, context_.page_size,
                                           context_.kv_layout);
        !s.ok())
      return s;
    const bool ragged = batch.facts.source == KvSource::ragged;
    const Run run{
        .spec = spec,
        .batch = batch,
        .call = call,
        .workspace = mine.workspace(),
        .k = ragged ? ragged_key_rows(call, spec) : key_rows(call, spec, context_.kv_layout),
        .v = ragged ? ragged_value_rows(call, spec) : value_rows(call, spec, context_.kv_layout),
        .compressed = is_compressed(spec) ? compressed_rows(call, ragged) : KvRows{}};
    const std::int64_t tokens = batch.facts.num_qo_tokens;
    if (has_indexer(spec) && call.sparse->index_q.defined())
      for_each(tokens, run, [](const Run& shared, std::int64_t token, int thread) {
        shared.choose(token, thread);
      });
    for_each(tokens * spec.num_qo_heads, run, [](const Run& shared, std::int64_t item, int thread) {
      const std::int64_t heads = shared.spec.num_qo_heads;
      shared.compute(item / heads, item % heads, thread);
    });
    return {};
  }

 private:
  /// Of tokens that end a window alone.
  [[nodiscard]] Status append_compressed(const LayerCall& call) const {
    const CompressedCall& compressed = *call.compressed;
    const std::int64_t ratio = context_.spec.compress_ratio;
    if (Status s = attention::validate_slots(compressed.slot_mapping,
                                             compressed.cache.shape[0] * context_.page_size);
        !s.ok())
      return s;
    const bool indexes = call.sparse != nullptr && call.sparse->index_k.defined();
    for (std::size_t n = 0; n < compressed.slot_mapping.size(); ++n) {
      const std::int64_t slot = compressed.slot_mapping[n];
      if (slot < 0 || slot % ratio != ratio - 1) continue;
      const auto token = static_cast<std::int64_t>(n);
      compressed_rows(call, false).write(slot / ratio, 0, compressed.k, token, 1.0);
      if (indexes) index_rows(call, false).write(slot / ratio, 0, call.sparse->index_k, token, 1.0);
    }
    return {};
  }

  void for_each(std::int64_t items, const Run& run, void (*act)(const Run&, std::int64_t, int)) {
    if (context_.executor == nullptr) {
      for (std::int64_t item = 0; item < items; ++item) act(run, item, 0);
      return;
    }
    struct Work {
      const Run& run;
      void (*act)(const Run&, std::int64_t, int);
    } work{run, act};
    context_.executor->run(
        items,
        [](void* context, std::int64_t item, int thread) {
          const Work& w = *static_cast<const Work*>(context);
          w.act(w.run, item, thread);
        },
        &work);
  }

  [[nodiscard]] std::int64_t num_threads() const {
    return context_.executor != nullptr ? context_.executor->num_threads() : 1;
  }

  [[nodiscard]] Result<BatchFacts> check(const BatchView& batch, const Workspace& workspace) const {
    auto facts = attention::validate_batch(batch, context_.spec, context_.page_size);
    if (!facts.ok()) return facts;
    const std::size_t wanted = workspace_size(attention::bounds_of(batch)).device_bytes;
    if (Status s = shared::check_workspace(workspace, wanted); !s.ok()) return s;
    return facts;
  }

  BackendContext context_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  const AttentionSpec& spec = context.spec;
  if (context.device.kind != DeviceKind::cpu)
    return unsupported(base::join("reference runs on cpu, not on ", name(context.device.kind)));
  if (is_linear(spec.variant))
    return shared::make_linear(kDescriptor, context, shared::LinearKernels::reference);
  if (!is_dense(spec.variant))
    return unsupported(base::join("reference does not serve ", name(spec.variant)));
  if (spec.relative_bias)
    return unsupported("reference adds no learned relative bias: the call has no tensor for it");
  if (Status s = attention::validate_spec(spec); !s.ok()) return s;
  if (context.page_size < 1)
    return invalid_argument(base::join("page_size must be positive, have ", context.page_size));
  const bool latent = !tensor::stores_v_apart(context.kv_layout);
  if (latent != is_latent(spec.variant))
    return unsupported(base::join("layout ", name(context.kv_layout), " does not hold ",
                                  name(spec.variant), " keys"));
  if (context.kv_layout == KvLayout::mla_latent_fp8 &&
      (spec.kv_lora_rank != 512 || spec.qk_rope_head_dim != 64))
    return unsupported(base::join("layout mla_latent_fp8 is 512 + 64 wide, not ", spec.kv_lora_rank,
                                  " + ", spec.qk_rope_head_dim));
  if (Status s = attention::validate_compressed_pages(spec, context.page_size); !s.ok()) return s;
  return std::unique_ptr<Backend>(std::make_unique<ReferenceBackend>(context));
}

}  // namespace attune::backends::reference
