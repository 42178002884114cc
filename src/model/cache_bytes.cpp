#include "model/cache_bytes.hpp"

#include <algorithm>
#include <cmath>

#include "base/math.hpp"
#include "model/compressor.hpp"
#include "model/linear_families.hpp"
#include "tensor/kv_layout.hpp"

namespace attune::model {
namespace {

/// DeepSeek-V4's packed token: 448 e4m3, 64 bf16, 7 scale exponents, 1 byte of padding.
constexpr double kDsv4Fp8TokenBytes = 584.0;
/// An indexer's key in e4m3 with one fp32 scale for every 128 dims.
double index_key_bytes(int head_dim) { return head_dim + 4.0 * base::ceil_div(head_dim, 128); }

double paged_token_bytes(const GroupSelection& g) {
  const AttentionSpec& s = g.group.spec;
  const std::int32_t page = std::max<std::int32_t>(1, g.page_size);
  const tensor::KvShape shape{.layout = g.kv_layout.value_or(KvLayout::nhd),
                              .dtype = s.kv_dtype,
                              .page_size = page,
                              .num_kv_heads = s.num_kv_heads,
                              .head_dim_qk = s.head_dim_qk,
                              .head_dim_vo = s.head_dim_vo};
  return static_cast<double>(tensor::k_page_bytes(shape) + tensor::v_page_bytes(shape)) / page;
}

const AttentionConfig* config_of(const ModelConfig& config, const LayerGroup& group) {
  return group.encoder || group.layers.empty() ? nullptr : config.attention_of(group.layers[0]);
}

/// Layers that keep index keys: the others share lists.
std::int64_t indexing_layers(const ModelConfig& config, const LayerGroup& group) {
  return std::ranges::count_if(group.layers, [&](int layer) {
    return config.layers[static_cast<std::size_t>(layer)].owns_indexer;
  });
}

/// A window of keys and a tail that is not compressed yet, whatever the length; a compressed key and
/// its indexer's for every compress_ratio tokens.
CacheBytes dsv4_bytes(const AttentionConfig& a, const GroupSelection& g) {
  const AttentionSpec& spec = g.group.spec;
  const bool packed =
      spec.kv_dtype == DType::fp8_e4m3 && g.kv_layout.value_or(KvLayout::nhd) == KvLayout::nhd;
  const auto plain = [](int dim, DType type) {
    return static_cast<double>(dim) * static_cast<double>(size_of(type));
  };
  const double entry = packed ? kDsv4Fp8TokenBytes : plain(a.head_dim_qk, spec.kv_dtype);
  const auto layers = static_cast<double>(g.group.layers.size());
  CacheBytes bytes;
  bytes.per_request = static_cast<std::int64_t>(entry * layers) * a.sliding_window;
  if (a.compress_ratio == 0) return bytes;
  bytes.per_request +=
      static_cast<std::int64_t>(g.group.layers.size()) * compressor_state(a).recurrent_bytes();
  double index = 0.0;
  if (a.indexer.head_dim > 0)
    index =
        packed ? index_key_bytes(a.indexer.head_dim) : plain(a.indexer.head_dim, spec.index_dtype);
  bytes.per_token = layers * (entry + index) / a.compress_ratio;
  return bytes;
}

}  // namespace

std::int64_t CacheBytes::of_request(std::int64_t tokens) const {
  const std::int64_t kept = bounded_tokens > 0 ? std::min(tokens, bounded_tokens) : tokens;
  constexpr double kMost = 0x1p62;  // a config may ask for more than any number of bytes
  return static_cast<std::int64_t>(std::min(
      kMost, static_cast<double>(per_request) + std::ceil(per_token * static_cast<double>(kept))));
}

CacheBytes cache_bytes(const ModelConfig& config, const GroupSelection& g) {
  const AttentionSpec& s = g.group.spec;
  const auto layers = static_cast<std::int64_t>(g.group.layers.size());
  CacheBytes bytes;
  if (is_linear(s.variant)) {
    const cache::StateShape shape = state_shape(config, g.group.layers[0], s.q_dtype);
    bytes.per_request = layers * (shape.recurrent_bytes() + shape.conv_bytes());
    return bytes;
  }
  if (s.kind == AttentionKind::encoder_only) return bytes;
  const AttentionConfig* a = config_of(config, g.group);
  if (s.variant == Variant::dsv4 && a != nullptr) return dsv4_bytes(*a, g);
  bytes.per_token = paged_token_bytes(g) * static_cast<double>(layers);
  if (s.index_topk > 0)
    bytes.per_token += static_cast<double>(indexing_layers(config, g.group)) * s.index_head_dim *
                       static_cast<double>(size_of(s.index_dtype));
  if (s.window_left >= 0) bytes.bounded_tokens = s.window_left + 1;
  if (s.attention_chunk > 0) bytes.bounded_tokens = s.attention_chunk;
  if (s.kind == AttentionKind::cross) {
    // An encoder's keys are as many as its positions, whatever the decoder's length.
    const std::int64_t positions = config.encoder.max_positions;
    bytes.per_request = static_cast<std::int64_t>(bytes.per_token) * positions;
    if (positions > 0) bytes.per_token = 0.0;
  }
  return bytes;
}

}  // namespace attune::model
