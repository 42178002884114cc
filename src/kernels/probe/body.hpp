// The probes' loops, written against a SIMD type (layer kernels).
#pragma once

#include <cstdint>

#include "kernels/dense/unit.hpp"
#include "kernels/simd/unroll.hpp"

namespace attune::kernels::probe {

/// Sums per loop: latency times throughput is at most 8 to 12 on current cores, and AVX2 has 16
/// registers.
template <class Unit>
struct Products {
  using V = typename Unit::V;
  static constexpr int kSums = V::kLanes == 8 ? 12 : 20;
  static constexpr double kFlopsPerRound = 2.0 * kSums * V::kLanes * Unit::kPair;

  static void run(std::int64_t rounds, float* sink) {
    alignas(64) typename Unit::Number ones[Unit::kNumbers] = {};
    auto x = Unit::load(ones);
    auto y = Unit::load(ones);
    typename V::F sums[kSums];
    // Opaque to the compiler, which else sees that all sums are one and that nothing changes.
    simd::unroll<kSums>([&](auto i) {
      sums[i] = V::zero();
      asm volatile("" : "+x"(sums[i]));
    });
    for (std::int64_t n = 0; n < rounds; ++n) {
      asm volatile("" : "+x"(x), "+x"(y));
      simd::unroll<kSums>([&](auto i) { sums[i] = Unit::multiply_add(x, y, sums[i]); });
    }
    simd::unroll<kSums>([&](auto i) { sums[0] = V::add(sums[0], sums[i]); });
    *sink = V::sum(sums[0]);
  }
};

/// Reads one stretch of memory as several streams, a line of each in turn: where what fetches ahead
/// by itself does so within a page, several pages are on their way at once.
template <class V>
struct Streams {
  static constexpr int kStreams = 8;

  static void run(const void* from, std::int64_t bytes, float* sink) {
    constexpr std::int64_t kAhead = 512;
    constexpr std::int64_t kLine = 64;
    constexpr int kVectors = kLine / 4 / V::kLanes;
    const char* const p = static_cast<const char*>(from);
    const std::int64_t stream = bytes / kStreams;
    typename V::F sums[kStreams];
    simd::unroll<kStreams>([&](auto i) { sums[i] = V::zero(); });
    for (std::int64_t at = 0; at < stream; at += kLine) {
      simd::unroll<kStreams>([&](auto i) {
        const char* const line = p + i * stream + at;
        V::prefetch(line + kAhead);
        for (int v = 0; v < kVectors; ++v)
          sums[i] = V::add(sums[i], V::load(reinterpret_cast<const float*>(line) + v * V::kLanes));
      });
    }
    simd::unroll<kStreams - 1>([&](auto i) { sums[i + 1] = V::add(sums[i], sums[i + 1]); });
    *sink = V::sum(sums[kStreams - 1]);
  }
};

template <class V>
struct Reads {
  static void run(const void* from, std::int64_t bytes, float* sink) {
    constexpr std::int64_t kAhead = 4096;
    constexpr std::int64_t kStep = 256;
    constexpr int kFloats = kStep / 4;
    const char* const p = static_cast<const char*>(from);
    typename V::F sums[4];
    simd::unroll<4>([&](auto i) { sums[i] = V::zero(); });
    for (std::int64_t at = 0; at < bytes; at += kStep) {
      simd::unroll<4>([&](auto line) { V::prefetch(p + at + kAhead + line * 64); });
      const float* const x = reinterpret_cast<const float*>(p + at);
      for (int i = 0; i < kFloats; i += 4 * V::kLanes)
        simd::unroll<4>([&](auto j) { sums[j] = V::add(sums[j], V::load(x + i + j * V::kLanes)); });
    }
    *sink = V::sum(V::add(V::add(sums[0], sums[1]), V::add(sums[2], sums[3])));
  }
};

}  // namespace attune::kernels::probe
