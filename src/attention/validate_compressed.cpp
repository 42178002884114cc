#include "attention/validate_compressed.hpp"

#include <algorithm>

#include <attune/compressed_call.hpp>

#include "attention/batch_scan.hpp"
#include "attention/plain_causal.hpp"
#include "attention/validate_sparse.hpp"
#include "base/join.hpp"
#include "base/math.hpp"
#include "tensor/shape_match.hpp"

namespace attune::attention {
namespace {

using base::join;

bool is_float(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16; }

Status check_presence(const LayerCall& call, const AttentionSpec& spec) {
  const bool wanted = spec.compress_ratio > 0;
  if (wanted == (call.compressed != nullptr)) return {};
  return invalid_argument(
      wanted ? join("the spec has compress_ratio ", spec.compress_ratio,
                    ", but the call brings no LayerCall::compressed")
             : "LayerCall::compressed belongs to specs with a compress_ratio: this one has none");
}

Status match_cache(const TensorView& cache, const AttentionSpec& spec, std::int32_t page_size,
                   bool written) {
  const std::int64_t shape[] = {tensor::kAnySize, page_size / spec.compress_ratio,
                                spec.head_dim_qk};
  return tensor::match(
      cache,
      {.name = "compressed.cache", .dtype = spec.kv_dtype, .shape = shape, .written = written});
}

Status match_rows(const TensorView& k, std::int64_t rows, const AttentionSpec& spec, DType dtype) {
  const std::int64_t shape[] = {rows, spec.head_dim_qk};
  return tensor::match(k, {.name = "compressed.k", .dtype = dtype, .shape = shape});
}

/// Compressed keys of request i, and the entries of its table that hold them.
struct Held {
  std::int64_t keys = 0;
  std::int64_t entries = 0;
};
Held held_by(const BatchView& batch, const AttentionSpec& spec, std::int64_t i) {
  const std::int64_t keys = (batch.first_kv_position(i) + batch.kv_len(i)) / spec.compress_ratio;
  if (batch.source == KvSource::ragged) return {keys, keys};
  return {keys, base::ceil_div<std::int64_t>(keys, batch.page_size / spec.compress_ratio)};
}

}  // namespace

Status validate_compressed_spec(const AttentionSpec& spec) {
  if (spec.variant != Variant::dsv4) {
    if (spec.compress_ratio == 0) return {};
    return invalid_argument(join("compress_ratio belongs to dsv4, not to ", name(spec.variant)));
  }
  if (spec.num_kv_heads != 1 || spec.head_dim_qk != spec.head_dim_vo)
    return invalid_argument(join("dsv4 has one KV head whose keys are its values; have ",
                                 spec.num_kv_heads, " heads, dims ", spec.head_dim_qk, " and ",
                                 spec.head_dim_vo));
  if (spec.compress_ratio < 0)
    return invalid_argument(
        join("compress_ratio is a number of tokens, or 0; have ", spec.compress_ratio));
  AttentionSpec rest = spec;
  rest.window_left = -1;
  rest.sinks = false;
  if (Status s = check_plain_causal(rest); !s.ok()) return s;
  if (spec.window_left < 0) return unsupported("dsv4 is defined without a window that has no end");
  if (spec.kv_scales) return unsupported("dsv4 is defined without factors on stored keys");
  const bool indexer =
      spec.index_num_heads != 0 || spec.index_head_dim != 0 || spec.index_topk != 0;
  if (!indexer) return {};
  if (spec.compress_ratio == 0)
    return invalid_argument(
        "an indexer of dsv4 chooses among compressed keys: compress_ratio is 0");
  return validate_indexer(spec);
}

Status validate_compressed_pages(const AttentionSpec& spec, std::int32_t page_size) {
  if (spec.compress_ratio == 0 || page_size % spec.compress_ratio == 0) return {};
  return unsupported(join("a page holds whole compressed keys: page_size ", page_size,
                          " is no multiple of compress_ratio ", spec.compress_ratio));
}

Status validate_compressed_batch(const BatchView& batch, const AttentionSpec& spec,
                                 BatchFacts& facts) {
  const CompressedTables& tables = batch.compressed;
  if (spec.compress_ratio == 0) {
    if (!tables.given()) return {};
    return invalid_argument(
        "BatchView::compressed belongs to specs with a compress_ratio: this one has none");
  }
  const auto wanted = static_cast<std::size_t>(batch.batch_size()) + 1;
  if (tables.kv_indptr.size() != wanted)
    return invalid_argument(
        join("compressed.kv_indptr: want ", wanted, " entries, have ", tables.kv_indptr.size()));
  if (tables.kv_indptr[0] != 0)
    return invalid_argument(join("compressed.kv_indptr[0] must be 0, have ", tables.kv_indptr[0]));
  const bool ragged = batch.source == KvSource::ragged;
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const auto n = static_cast<std::size_t>(i);
    const std::int64_t entries = std::int64_t{tables.kv_indptr[n + 1]} - tables.kv_indptr[n];
    const Held held = held_by(batch, spec, i);
    if (ragged ? entries != held.entries : entries < held.entries)
      return invalid_argument(join("request ", i, " has ", held.keys,
                                   " compressed keys, which take ", held.entries,
                                   " entries of compressed.kv_indptr; have ", entries));
    facts.max_positions =
        std::max(facts.max_positions, batch.first_kv_position(i) + batch.kv_len(i));
  }
  const std::int64_t ids = ragged ? 0 : tables.kv_indptr.back();
  if (static_cast<std::int64_t>(tables.kv_indices.size()) != ids)
    return invalid_argument(
        join("compressed.kv_indices: want ", ids, " entries, have ", tables.kv_indices.size()));
  const PageScan pages = scan_pages(tables.kv_indices);
  if (pages.any_negative)
    return invalid_argument("compressed.kv_indices holds a negative number: not a page id");
  facts.max_compressed_page_id = pages.largest;
  facts.num_compressed = ragged ? tables.kv_indptr.back() : 0;
  return {};
}

