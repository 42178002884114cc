#include "backends/reference/run.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/lse.hpp"
#include "backends/reference/indexer.hpp"
#include "backends/reference/slices.hpp"
#include "tensor/element.hpp"

namespace attune::backends::reference {
namespace {

/// log2(p) / log2(len) beyond `len`, 1 up to it.
double xai_temperature(std::int64_t position, std::int64_t len) {
  if (len <= 0 || position <= len) return 1.0;
  return std::log2(static_cast<double>(position)) / std::log2(static_cast<double>(len));
}

/// In eight sums, none of which waits for another.
double dot_product(const double* a, const double* b, int n) {
  double sums[8] = {};
  const int whole = n - n % 8;
  for (int d = 0; d < whole; d += 8)
    for (int i = 0; i < 8; ++i) sums[i] += a[d + i] * b[d + i];
  for (int d = whole; d < n; ++d) sums[0] += a[d] * b[d];
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

/// The logit before any mask, in the order of <attune/spec.hpp>.
double Run::logit(double dot, double k_scale, std::int64_t h, std::int64_t p,
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
double Run::modified(double s, std::size_t request, std::int64_t h, std::int64_t p,
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
std::int64_t Run::query_for(std::int64_t p, std::int64_t j) const {
  if (spec.variant != Variant::dual_chunk) return 0;
  const std::int64_t chunks_back = p / spec.dual_chunk_len - j / spec.dual_chunk_len;
  return std::min<std::int64_t>(chunks_back, kDualChunkQueries - 1);
}

Run::Query Run::query_of(std::int64_t token) const {
  const auto i = static_cast<std::size_t>(batch.request_of_token[static_cast<std::size_t>(token)]);
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
std::int64_t Run::compressed_end(const Query& q) const {
  if (!is_compressed(spec) || q.position < 0) return 0;
  return (q.position + 1) / spec.compress_ratio;
}

/// Keys `seen` of those an indexer chooses among: the ones that the query's list names, or all.
template <class Do>
void Run::for_each_kept(std::int64_t token, std::int64_t kv_head, attention::KeyRange seen,
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
void Run::for_each_key(const Query& q, std::int64_t token, std::int64_t h, const Do& act) const {
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

void Run::choose(std::int64_t token, int thread) const {
  if (!keeps_blocks(spec)) return choose_keys(token, thread);
  for (int kv_head = 0; kv_head < spec.num_kv_heads; ++kv_head)
    choose_blocks(token, kv_head, thread);
}

void Run::choose_blocks(std::int64_t token, int kv_head, int thread) const {
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

void Run::choose_keys(std::int64_t token, int thread) const {
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

void Run::compute(std::int64_t token, std::int64_t h, int thread) const {
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
    const double dot = dot_product(q, work.row, spec.head_dim_qk);
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

}  // namespace attune::backends::reference
