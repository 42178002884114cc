#include "cache/kv_storage.hpp"

#include <string>

#include "base/math.hpp"

namespace attune::cache {
namespace {

constexpr std::int64_t kAlignment = 4096;
constexpr std::int64_t kLatentFp8Bytes = 656;  // algorithm notes, section a: the token of 656 bytes

bool latent(KvLayout layout) {
  return layout == KvLayout::mla_latent || layout == KvLayout::mla_latent_fp8;
}

TensorView paged(std::byte* memory, const LayerKv& layer, std::int64_t pages,
                 std::int64_t page_size, std::int64_t head_dim) {
  const std::int64_t heads = layer.num_kv_heads;
  if (layer.layout == KvLayout::hnd)
    return TensorView::dense(memory, layer.dtype, {pages, heads, page_size, head_dim});
  return TensorView::dense(memory, layer.dtype, {pages, page_size, heads, head_dim});
}

}  // namespace

std::int64_t bytes_per_token(const LayerKv& layer) {
  if (layer.layout == KvLayout::mla_latent_fp8) return kLatentFp8Bytes;
  const auto element = static_cast<std::int64_t>(size_of(layer.dtype));
  if (latent(layer.layout)) return element * layer.head_dim_qk;
  return element * layer.num_kv_heads * (layer.head_dim_qk + layer.head_dim_vo);
}

Result<KvStorage> KvStorage::make(std::int32_t page_size, std::span<const LayerKv> layers,
                                  std::span<const std::int32_t> pages_of_layer) {
  require(page_size >= 1 && layers.size() == pages_of_layer.size(), "one page count a layer");
  KvStorage storage;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerKv& kv = layers[i];
    const std::int64_t pages = pages_of_layer[i];
    const std::int64_t token_bytes = bytes_per_token(kv);
    const std::int64_t bytes = base::round_up(pages * page_size * token_bytes, kAlignment);
    Layer layer;
    if (bytes > 0) {
      layer.memory.reset(static_cast<std::byte*>(std::aligned_alloc(
          static_cast<std::size_t>(kAlignment), static_cast<std::size_t>(bytes))));
      if (!layer.memory) {
        return Status(StatusCode::out_of_memory, "wanted " + std::to_string(bytes) +
                                                     " bytes for the KV cache of layer " +
                                                     std::to_string(i) + "; ask for fewer pages");
      }
      std::byte* memory = layer.memory.get();
      if (kv.layout == KvLayout::mla_latent_fp8) {
        layer.k = TensorView::dense(memory, DType::u8, {pages, page_size, 1, token_bytes});
      } else if (kv.layout == KvLayout::mla_latent) {
        layer.k = TensorView::dense(memory, kv.dtype, {pages, page_size, 1, kv.head_dim_qk});
        layer.v = layer.k;
        layer.v.shape[3] = kv.head_dim_vo;
      } else {
        layer.k = paged(memory, kv, pages, page_size, kv.head_dim_qk);
        const std::int64_t k_bytes =
            layer.k.num_elements() * static_cast<std::int64_t>(size_of(kv.dtype));
        layer.v = paged(memory + k_bytes, kv, pages, page_size, kv.head_dim_vo);
      }
    }
    storage.num_bytes_ += bytes;
    storage.layers_.push_back(std::move(layer));
  }
  return storage;
}

}  // namespace attune::cache