Status validate_compressed_run(const LayerCall& call, const BatchFacts& facts,
                               const AttentionSpec& spec, std::int32_t page_size) {
  if (Status s = check_presence(call, spec); !s.ok()) return s;
  IndexedKeys keys{.source = facts.source, .num_ragged = facts.num_compressed};
  if (call.compressed == nullptr) return validate_sparse_run(call, 0, spec, keys);
  const CompressedCall& compressed = *call.compressed;
  if (facts.source == KvSource::ragged) {
    if (Status s = match_rows(compressed.k, facts.num_compressed, spec, spec.kv_dtype); !s.ok())
      return s;
  } else if (facts.max_compressed_page_id >= 0) {
    if (Status s = match_cache(compressed.cache, spec, page_size, false); !s.ok()) return s;
    keys.pages = compressed.cache.shape[0];
    if (facts.max_compressed_page_id >= keys.pages)
      return invalid_argument(join("page id ", facts.max_compressed_page_id,
                                   " is beyond the cache of ", keys.pages,
                                   " pages of compressed keys"));
  }
  keys.page_size = page_size / spec.compress_ratio;
  return validate_sparse_run(call, facts.num_qo_tokens, spec, keys);
}

Status validate_compressed_append(const LayerCall& call, const AttentionSpec& spec,
                                  std::int32_t page_size) {
  if (Status s = check_presence(call, spec); !s.ok()) return s;
  if (call.compressed == nullptr) return validate_sparse_append(call, spec, {});
  const CompressedCall& compressed = *call.compressed;
  const auto tokens = static_cast<std::int64_t>(call.slot_mapping.size());
  if (static_cast<std::int64_t>(compressed.slot_mapping.size()) != tokens)
    return invalid_argument(join("compressed.slot_mapping: want ", tokens, " entries, have ",
                                 compressed.slot_mapping.size()));
  if (!is_float(compressed.k.dtype))
    return invalid_argument(
        join("compressed.k: new keys must be fp32, bf16 or fp16, have ", name(compressed.k.dtype)));
  if (Status s = match_rows(compressed.k, tokens, spec, compressed.k.dtype); !s.ok()) return s;
  if (Status s = match_cache(compressed.cache, spec, page_size, true); !s.ok()) return s;
  return validate_sparse_append(
      call, spec,
      {.pages = compressed.cache.shape[0], .page_size = page_size / spec.compress_ratio});
}

}  // namespace attune::attention
