// Named weights in files, whatever the format (layer model). Names are Hugging Face's; a GGUF store
// translates its own. Views point into mapped files and live as long as the store.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <attune/status.hpp>

#include "kernels/ops/weight_type.hpp"

namespace attune::model {

using kernels::ops::WeightType;

/// A dense row-major tensor as it lies in the file. The last dimension is a row; quantised blocks
/// run along it.
struct WeightView {
  static constexpr int kMaxRank = 4;

  const std::byte* data =
      nullptr;  ///< aligned for nothing: read it bytewise or with loads that allow it
  WeightType type = WeightType::f32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};

  [[nodiscard]] bool defined() const { return data != nullptr; }
  [[nodiscard]] std::int64_t columns() const {
    return rank == 0 ? 1 : shape[static_cast<std::size_t>(rank - 1)];
  }
  /// All dimensions but the last, multiplied.
  [[nodiscard]] std::int64_t rows() const {
    std::int64_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= shape[static_cast<std::size_t>(i)];
    return n;
  }
  [[nodiscard]] std::int64_t num_elements() const { return rows() * columns(); }
  [[nodiscard]] std::int64_t bytes() const {
    return rows() * kernels::ops::row_bytes(type, columns());
  }
  /// Rows [first, first + count) as a matrix [count, columns].
  [[nodiscard]] WeightView row_range(std::int64_t first, std::int64_t count) const {
    return {.data = data + first * kernels::ops::row_bytes(type, columns()),
            .type = type,
            .rank = 2,
            .shape = {count, columns()}};
  }
};

struct WeightInfo {
  std::string name;
  WeightView view;
};

class WeightStore {
 public:
  virtual ~WeightStore() = default;

  /// Every weight, in the order of the file.
  [[nodiscard]] virtual std::span<const WeightInfo> weights() const = 0;

  [[nodiscard]] virtual bool has(std::string_view name) const = 0;

  /// The weight `name`; absent, or of another shape than `shape` (which may be empty: any shape),
  /// it is an error that names both and what the file has instead.
  virtual Result<WeightView> find(std::string_view name,
                                  std::span<const std::int64_t> shape = {}) const = 0;

  /// Bytes of all weights together, as they lie in the files.
  [[nodiscard]] virtual std::int64_t total_bytes() const = 0;
};

/// Dequantises or converts into `out`, which has view.num_elements() entries.
void read_f32(const WeightView& view, std::span<float> out);
/// The same rounded to bf16, to nearest even.
void read_bf16(const WeightView& view, std::span<std::uint16_t> out);

}  // namespace attune::model
