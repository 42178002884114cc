#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "device/cpu_features.hpp"
#include "kernels/ops/dequant.hpp"
#include "kernels/quant_matmul/table.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::kernels::quant_matmul {
namespace {

constexpr WeightType kTypes[] = {
    WeightType::q4_0, WeightType::q4_1, WeightType::q5_0, WeightType::q5_1, WeightType::q8_0,
    WeightType::q2_k, WeightType::q3_k, WeightType::q4_k, WeightType::q5_k, WeightType::q6_k};

std::vector<const KernelSet*> usable_sets() {
  const device::CpuFeatures cpu = device::detect_cpu_features();
  std::vector<const KernelSet*> sets{&kScalarSet};
  const bool avx2 = cpu.avx2 && cpu.fma && cpu.f16c && cpu.os_saves_ymm;
  if (avx2) sets.push_back(&kAvx2Set);
  if (avx2 && cpu.avx512f && cpu.avx512bw && cpu.avx512dq && cpu.avx512vl && cpu.avx512_vnni &&
      cpu.os_saves_zmm)
    sets.push_back(&kAvx512VnniSet);
  return sets;
}

/// Random blocks whose fp16 scales are ordinary numbers.
std::vector<std::byte> random_blocks(WeightType type, std::int64_t rows, std::int64_t columns,
                                     std::mt19937& random) {
  const ops::BlockSize size = ops::block_size(type);
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows * ops::row_bytes(type, columns)));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  std::vector<std::int64_t> halves{0};
  if (type == WeightType::q4_1 || type == WeightType::q5_1 || type == WeightType::q4_k ||
      type == WeightType::q5_k)
    halves = {0, 2};
  if (type == WeightType::q2_k) halves = {80, 82};
  if (type == WeightType::q3_k) halves = {108};
  if (type == WeightType::q6_k) halves = {208};
  std::normal_distribution<float> normal(0, 0.02f);
  const auto num_blocks = static_cast<std::int64_t>(bytes.size()) / size.bytes_per_block;
  for (std::int64_t b = 0; b < num_blocks; ++b)
    for (std::int64_t at : halves) {
      const auto half = tensor::round_to<tensor::F16>(normal(random));
      std::memcpy(bytes.data() + b * size.bytes_per_block + at, &half.bits, 2);
    }
  return bytes;
}

struct FreeAligned {
  void operator()(std::byte* p) const { std::free(p); }
};

/// A weight repacked, the last tile part empty if rows are no multiple of 16.
struct Packed {
  Layout layout;
  std::int64_t stride = 0;
  std::int64_t tiles = 0;
  std::unique_ptr<std::byte, FreeAligned> data;
  Packed(WeightType type, const std::vector<std::byte>& blocks, std::int64_t rows,
         std::int64_t columns)
      : layout(layout_of(type)),
        stride(tile_bytes(layout, columns)),
        tiles((rows + kTileRows - 1) / kTileRows),
        data(static_cast<std::byte*>(
            std::aligned_alloc(64, static_cast<std::size_t>(tiles * stride)))) {
    for (std::int64_t t = 0; t < tiles; ++t)
      pack_tile(type, blocks.data() + t * kTileRows * ops::row_bytes(type, columns),
                rows - t * kTileRows, columns, data.get() + t * stride);
  }
};

/// Activations of a set, quantised, with the sums one layout needs.
struct Quantised {
  std::int64_t rows, columns;
  std::vector<std::int8_t> q;
  std::vector<float> scale, sums;
  std::vector<std::int32_t> sums16, start;
  Quantised(const KernelSet& set, const Layout& layout, const std::vector<float>& x,
            std::int64_t num_rows, std::int64_t num_columns)
      : rows(num_rows), columns(num_columns) {
    const auto n = [](std::int64_t count) { return static_cast<std::size_t>(count); };
    const std::int64_t groups = columns / layout.group;
    q.resize(n(rows * columns));
    scale.resize(n(rows * columns / 32));
    sums16.resize(n(rows * columns / 16));
    sums.resize(n(rows * groups));
    start.resize(n(rows * groups));
    for (std::int64_t r = 0; r < rows; ++r) {
      const Activations row{.q = q.data() + r * columns,
                            .scale = scale.data() + r * columns / 32,
                            .sums = sums16.data() + r * columns / 16};
      set.quantise(x.data() + r * columns, columns, row);
      set.fill_sums(row, columns, layout, start.data() + r * groups, sums.data() + r * groups);
    }
  }
  [[nodiscard]] Params params(const Packed& w, float* y, std::int64_t y_columns) const {
    return {.tiles = w.data.get(),
            .tile_stride = w.stride,
            .num_tiles = w.tiles,
            .columns = columns,
            .num_rows = rows,
            .q = q.data(),
            .scale = scale.data(),
            .start = start.data(),
            .sums = sums.data(),
            .y = y,
            .y_stride = y_columns + 3,
            .y_columns = y_columns};
  }
};

