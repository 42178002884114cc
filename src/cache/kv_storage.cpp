#include "cache/kv_storage.hpp"

#include <string>
#include <utility>

#include "base/math.hpp"
#include "device/host_memory.hpp"

namespace attune::cache {
namespace {

constexpr std::int64_t kAlignment = 4096;  // both arrays start on a page of the operating system

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
      const std::int64_t index_bytes = base::round_up(
          std::int64_t{pages.num_pages} * pages.shape.page_size * pages.index_head_dim *
              static_cast<std::int64_t>(size_of(pages.index_dtype)),
          kAlignment);
      const std::int64_t bytes = k_bytes + v_bytes + index_bytes;
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
      if (pages.index_head_dim > 0)
        layer.index =
            TensorView::dense(k + k_bytes + v_bytes, pages.index_dtype,
                              {pages.num_pages, pages.shape.page_size, pages.index_head_dim});
      storage.num_bytes_ += bytes;
    }
    storage.layers_.push_back(std::move(layer));
  }
  return storage;
}

}  // namespace attune::cache
