// The flops and bytes of a case, as docs/performance counts them.
#include <algorithm>
#include <limits>

#include "bench/case.hpp"
#include "tensor/kv_layout.hpp"

namespace attune::bench {
namespace {

constexpr int kLinearChunk = 64;  // tokens of the parallel form whose flops are counted

/// Queries of a request that see `seen` keys each leave some out: pairs scored, and kept.
struct SparsePairs {
  double scored = 0.0;
  double kept = 0.0;
};

/// Keys that a query keeps at most, and how many it keeps of those it sees: lists of blocks have one
/// that is not full, of the query's own. Without an indexer all are kept.
std::int64_t most_kept(const AttentionSpec& s) {
  if (s.index_topk == 0) return std::numeric_limits<std::int64_t>::max();
  return std::int64_t{s.index_topk} * std::max(1, s.index_block_size);
}
std::int64_t kept_of(const AttentionSpec& s, std::int64_t seen) {
  if (s.index_block_size == 0 || seen <= most_kept(s)) return std::min(seen, most_kept(s));
  return most_kept(s) - (s.index_block_size - 1 - (seen - 1) % s.index_block_size);
}

/// Of `tokens`, the keys that an indexer chooses among, and those of a window beside them (dsv4).
std::int64_t chosen_among(const AttentionSpec& s, std::int64_t tokens) {
  return s.variant == Variant::dsv4 ? tokens / s.compress_ratio : tokens;
}
std::int64_t of_window(const AttentionSpec& s, std::int64_t tokens) {
  return s.variant == Variant::dsv4 ? std::min<std::int64_t>(tokens, s.window_left + 1) : 0;
}

/// Of queries that have first_tokens, first_tokens + 1 … tokens up to and with themselves.
SparsePairs sparse_pairs(const AttentionSpec& s, std::int64_t first_tokens, std::int64_t queries) {
  SparsePairs pairs;
  for (std::int64_t tokens = first_tokens; tokens < first_tokens + queries; ++tokens) {
    const std::int64_t seen = chosen_among(s, tokens);
    if (seen > most_kept(s)) pairs.scored += static_cast<double>(seen);
    pairs.kept += static_cast<double>(kept_of(s, seen) + of_window(s, tokens));
  }
  return pairs;
}

double linear_flops(const AttentionSpec& s, double tokens, bool chunked) {
  const double dk = s.linear_head_dim_k;
  const double dv = s.linear_head_dim_v;
  const bool delta = s.variant == Variant::gdn || s.variant == Variant::kda;
  const double state = (delta ? 6.0 : 4.0) * dk * dv;  // erase, write, read
  if (!chunked) return tokens * s.linear_num_v_heads * state;
  const double triangle = kLinearChunk * (delta ? 2.0 : 1.0) * dv;
  const double scores = kLinearChunk * (delta ? 2.0 : 1.0) * dk;
  const double keys = s.variant == Variant::kda ? s.linear_num_v_heads : s.linear_num_k_heads;
  return tokens * (s.linear_num_v_heads * (state + triangle) + keys * scores);
}

}  // namespace

double Case::flops() const {
  if (is_linear(spec.variant))
    return linear_flops(spec, static_cast<double>(num_tokens()), phase == Phase::prefill);
  const double l = static_cast<double>(length);
  const double before = static_cast<double>(shared) * (phase == Phase::prefill ? l : 1.0);
  if (spec.index_topk > 0 || spec.variant == Variant::dsv4) {
    const SparsePairs sparse = sparse_pairs(spec, length - qo_len() + 1, qo_len());
    return 2.0 * static_cast<double>(batch) *
           (sparse.scored * spec.index_num_heads * spec.index_head_dim +
            sparse.kept * spec.num_qo_heads * (spec.head_dim_qk + spec.head_dim_vo));
  }
  const double pairs = before + (phase == Phase::prefill ? l * (l + 1) / 2 : l);
  return 2.0 * static_cast<double>(batch) * pairs * spec.num_qo_heads *
         (spec.head_dim_qk + spec.head_dim_vo);
}

double Case::bytes() const {
  const auto tokens = static_cast<double>(num_tokens());
  const auto activation = static_cast<double>(size_of(spec.o_dtype));
  if (is_linear(spec.variant)) {
    const double width =
        (spec.variant == Variant::lightning ? spec.linear_num_k_heads * spec.linear_head_dim_k * 2 +
                                                  spec.linear_num_v_heads * spec.linear_head_dim_v
                                            : spec.conv_dim) +
        spec.linear_num_v_heads * spec.linear_head_dim_v;
    const double state =
        2.0 * 4.0 * spec.linear_num_v_heads * spec.linear_head_dim_k * spec.linear_head_dim_v;
    return tokens * width * activation + static_cast<double>(batch) * state;
  }
  // DeepSeek's latents in e4m3 have scales and 16-bit rope columns beside them, but for queries in
  // e4m3.
  const bool packed = is_latent(spec.variant) && spec.kv_dtype == DType::fp8_e4m3 &&
                      spec.q_dtype != DType::fp8_e4m3 && spec.head_dim_qk == 576;
  const std::int64_t key_width = is_latent(spec.variant)
                                     ? spec.head_dim_qk
                                     : spec.num_kv_heads * (spec.head_dim_qk + spec.head_dim_vo);
  const std::int64_t key_bytes =
      packed ? tensor::kMlaLatentFp8TokenBytes
             : key_width * static_cast<std::int64_t>(size_of(spec.kv_dtype));
  // A decode reads the keys it keeps, and every index key; in dsv4 those of its window, and
  // compressed ones. A prefill reads all there are.
  const bool decode = phase == Phase::decode;
  const std::int64_t among = chosen_among(spec, length);
  const bool chooses = among > most_kept(spec);
  std::int64_t own = decode ? kept_of(spec, among) : among;
  if (spec.variant == Variant::dsv4) own += decode ? of_window(spec, length) : length;
  const std::int64_t read = batch * own + (flat ? batch : 1) * shared;
  const double index = chooses ? static_cast<double>(batch * among) * spec.index_head_dim *
                                     static_cast<double>(size_of(spec.index_dtype))
                               : 0.0;
  const double keys = static_cast<double>(read) * static_cast<double>(key_bytes);
  const auto query = static_cast<double>(size_of(spec.q_dtype));
  return keys + index +
         tokens * spec.num_qo_heads * (spec.q_columns() * query + spec.head_dim_vo * activation);
}

}  // namespace attune::bench
