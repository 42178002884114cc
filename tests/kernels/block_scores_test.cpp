#include "kernels/block_scores/table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tensor/element.hpp"

namespace attune::kernels::block_scores {
namespace {

constexpr float kUntouched = -123.0f;

bool runs_here(simd::Isa isa) {
  if (isa == simd::Isa::scalar) return true;
  if (isa == simd::Isa::avx2) return __builtin_cpu_supports("avx2") != 0;
  return __builtin_cpu_supports("avx512bw") != 0;
}

struct Shape {
  int heads;
  int dim;
  int page_size;
  int block_size;
  std::int64_t keys;
};

/// Pages in reverse order, gaps behind keys, NaN wherever nothing is to be read, and one visible key
/// of NaN.
void check(const KernelRow& row, DType q_dtype, const Shape& shape) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<char> q(static_cast<std::size_t>(shape.heads * shape.dim) * size_of(q_dtype));
  for (int i = 0; i < shape.heads * shape.dim; ++i)
    tensor::store_element(q.data(), q_dtype, i, normal(random));
  const std::int64_t pages = (shape.keys + shape.page_size - 1) / shape.page_size + 1;
  const std::int64_t token_stride = shape.dim + 3;
  const std::int64_t page_stride = shape.page_size * token_stride + 5;
  std::vector<char> pool(static_cast<std::size_t>(pages * page_stride) * size_of(row.keys),
                         static_cast<char>(0xff));
  std::vector<std::int32_t> table;
  for (std::int64_t p = pages; p-- > 0;) table.push_back(static_cast<std::int32_t>(p));
  const std::int64_t blocks = (shape.keys + shape.block_size - 1) / shape.block_size;
  const auto places = static_cast<std::size_t>((blocks + 1) * shape.heads);
  std::vector<double> want(places, -std::numeric_limits<double>::infinity());
  for (std::int64_t key = 0; key < shape.keys; ++key) {
    if (key == shape.keys / 2) continue;
    const std::int64_t at = table[static_cast<std::size_t>(key / shape.page_size)] * page_stride +
                            key % shape.page_size * token_stride;
    for (int d = 0; d < shape.dim; ++d)
      tensor::store_element(pool.data(), row.keys, at + d, normal(random));
    for (int h = 0; h < shape.heads; ++h) {
      double dot = 0.0;
      for (int d = 0; d < shape.dim; ++d)
        dot += tensor::load_element(q.data(), q_dtype, h * shape.dim + d) *
               tensor::load_element(pool.data(), row.keys, at + d);
      double& most = want[static_cast<std::size_t>(h * (blocks + 1) + key / shape.block_size)];
      most = std::max(most, dot);
    }
  }
  std::vector<float> whole(places, kUntouched);
  Params p{.q = q.data(),
           .q_dtype = q_dtype,
           .q_head_stride = shape.dim,
           .num_heads = shape.heads,
           .head_dim = shape.dim,
           .keys = pool.data(),
           .page_stride = page_stride,
           .token_stride = token_stride,
           .page_size = shape.page_size,
           .pages = table.data(),
           .num_keys = shape.keys,
           .block_size = shape.block_size,
           .scores = whole.data(),
           .score_stride = blocks + 1};
  std::vector<float> scratch(
      static_cast<std::size_t>(scratch_floats(shape.heads, shape.dim, row.lanes)) + 1, kUntouched);
  row.run(p, 0, blocks, scratch.data());
  EXPECT_EQ(scratch.back(), kUntouched);
  for (int h = 0; h < shape.heads; ++h) {
    EXPECT_EQ(whole[static_cast<std::size_t>(h * (blocks + 1) + blocks)], kUntouched);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const auto i = static_cast<std::size_t>(h * (blocks + 1) + b);
      if (std::isinf(want[i])) {
        EXPECT_EQ(whole[i], want[i]);
      } else {
        EXPECT_NEAR(whole[i], want[i], 1e-5 * shape.dim + 1e-5 * std::fabs(want[i]))
            << row.name << " head " << h << " block " << b;
      }
    }
  }
  // However the blocks are cut, a score has the same bits.
  std::vector<float> cut(places, kUntouched);
  p.scores = cut.data();
  for (std::int64_t b = 0; b < blocks; b += 2)
    row.run(p, b, std::min(b + 2, blocks), scratch.data());
  EXPECT_EQ(cut, whole) << row.name;
}

TEST(BlockScores, EveryKernelAgreesWithDoubles) {
  const Shape shapes[] = {{4, 128, 128, 128, 300}, {4, 128, 16, 128, 257}, {2, 28, 5, 7, 41},
                          {3, 33, 2, 16, 33},      {1, 1, 1, 1, 5},        {5, 16, 64, 3, 64},
                          {9, 100, 7, 20, 1},      {2, 64, 3, 64, 0}};
  for (const KernelRow* rows : {kScalarRows, kAvx2Rows, kAvx512Rows})
    for (std::size_t i = 0; i < kNumTypes; ++i) {
      if (!runs_here(rows[i].isa)) continue;
      for (const DType q : {DType::f32, DType::bf16, DType::f16})
        for (const Shape& shape : shapes) check(rows[i], q, shape);
    }
}

TEST(BlockScores, NoKernelForNarrowKeys) {
  EXPECT_EQ(find(simd::Isa::avx512, DType::fp8_e4m3), nullptr);
  EXPECT_EQ(find(simd::Isa::scalar, DType::bf16), &kScalarRows[1]);
}

}  // namespace
}  // namespace attune::kernels::block_scores
