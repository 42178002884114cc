#include "tensor/narrow_float.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attune::tensor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Walks every code of a format: out and back is the identity, and between two neighbours the
/// midpoint goes to the even one, anything beyond it to the nearer.
template <class T>
void expect_nearest_even_everywhere() {
  constexpr auto kFormat = detail::FormatOf<T>::value;
  for (std::uint32_t code = 0; code <= kFormat.max_finite; ++code) {
    for (const double sign : {1.0, -1.0}) {
      const std::uint32_t signed_code = code | (sign < 0 ? 1u << kFormat.sign_shift() : 0u);
      const T value{static_cast<decltype(T::bits)>(signed_code)};
      ASSERT_EQ(round_to<T>(static_cast<double>(to_float(value))).bits, signed_code);
      if (code == kFormat.max_finite) continue;
      const T next{static_cast<decltype(T::bits)>(signed_code + 1)};
      const double a = to_float(value);
      const double b = to_float(next);
      ASSERT_LT(std::fabs(a), std::fabs(b));
      const double middle = a + (b - a) / 2;
      ASSERT_EQ(round_to<T>(middle).bits, signed_code % 2 == 0 ? signed_code : signed_code + 1);
      ASSERT_EQ(round_to<T>(std::nextafter(middle, a)).bits, signed_code);
      ASSERT_EQ(round_to<T>(std::nextafter(middle, b)).bits, signed_code + 1);
    }
  }
  ASSERT_TRUE(std::isnan(to_float(round_to<T>(std::nan("")))));
}

TEST(NarrowFloat, EveryBf16) { expect_nearest_even_everywhere<Bf16>(); }
TEST(NarrowFloat, EveryF16) { expect_nearest_even_everywhere<F16>(); }
TEST(NarrowFloat, EveryE4m3) { expect_nearest_even_everywhere<E4m3>(); }
TEST(NarrowFloat, EveryE5m2) { expect_nearest_even_everywhere<E5m2>(); }

TEST(NarrowFloat, KnownValues) {
  EXPECT_EQ(to_float(F16{0x3c00}), 1.0f);
  EXPECT_EQ(to_float(F16{0x0001}), 0x1p-24f);
  EXPECT_EQ(to_float(F16{0x7bff}), 65504.0f);
  EXPECT_EQ(to_float(Bf16{0x4049}), 3.140625f);
  EXPECT_EQ(to_float(E4m3{0x7e}), 448.0f);
  EXPECT_EQ(to_float(E4m3{0x01}), 0x1p-9f);
  EXPECT_EQ(to_float(E5m2{0x7b}), 57344.0f);
  EXPECT_EQ(to_float(E5m2{0x01}), 0x1p-16f);
  EXPECT_TRUE(std::isnan(to_float(E4m3{0x7f})));
  EXPECT_TRUE(std::isnan(to_float(E4m3{0xff})));
  EXPECT_TRUE(std::isinf(to_float(E5m2{0xfc})));
  EXPECT_TRUE(std::isnan(to_float(E5m2{0x7d})));
  EXPECT_TRUE(std::isnan(to_float(F16{0x7c01})));
}

TEST(NarrowFloat, OverflowFollowsTheFormat) {
  EXPECT_EQ(round_to<E4m3>(1e30).bits, 0x7e);
  EXPECT_EQ(round_to<E4m3>(-kInf).bits, 0xfe);
  EXPECT_EQ(round_to<E5m2>(61439.0).bits, 0x7b);
  EXPECT_EQ(round_to<E5m2>(61440.0).bits, 0x7c);
  EXPECT_EQ(round_to<F16>(65519.0).bits, 0x7bff);
  EXPECT_EQ(round_to<F16>(65520.0).bits, 0x7c00);
  EXPECT_EQ(round_to<F16>(-kInf).bits, 0xfc00);
  EXPECT_EQ(round_to<Bf16>(3.4e38).bits, 0x7f80);
  EXPECT_EQ(round_to<F16>(1e-300).bits, 0);
  EXPECT_EQ(round_to<F16>(-5e-324).bits, 0x8000);
}

TEST(NarrowFloat, EveryCodeOutOfE4m3IsFiniteExceptNan) {
  for (int code = 0; code < 256; ++code) {
    const float x = to_float(E4m3{static_cast<std::uint8_t>(code)});
    EXPECT_EQ(std::isnan(x), (code & 0x7f) == 0x7f) << code;
    EXPECT_FALSE(std::isinf(x)) << code;
  }
}

TEST(NarrowFloat, TheShortBf16RoundingAgrees) {
  // Every upper half with the lower halves where rounding turns.
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float x = std::bit_cast<float>(high << 16 | low);
      if (x != x) {
        ASSERT_TRUE(std::isnan(to_float(to_bf16(x))));
        continue;
      }
      ASSERT_EQ(to_bf16(x).bits, round_to<Bf16>(static_cast<double>(x)).bits) << x;
    }
  }
}

TEST(NarrowFloat, Int8IsSymmetricAndRoundsToEven) {
  EXPECT_EQ(round_to<std::int8_t>(2.5), 2);
  EXPECT_EQ(round_to<std::int8_t>(-3.5), -4);
  EXPECT_EQ(round_to<std::int8_t>(1e9), 127);
  EXPECT_EQ(round_to<std::int8_t>(-1e9), -127);
  EXPECT_EQ(round_to<std::int8_t>(std::nan("")), 0);
}

}  // namespace
}  // namespace attune::tensor
