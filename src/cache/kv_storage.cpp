#include "cache/kv_storage.hpp"

#include <string>
#include <utility>

#include "base/math.hpp"
#include "device/host_memory.hpp"

namespace attune::cache {
namespace {

constexpr std::int64_t kAlignment = 4096;  // arrays start on a page of the operating system

/// A vector for each token, or for each compress_ratio of them.
TensorView vectors(const LayerPages& pages, DType dtype, int width) {
  if (pages.compress_ratio == 0)
    return TensorView::dense(nullptr, dtype, {pages.num_pages, pages.shape.page_size, width});
  return TensorView::dense(
      nullptr, dtype,
      {pages.compressed_pages, pages.shape.page_size / pages.compress_ratio, width});
}

std::int64_t bytes_of(const TensorView& view) {
  return base::round_up(view.num_elements() * static_cast<std::int64_t>(size_of(view.dtype)),
                        kAlignment);
}

}  // namespace

Result<std::shared_ptr<void>> allocate_host_memory(std::size_t bytes) {
  std::shared_ptr<void> memory = device::host_memory(bytes);
  if (memory == nullptr)
    return Status(StatusCode::out_of_memory, "no memory for " + std::to_string(bytes) + " bytes");
  return memory;
}

Result<KvStorage> KvStorage::make(std::span<const LayerPages> layers,
                                  const AllocateMemory& allocate) {
  KvStorage storage;
  for (const LayerPages& pages : layers) {
    Layer layer;
    if (pages.num_pages > 0) {
      const std::int64_t k_bytes =
          base::round_up(pages.num_pages * tensor::k_page_bytes(pages.shape), kAlignment);
      const std::int64_t v_bytes =
          base::round_up(pages.num_pages * tensor::v_page_bytes(pages.shape), kAlignment);
      TensorView index = vectors(pages, pages.index_dtype, pages.index_head_dim);
      TensorView compressed =
          vectors(pages, pages.shape.dtype, pages.compress_ratio > 0 ? pages.shape.head_dim_qk : 0);
      const std::int64_t bytes = k_bytes + v_bytes + bytes_of(index) + bytes_of(compressed);
      Result<std::shared_ptr<void>> memory = allocate(static_cast<std::size_t>(bytes));
      if (!memory.ok()) {
        return Status(StatusCode::out_of_memory,
                      "wanted " + std::to_string(bytes) + " bytes for the KV cache of layer " +
                          std::to_string(storage.layers_.size()) + ": " + memory.status().text() +
                          "; ask for fewer pages");
      }
      layer.memory = std::move(*memory);
      auto* k = static_cast<std::byte*>(layer.memory.get());
      std::byte* v = tensor::stores_v_apart(pages.shape.layout) ? k + k_bytes : k;
      layer.k = tensor::k_cache_view(k, pages.shape, pages.num_pages);
      layer.v = tensor::v_cache_view(v, pages.shape, pages.num_pages);
      index.data = k + k_bytes + v_bytes;
      compressed.data = k + k_bytes + v_bytes + bytes_of(index);
      if (pages.index_head_dim > 0) layer.index = index;
      if (pages.compress_ratio > 0) layer.compressed = compressed;
      storage.num_bytes_ += bytes;
    }
    storage.layers_.push_back(std::move(layer));
  }
  return storage;
}

}  // namespace attune::cache
