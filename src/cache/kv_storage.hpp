// The bytes of the KV cache: for each layer an array of pages in the layout its backend declared
// (layer cache). Page ids come from a PagePool; one id names the same page in every layer of that
// pool, whatever the layers' shapes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

namespace attune::cache {

/// What one layer keeps of one token.
struct LayerKv {
  KvLayout layout = KvLayout::nhd;
  DType dtype = DType::bf16;
  int num_kv_heads = 0;
  int head_dim_qk = 0;  ///< mla: kv_lora_rank + qk_rope_head_dim
  int head_dim_vo = 0;  ///< mla: kv_lora_rank
};

/// Bytes that one token costs in one such layer.
[[nodiscard]] std::int64_t bytes_per_token(const LayerKv& layer);

class KvStorage {
 public:
  /// One layer's pages. Memory is reserved, not touched: pages never used cost no resident memory.
  static Result<KvStorage> make(std::int32_t page_size, std::span<const LayerKv> layers,
                                std::span<const std::int32_t> pages_of_layer);

  [[nodiscard]] std::size_t num_layers() const { return layers_.size(); }
  /// As LayerCall::k_cache and v_cache want them.
  [[nodiscard]] TensorView k(std::size_t layer) const { return layers_[layer].k; }
  [[nodiscard]] TensorView v(std::size_t layer) const { return layers_[layer].v; }
  [[nodiscard]] std::int64_t num_bytes() const { return num_bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Layer {
    std::unique_ptr<std::byte, Free> memory;
    TensorView k;
    TensorView v;
  };
  std::vector<Layer> layers_;
  std::int64_t num_bytes_ = 0;
};

}  // namespace attune::cache
