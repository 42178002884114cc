#include "kernels/top_k/top_k.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace attune::kernels::top_k {
namespace {

/// Integers in the order of the numbers.
std::uint32_t rank_of(float x) {
  if (std::isnan(x)) x = -std::numeric_limits<float>::infinity();
  const auto bits = std::bit_cast<std::uint32_t>(x + 0.0f);  // -0 becomes 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// A rank is found digit by digit, from the top.
struct Digit {
  int shift;
  int bits;
};
constexpr std::array<Digit, 3> kDigits{{{21, 11}, {10, 11}, {0, 10}}};

struct Threshold {
  std::uint32_t rank = 0;    ///< of the last number that is kept
  std::int64_t kept = 0;     ///< of this rank …
  std::int64_t present = 0;  ///< … of so many
};

Threshold find_threshold(const float* scores, std::int64_t n, std::int64_t k) {
  Threshold found{.kept = k};
  for (const Digit& digit : kDigits) {
    std::array<std::int64_t, std::size_t{1} << 11> counts{};
    const int above = digit.shift + digit.bits;
    const std::uint32_t mask = (1u << digit.bits) - 1;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t rank = rank_of(scores[i]);
      const bool candidate = above >= 32 || rank >> above == found.rank >> above;
      counts[rank >> digit.shift & mask] += candidate ? 1 : 0;
    }
    std::uint32_t value = mask;
    for (; counts[value] < found.kept; --value) found.kept -= counts[value];
    found.rank |= value << digit.shift;
    found.present = counts[value];
  }
  return found;
}

}  // namespace

std::int64_t keep_largest(const float* scores, std::int64_t n, std::int64_t k,
                          std::int32_t* places) {
  if (n <= k) {
    for (std::int64_t i = 0; i < n; ++i) places[i] = static_cast<std::int32_t>(i);
    return n;
  }
  const Threshold threshold = find_threshold(scores, n, k);
  std::int64_t passed_over = threshold.present - threshold.kept;
  std::int64_t written = 0;
  for (std::int64_t i = 0; i < n && written < k; ++i) {
    const std::uint32_t rank = rank_of(scores[i]);
    if (rank < threshold.rank) continue;
    if (rank == threshold.rank && passed_over > 0) {
      --passed_over;
      continue;
    }
    places[written++] = static_cast<std::int32_t>(i);
  }
  return written;
}

}  // namespace attune::kernels::top_k
