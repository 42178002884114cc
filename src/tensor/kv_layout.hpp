// Bytes of a page and the dense cache views over a pool, per layout (layer tensor).
#pragma once

#include <cstdint>

#include <attune/tensor.hpp>

namespace attune::tensor {

/// What one token of one layer needs, per layout. `head_dim_vo` counts only where V is stored apart
/// from K.
struct KvShape {
  KvLayout layout = KvLayout::nhd;
  DType dtype = DType::bf16;
  std::int32_t page_size = 1;
  int num_kv_heads = 1;
  int head_dim_qk = 0;
  int head_dim_vo = 0;
};

/// 512 e4m3, 4 fp32 scales, 64 bf16.
inline constexpr std::int64_t kMlaLatentFp8TokenBytes = 656;

[[nodiscard]] constexpr bool stores_v_apart(KvLayout layout) {
  return layout == KvLayout::nhd || layout == KvLayout::hnd;
}

[[nodiscard]] std::int64_t k_page_bytes(const KvShape& shape);
/// 0 where V is a slice of K.
[[nodiscard]] std::int64_t v_page_bytes(const KvShape& shape);

/// Dense views over `num_pages` pages, in the shape LayerCall documents. mla_latent is rank 3:
/// [page, token, head_dim_qk].
[[nodiscard]] TensorView k_cache_view(void* data, const KvShape& shape, std::int64_t num_pages);
/// mla_latent: the first head_dim_vo columns of the K pages, so `data` is the K pool there.
[[nodiscard]] TensorView v_cache_view(void* data, const KvShape& shape, std::int64_t num_pages);

}  // namespace attune::tensor
