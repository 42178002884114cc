// The bytes of the KV cache: for each layer an array of pages in the layout its backend declared
// (layer cache). Page ids come from a PagePool; one id names the same page in every layer of that
// pool, whatever the layers' shapes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "tensor/kv_layout.hpp"

namespace attune::cache {

struct LayerPages {
  tensor::KvShape shape;
  std::int32_t num_pages = 0;  ///< of the pool this layer's ids come from; 0 = keeps nothing
  int index_head_dim = 0;      ///< width of an indexer's key beside each token; 0 = none
  DType index_dtype = DType::bf16;
  /// Compressed keys, one for as many tokens, and index keys beside those instead; 0 = none.
  int compress_ratio = 0;
  std::int32_t compressed_pages = 0;  ///< of the pool that their ids come from
};

/// Memory that lives as long as somebody holds it, aligned to 256 bytes.
using AllocateMemory = std::function<Result<std::shared_ptr<void>>(std::size_t bytes)>;

/// Ordinary memory, reserved and not touched, on huge pages where there are any.
[[nodiscard]] Result<std::shared_ptr<void>> allocate_host_memory(std::size_t bytes);

class KvStorage {
 public:
  static Result<KvStorage> make(std::span<const LayerPages> layers,
                                const AllocateMemory& allocate = allocate_host_memory);

  [[nodiscard]] std::size_t num_layers() const { return layers_.size(); }
  /// As LayerCall::k_cache and v_cache want them; undefined for a layer without pages.
  [[nodiscard]] const TensorView& k(std::size_t layer) const { return layers_[layer].k; }
  [[nodiscard]] const TensorView& v(std::size_t layer) const { return layers_[layer].v; }
  /// CompressedCall::cache; undefined for a layer without compressed keys.
  [[nodiscard]] const TensorView& compressed(std::size_t layer) const {
    return layers_[layer].compressed;
  }
  /// SparseCall::index_cache; undefined for a layer without an indexer.
  [[nodiscard]] const TensorView& index(std::size_t layer) const { return layers_[layer].index; }
  [[nodiscard]] std::int64_t num_bytes() const { return num_bytes_; }

 private:
  struct Layer {
    std::shared_ptr<void> memory;
    TensorView k;
    TensorView v;
    TensorView compressed;
    TensorView index;
  };
  std::vector<Layer> layers_;
  std::int64_t num_bytes_ = 0;
};

}  // namespace attune::cache
