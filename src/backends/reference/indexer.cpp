#include "backends/reference/indexer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <attune/sparse_call.hpp>

#include "tensor/element.hpp"

namespace attune::backends::reference {

KvRows index_rows(const LayerCall& call, bool ragged) {
  return vector_rows(ragged ? call.sparse->index_k : call.sparse->index_cache, ragged);
}

double index_score(const AttentionSpec& spec, const LayerCall& call, std::int64_t token,
                   const double* key, double* q) {
  const TensorView& weights = call.sparse->index_weights;
  double score = 0.0;
  for (int h = 0; h < spec.index_num_heads; ++h) {
    read_row(call.sparse->index_q, token, h, spec.index_head_dim, q);
    double dot = 0.0;
    for (int d = 0; d < spec.index_head_dim; ++d) dot += q[d] * key[d];
    const double weight =
        tensor::load_element(weights.data, DType::f32, token * weights.stride[0] + h);
    score += weight * (dot > 0.0 ? dot : 0.0);
  }
  return std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
}

double block_key_score(const AttentionSpec& spec, const LayerCall& call, std::int64_t token,
                       int head, const double* key, double* q) {
  read_row(call.sparse->index_q, token, head, spec.index_head_dim, q);
  double dot = 0.0;
  for (int d = 0; d < spec.index_head_dim; ++d) dot += q[d] * key[d];
  return dot;
}

std::int32_t* list_of(const LayerCall& call, std::int64_t token, std::int64_t kv_head) {
  const TensorView& lists = call.sparse->topk_indices;
  return lists.as<std::int32_t>() + token * lists.stride[0] + kv_head * lists.stride[1];
}

void keep_best_blocks(const AttentionSpec& spec, std::int64_t num_blocks,
                      const IndexerScratch& scratch, std::int32_t* list) {
  const std::int64_t last = num_blocks - spec.index_local_blocks;
  using Limits = std::numeric_limits<double>;
  for (std::int64_t block = 0; block < num_blocks && num_blocks > spec.index_topk; ++block) {
    const bool always = block < spec.index_init_blocks || block >= last;
    double& score = scratch.scores[block];
    score = always ? Limits::infinity() : std::min(score, Limits::max());
  }
  keep_largest(spec, num_blocks, scratch, list);
}

void keep_largest(const AttentionSpec& spec, std::int64_t num_keys, const IndexerScratch& scratch,
                  std::int32_t* list) {
  const std::int64_t kept = std::min<std::int64_t>(spec.index_topk, num_keys);
  std::int32_t* const order = scratch.order;
  std::iota(order, order + num_keys, 0);
  const auto before = [scores = scratch.scores](std::int32_t a, std::int32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a > b;
  };
  if (kept < num_keys) std::nth_element(order, order + kept, order + num_keys, before);
  std::sort(order, order + kept);
  std::copy_n(order, kept, list);
  std::fill_n(list + kept, spec.index_topk - kept, -1);
}

}  // namespace attune::backends::reference
