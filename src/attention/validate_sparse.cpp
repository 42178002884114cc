#include "attention/validate_sparse.hpp"

#include <initializer_list>
#include <string_view>

#include <attune/sparse_call.hpp>

#include "attention/plain_causal.hpp"
#include "base/join.hpp"
#include "tensor/shape_match.hpp"

namespace attune::attention {
namespace {

using base::join;

bool is_float(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16; }

Status match(std::string_view what, const TensorView& view, DType dtype,
             std::initializer_list<std::int64_t> shape, bool written = false) {
  return tensor::match(view, {.name = what, .dtype = dtype, .shape = shape, .written = written});
}

Status match_cache(const SparseCall& sparse, const AttentionSpec& spec, const IndexedKeys& keys,
                   bool written) {
  if (Status s = match("index_cache", sparse.index_cache, spec.index_dtype,
                       {tensor::kAnySize, keys.page_size, spec.index_head_dim}, written);
      !s.ok())
    return s;
  if (sparse.index_cache.shape[0] == keys.pages) return {};
  return invalid_argument(join("index_cache has ", sparse.index_cache.shape[0],
                               " pages, the cache of its keys has ", keys.pages));
}

Status check_presence(const LayerCall& call, const AttentionSpec& spec) {
  const bool wanted = spec.index_topk > 0;
  if (wanted == (call.sparse != nullptr)) return {};
  return invalid_argument(
      wanted ? join("a call of ", name(spec.variant),
                    " with an indexer brings its lists in LayerCall::sparse, have none")
             : join("LayerCall::sparse belongs to specs with an indexer: this one of ",
                    name(spec.variant), " has none"));
}

}  // namespace

Status validate_blocks(const AttentionSpec& spec) {
  const bool asked = spec.variant == Variant::minimax_sparse;
  const bool given =
      spec.index_block_size != 0 || spec.index_init_blocks != 0 || spec.index_local_blocks != 0;
  if (!asked && !given) return {};
  if (!asked)
    return invalid_argument(
        join("index_block_size, index_init_blocks and index_local_blocks belong ",
             "to minimax_sparse, not to ", name(spec.variant)));
  if (Status s = validate_indexer(spec); !s.ok()) return s;
  if (spec.kind != AttentionKind::decoder)
    return invalid_argument("minimax_sparse is decoder attention: its blocks are of one sequence");
  if (spec.index_num_heads != spec.num_kv_heads)
    return invalid_argument(join("minimax_sparse has an index head for each KV head, have ",
                                 spec.index_num_heads, " and ", spec.num_kv_heads));
  if (spec.index_block_size < 1 || spec.index_init_blocks < 0 || spec.index_local_blocks < 0)
    return invalid_argument(join("minimax_sparse wants blocks of one key at least and counts of ",
                                 "blocks, have index_block_size ", spec.index_block_size,
                                 ", index_init_blocks ", spec.index_init_blocks,
                                 ", index_local_blocks ", spec.index_local_blocks));
  if (spec.index_init_blocks > spec.index_topk - spec.index_local_blocks)
    return invalid_argument(join("blocks that are always kept are among the index_topk of ",
                                 spec.index_topk, ", have ", spec.index_init_blocks, " first and ",
                                 spec.index_local_blocks, " last ones"));
  return {};
}

Status validate_indexer(const AttentionSpec& spec) {
  if (spec.index_num_heads < 1 || spec.index_head_dim < 1 || spec.index_topk < 1)
    return invalid_argument(join(name(spec.variant),
                                 " has an indexer: want positive index_num_heads, "
                                 "index_head_dim and index_topk, have ",
                                 spec.index_num_heads, ", ", spec.index_head_dim, " and ",
                                 spec.index_topk));
  if (!is_float(spec.index_dtype))
    return invalid_argument(
        join("index keys are stored as fp32, bf16 or fp16, not as ", name(spec.index_dtype)));
  return spec.variant == Variant::dsv4 ? Status{} : check_plain_causal(spec);
}

Status validate_sparse_run(const LayerCall& call, std::int64_t tokens, const AttentionSpec& spec,
                           const IndexedKeys& keys) {
  if (Status s = check_presence(call, spec); !s.ok() || call.sparse == nullptr) return s;
  const SparseCall& sparse = *call.sparse;
  const bool chooses = sparse.index_q.defined();
  const bool blocks = spec.index_block_size > 0;
  const auto match_lists = [&](std::initializer_list<std::int64_t> shape) {
    return match("topk_indices", sparse.topk_indices, DType::i32, shape, chooses);
  };
  if (Status s = blocks ? match_lists({tokens, spec.index_lists(), spec.index_topk})
                        : match_lists({tokens, spec.index_topk});
      !s.ok() || !chooses)
    return s;
  if (Status s = match("index_q", sparse.index_q, spec.q_dtype,
                       {tokens, spec.index_num_heads, spec.index_head_dim});
      !s.ok())
    return s;
  if (blocks && sparse.index_weights.defined())
    return invalid_argument(
        "index_weights belong to indexers that add up heads: minimax_sparse "
        "keeps a list a head");
  if (Status s = blocks ? Status{}
                        : match("index_weights", sparse.index_weights, DType::f32,
                                {tokens, spec.index_num_heads});
      !s.ok())
    return s;
  if (keys.source == KvSource::ragged)
    return match("index_k", sparse.index_k, spec.index_dtype,
                 {keys.num_ragged, spec.index_head_dim});
  if (keys.pages < 0) return {};
  return match_cache(sparse, spec, keys, false);
}

Status validate_sparse_append(const LayerCall& call, const AttentionSpec& spec,
                              const IndexedKeys& keys) {
  if (call.sparse == nullptr) return {};
  if (Status s = check_presence(call, spec); !s.ok()) return s;
  const SparseCall& sparse = *call.sparse;
  if (!sparse.index_k.defined()) return {};
  if (!is_float(sparse.index_k.dtype))
    return invalid_argument(join("index_k: new index keys must be fp32, bf16 or fp16, have ",
                                 name(sparse.index_k.dtype)));
  const auto tokens = static_cast<std::int64_t>(call.slot_mapping.size());
  if (Status s =
          match("index_k", sparse.index_k, sparse.index_k.dtype, {tokens, spec.index_head_dim});
      !s.ok())
    return s;
  return match_cache(sparse, spec, keys, true);
}

}  // namespace attune::attention
