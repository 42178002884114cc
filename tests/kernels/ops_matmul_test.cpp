#include "kernels/ops/matmul.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

namespace attune::kernels::ops {
namespace {

std::uint16_t to_bf16(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float from_bf16(std::uint16_t x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x) << 16;
  float f = 0;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

struct Case {
  std::int64_t m, n, k, parts;
  DType input = DType::f32;
  DType output = DType::f32;
  bool b_is_kn = false;
  bool accumulate = false;
  std::int64_t padding = 0;  // NaN columns behind every row
};

// Operands as the library gets them and as plain fp32, paddings full of NaN.
struct Operand {
  std::vector<float> f32;
  std::vector<std::uint16_t> bf16;
  std::int64_t ld;
  Operand(std::int64_t rows, std::int64_t columns, std::int64_t padding, std::mt19937& random)
      : ld(columns + padding) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    f32.assign(static_cast<std::size_t>(rows * ld), std::numeric_limits<float>::quiet_NaN());
    bf16.assign(f32.size(), 0x7fc0);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) {
        const float x = from_bf16(to_bf16(uniform(random)));
        f32[static_cast<std::size_t>(r * ld + c)] = x;
        bf16[static_cast<std::size_t>(r * ld + c)] = to_bf16(x);
      }
  }
  void* data(DType type) {
    return type == DType::f32 ? static_cast<void*>(f32.data()) : static_cast<void*>(bf16.data());
  }
  float at(std::int64_t r, std::int64_t c, DType type) const {
    const auto i = static_cast<std::size_t>(r * ld + c);
    return type == DType::f32 ? f32[i] : from_bf16(bf16[i]);
  }
};

void check(const Case& t) {
  std::mt19937 random(7);
  Operand a(t.m, t.k, t.padding, random);
  Operand b(t.b_is_kn ? t.k : t.n, t.b_is_kn ? t.n : t.k, t.padding, random);
  Operand c(t.m, t.n, t.padding, random);
  const Operand before = c;

  constexpr int kThreads = 3;
  Matmul matmul(kThreads);
  auto plan = matmul.plan({.m = t.m,
                           .n = t.n,
                           .k = t.k,
                           .lda = a.ld,
                           .ldb = b.ld,
                           .ldc = c.ld,
                           .input = t.input,
                           .output = t.output,
                           .b_is_kn = t.b_is_kn,
                           .accumulate = t.accumulate},
                          t.parts);
  // oneDNN 2 multiplies bf16 with AVX-512 alone. The model asks first, and widens.
  if (!plan.ok() && t.input == DType::bf16 && !Matmul::has_fast_bf16()) {
    EXPECT_NE(plan.status().text().find("oneDNN cannot multiply"), std::string::npos);
    return;
  }
  ASSERT_TRUE(plan.ok()) << plan.status().text();
  ASSERT_LE(num_parts(**plan), t.parts);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (std::int64_t part = thread; part < num_parts(**plan); part += kThreads)
        EXPECT_TRUE(
            matmul.run(**plan, a.data(t.input), b.data(t.input), c.data(t.output), part, thread)
                .ok());
    });
  for (std::thread& thread : threads) thread.join();

  const double tolerance = t.output == DType::bf16 ? 1e-2 : 1e-5;
  for (std::int64_t r = 0; r < t.m; ++r) {
    for (std::int64_t j = 0; j < t.n; ++j) {
      double want = t.accumulate ? before.at(r, j, t.output) : 0;
      for (std::int64_t i = 0; i < t.k; ++i)
        want += static_cast<double>(a.at(r, i, DType::f32)) *
                (t.b_is_kn ? b.at(i, j, DType::f32) : b.at(j, i, DType::f32));
      ASSERT_NEAR(c.at(r, j, t.output), want, tolerance * std::max(1.0, std::sqrt(double(t.k))))
          << r << ", " << j;
    }
    for (std::int64_t j = t.n; j < c.ld; ++j) ASSERT_TRUE(std::isnan(c.at(r, j, t.output)));
  }
}

TEST(Matmul, Fp32) {
  for (std::int64_t parts : {1, 2, 5})
    for (std::int64_t m : {1, 3, 17})
      for (std::int64_t n : {1, 63, 200})
        for (std::int64_t k : {1, 80, 96}) check({.m = m, .n = n, .k = k, .parts = parts});
}

TEST(Matmul, Bf16) {
  for (std::int64_t parts : {1, 4})
    for (std::int64_t m : {1, 3, 130})
      for (std::int64_t n : {1, 65, 192})
        for (std::int64_t k : {2, 71, 128})
          for (DType out : {DType::f32, DType::bf16})
            check({.m = m, .n = n, .k = k, .parts = parts, .input = DType::bf16, .output = out});
}

TEST(Matmul, PaddedRowsAreNeitherReadNorWritten) {
  for (DType type : {DType::f32, DType::bf16})
    for (bool b_is_kn : {false, true})
      for (bool accumulate : {false, true})
        check({.m = 5,
               .n = 130,
               .k = 40,
               .parts = 3,
               .input = type,
               .output = type,
               .b_is_kn = b_is_kn,
               .accumulate = accumulate,
               .padding = 8});
}

TEST(Matmul, SplitsRowsWhereColumnsAreFew) {
  check({.m = 300, .n = 20, .k = 64, .parts = 4});
  check({.m = 301, .n = 20, .k = 64, .parts = 4, .b_is_kn = true, .accumulate = true});
}

TEST(Matmul, EmptyProducts) {
  check({.m = 0, .n = 5, .k = 4, .parts = 2});
  check({.m = 5, .n = 0, .k = 4, .parts = 2});
  check({.m = 5, .n = 70, .k = 0, .parts = 2});
  check({.m = 5, .n = 70, .k = 0, .parts = 2, .accumulate = true});
}

TEST(Matmul, SameShapeIsCompiledOnce) {
  Matmul matmul(1);
  const auto first = matmul.plan({.m = 4, .n = 8, .k = 8}, 2);
  const auto again = matmul.plan({.m = 4, .n = 8, .k = 8}, 2);
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(first->get(), again->get());
}

TEST(Matmul, RefusesTypesItDoesNotMultiply) {
  Matmul matmul(1);
  const auto plan = matmul.plan({.m = 4, .n = 8, .k = 8, .output = DType::bf16});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(plan.status().text().find("fp32"), std::string::npos);
}

}  // namespace
}  // namespace attune::kernels::ops
