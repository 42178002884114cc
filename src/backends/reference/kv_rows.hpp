// One stored key or value at a time, as doubles, whatever the layout and the dtype.
#pragma once

#include <cstdint>

#include <attune/backend.hpp>
#include <attune/spec.hpp>
#include <attune/tensor.hpp>

#include "tensor/kv_layout.hpp"

namespace attune::backends::reference {

/// Rows of one cache tensor or of one ragged tensor, addressed by slot = page * page_size + place
/// (ragged: pages of one token).
struct KvRows {
  void* data = nullptr;
  DType dtype = DType::f32;
  bool latent_fp8 = false;  ///< 656-byte rows; strides count bytes
  int width = 0;            ///< elements of a row that are read
  std::int64_t page_size = 1;
  std::int64_t page_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;

  void read(std::int64_t slot, std::int64_t head, double* row) const;
  /// Stores tokens[token, head] / scale. Integers and fp8 saturate: an infinite key would poison
  /// every row that sees it.
  void write(std::int64_t slot, std::int64_t head, const TensorView& tokens, std::int64_t token,
             double scale) const;

 private:
  [[nodiscard]] std::int64_t offset(std::int64_t slot, std::int64_t head) const;
};

[[nodiscard]] KvRows key_rows(const LayerCall& call, const AttentionSpec& spec, KvLayout layout);
[[nodiscard]] KvRows value_rows(const LayerCall& call, const AttentionSpec& spec, KvLayout layout);
[[nodiscard]] KvRows ragged_key_rows(const LayerCall& call, const AttentionSpec& spec);
[[nodiscard]] KvRows ragged_value_rows(const LayerCall& call, const AttentionSpec& spec);

/// One vector a slot: of a cache [pages, page_size, width], or ragged [rows, width].
[[nodiscard]] KvRows vector_rows(const TensorView& vectors, bool ragged);

/// tensor[token, head, 0 … width) as doubles.
void read_row(const TensorView& tensor, std::int64_t token, std::int64_t head, int width,
              double* row);

}  // namespace attune::backends::reference
