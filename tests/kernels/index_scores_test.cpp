#include "kernels/index_scores/table.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tensor/element.hpp"

namespace attune::kernels::index_scores {
namespace {

std::vector<char> random_numbers(std::mt19937& random, std::int64_t n, DType dtype) {
  std::normal_distribution<double> normal;
  std::vector<char> numbers(static_cast<std::size_t>(n) * size_of(dtype));
  for (std::int64_t i = 0; i < n; ++i)
    tensor::store_element(numbers.data(), dtype, i, normal(random));
  return numbers;
}

bool runs_here(simd::Isa isa) {
  if (isa == simd::Isa::scalar) return true;
  if (isa == simd::Isa::avx2) return __builtin_cpu_supports("avx2") != 0;
  return __builtin_cpu_supports("avx512bw") != 0;
}

struct Shape {
  int heads;
  int dim;
  int page_size;
  std::int64_t keys;
};

/// Pages in reverse order, gaps behind keys and NaN wherever nothing is to be read.
void check(const KernelRow& row, DType q_dtype, const Shape& shape) {
  std::mt19937 random(3);
  const std::vector<char> q =
      random_numbers(random, std::int64_t{shape.heads} * shape.dim, q_dtype);
  std::vector<float> weights(static_cast<std::size_t>(shape.heads));
  for (float& w : weights) w = static_cast<float>(random() % 200) / 50.0f - 2.0f;
  const std::int64_t pages = (shape.keys + shape.page_size - 1) / shape.page_size + 1;
  const std::int64_t token_stride = shape.dim + 3;
  const std::int64_t page_stride = shape.page_size * token_stride + 5;
  std::vector<char> pool(static_cast<std::size_t>(pages * page_stride) * size_of(row.keys),
                         static_cast<char>(0xff));
  std::vector<std::int32_t> table;
  for (std::int64_t p = pages; p-- > 0;) table.push_back(static_cast<std::int32_t>(p));
  std::vector<double> want;
  std::normal_distribution<double> normal;
  for (std::int64_t key = 0; key < shape.keys; ++key) {
    const std::int64_t at = table[static_cast<std::size_t>(key / shape.page_size)] * page_stride +
                            key % shape.page_size * token_stride;
    for (int d = 0; d < shape.dim; ++d)
      tensor::store_element(pool.data(), row.keys, at + d, normal(random));
    double score = 0.0;
    for (int h = 0; h < shape.heads; ++h) {
      double dot = 0.0;
      for (int d = 0; d < shape.dim; ++d)
        dot += tensor::load_element(q.data(), q_dtype, h * shape.dim + d) *
               tensor::load_element(pool.data(), row.keys, at + d);
      score += weights[static_cast<std::size_t>(h)] * std::max(dot, 0.0);
    }
    want.push_back(score);
  }
  const Params p{.q = q.data(),
                 .q_dtype = q_dtype,
                 .q_head_stride = shape.dim,
                 .weights = weights.data(),
                 .num_heads = shape.heads,
                 .head_dim = shape.dim,
                 .keys = pool.data(),
                 .page_stride = page_stride,
                 .token_stride = token_stride,
                 .page_size = shape.page_size,
                 .pages = table.data()};
  std::vector<float> scratch(
      static_cast<std::size_t>(scratch_floats(shape.heads, shape.dim, row.lanes)),
      std::numeric_limits<float>::quiet_NaN());
  const float untouched = -123.0f;
  std::vector<float> whole(static_cast<std::size_t>(shape.keys) + 1, untouched);
  row.run(p, 0, shape.keys, whole.data(), scratch.data());
  EXPECT_EQ(whole.back(), untouched);
  for (std::int64_t key = 0; key < shape.keys; ++key)
    EXPECT_NEAR(
        whole[static_cast<std::size_t>(key)], want[static_cast<std::size_t>(key)],
        1e-5 * (shape.dim + shape.heads) + 1e-5 * std::fabs(want[static_cast<std::size_t>(key)]))
        << row.name << " key " << key;
  // However the keys are cut, a score has the same bits.
  std::vector<float> cut(whole.size(), untouched);
  for (std::int64_t first = 0; first < shape.keys; first += 7)
    row.run(p, first, std::min(first + 7, shape.keys), cut.data(), scratch.data());
  EXPECT_EQ(cut, whole) << row.name;
}

TEST(IndexScores, EveryKernelAgreesWithDoubles) {
  const Shape shapes[] = {{64, 128, 64, 130}, {32, 128, 16, 33}, {1, 1, 1, 5},   {3, 20, 5, 41},
                          {9, 33, 2, 7},      {17, 64, 64, 1},   {48, 16, 3, 3}, {8, 100, 7, 0}};
  for (const KernelRow* rows : {kScalarRows, kAvx2Rows, kAvx512Rows})
    for (std::size_t i = 0; i < kNumTypes; ++i) {
      if (!runs_here(rows[i].isa)) continue;
      for (const DType q : {DType::f32, DType::bf16, DType::f16})
        for (const Shape& shape : shapes) check(rows[i], q, shape);
    }
}

TEST(IndexScores, NoKernelForNarrowKeys) {
  EXPECT_EQ(find(simd::Isa::avx512, DType::fp8_e4m3), nullptr);
  EXPECT_EQ(find(simd::Isa::scalar, DType::bf16), &kScalarRows[1]);
}

}  // namespace
}  // namespace attune::kernels::index_scores