class QuantMatmul : public testing::TestWithParam<WeightType> {};
INSTANTIATE_TEST_SUITE_P(Types, QuantMatmul, testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(ops::name(type.param)); });

TEST_P(QuantMatmul, EqualsTheDequantisedProduct) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  const WeightType type = GetParam();
  const std::int64_t per_block = ops::block_size(type).per_block;
  for (const std::int64_t columns : {per_block, 3 * per_block, 512l}) {
    for (const std::int64_t n : {1, 16, 37}) {
      const auto blocks = random_blocks(type, n, columns, random);
      std::vector<float> w(static_cast<std::size_t>(n * columns));
      ops::dequantise(type, blocks.data(), n * columns, w.data());
      const Packed packed(type, blocks, n, columns);
      for (const std::int64_t rows : {1, 2, 3, 7, 15, 67}) {
        std::vector<float> x(static_cast<std::size_t>(rows * columns));
        for (float& v : x) v = normal(random);
        for (const KernelSet* set : usable_sets()) {
          const Quantised a(*set, packed.layout, x, rows, columns);
          std::vector<float> y(static_cast<std::size_t>(rows * (n + 3)), 7.0f);
          Params params = a.params(packed, y.data(), n);
          find(*set, packed.layout).multiply(params);
          params.accumulate = true;
          find(*set, packed.layout).multiply(params);
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t j = 0; j < n; ++j) {
              double want = 0;
              double size = 0;
              for (std::int64_t i = 0; i < columns; ++i) {
                const double product =
                    static_cast<double>(w[static_cast<std::size_t>(j * columns + i)]) *
                    a.q[static_cast<std::size_t>(r * columns + i)] *
                    a.scale[static_cast<std::size_t>((r * columns + i) / 32)];
                want += product;
                size += std::abs(product);
              }
              ASSERT_NEAR(y[static_cast<std::size_t>(r * (n + 3) + j)], 2 * want, 1e-5 * size)
                  << set->name << " columns " << columns << " n " << n << " row " << r << " of "
                  << rows << " column " << j;
            }
            for (std::int64_t j = n; j < n + 3; ++j)
              ASSERT_EQ(y[static_cast<std::size_t>(r * (n + 3) + j)], 7.0f);
          }
        }
      }
    }
  }
}

TEST_P(QuantMatmul, ARowDoesNotDependOnItsNeighbours) {
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  constexpr std::int64_t kColumns = 512, kN = 20, kRows = 11;
  const auto blocks = random_blocks(GetParam(), kN, kColumns, random);
  const Packed packed(GetParam(), blocks, kN, kColumns);
  std::vector<float> x(kRows * kColumns);
  for (float& v : x) v = normal(random);
  for (const KernelSet* set : usable_sets()) {
    std::vector<float> all(kRows * (kN + 3));
    const Quantised together(*set, packed.layout, x, kRows, kColumns);
    find(*set, packed.layout).multiply(together.params(packed, all.data(), kN));
    for (std::int64_t r = 0; r < kRows; ++r) {
      std::vector<float> alone(kN + 3);
      const std::vector<float> row(x.begin() + r * kColumns, x.begin() + (r + 1) * kColumns);
      const Quantised one(*set, packed.layout, row, 1, kColumns);
      find(*set, packed.layout).multiply(one.params(packed, alone.data(), kN));
      ASSERT_EQ(std::memcmp(alone.data(), all.data() + r * (kN + 3), kN * sizeof(float)), 0)
          << set->name;
    }
  }
}

TEST(QuantMatmulActivations, SetsAgreeAndEdgesAreSane) {
  std::mt19937 random(13);
  std::normal_distribution<float> normal;
  std::vector<float> x(96);
  for (float& v : x) v = normal(random);
  for (std::size_t i = 32; i < 64; ++i) x[i] = 0.0f;
  std::vector<std::int8_t> want(96);
  for (const KernelSet* set : usable_sets()) {
    std::vector<std::int8_t> q(96);
    std::vector<float> scale(3);
    std::vector<std::int32_t> sums(6);
    set->quantise(x.data(), 96, {.q = q.data(), .scale = scale.data(), .sums = sums.data()});
    if (set == &kScalarSet) want = q;
    EXPECT_EQ(q, want) << set->name;
    EXPECT_EQ(scale[1], 0.0f);
    for (std::size_t g = 0; g < 6; ++g) {
      std::int32_t sum = 0;
      for (std::size_t i = 0; i < 16; ++i) sum += q[g * 16 + i];
      EXPECT_EQ(sums[g], sum);
    }
    for (std::size_t i = 0; i < 96; ++i)
      EXPECT_NEAR(q[i] * scale[i / 32], x[i], 0.501 * scale[i / 32]);
    std::vector<float> bad = x;
    bad[70] = std::numeric_limits<float>::quiet_NaN();
    set->quantise(bad.data(), 96, {.q = q.data(), .scale = scale.data(), .sums = sums.data()});
    EXPECT_TRUE(std::isnan(scale[2])) << set->name;
  }
}

}  // namespace
}  // namespace attune::kernels::quant_matmul
