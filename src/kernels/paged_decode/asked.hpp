// What a run of keys asks memory for beside its own products (layer kernels): lines of a run further
// on, several times, or those of several runs at once. fetch.hpp says which and when.
#pragma once

#include <cstdint>

#include "kernels/simd/unroll.hpp"

namespace attune::kernels::paged_decode {

inline constexpr int kLineBytes = 64;

/// Each line of the run stands for up to three further on, at fixed distances.
template <class V>
struct Repeated {
  std::int64_t near = 0;  ///< bytes from a line of the run to those to be asked for with it
  std::int64_t mid = 0;
  std::int64_t far = 0;

  /// Together with the load of a line at `p`.
  [[gnu::always_inline]] void ask(const char* p, int, std::int64_t) const {
    // Not a pointer into p's row, so not pointer arithmetic.
    const auto at = reinterpret_cast<std::intptr_t>(p);
    V::prefetch(reinterpret_cast<const char*>(at + near));
    V::prefetch(reinterpret_cast<const char*>(at + mid));
    V::prefetch(reinterpret_cast<const char*>(at + far));
  }

  /// The same for runs whose lines follow each other, the first at `first`.
  struct InOrder {
    const char* near;
    const char* mid;
    const char* far;

    InOrder(const Repeated& asked, const char* first)
        : near(first + asked.near), mid(first + asked.mid), far(first + asked.far) {}
    template <int kOffset>
    [[gnu::always_inline]] void ask() const {
      V::template prefetch_at<kOffset>(near);
      V::template prefetch_at<kOffset>(mid);
      V::template prefetch_at<kOffset>(far);
    }
    void move(std::int64_t bytes) {
      near += bytes;
      mid += bytes;
      far += bytes;
    }
  };
};

/// Row i of the run stands for a row of stream i % kStreams: streams are read a line of each in
/// turn.
template <class V>
struct Streams {
  static constexpr int kStreams = V::kStreams;

  /// Of each stream, the rows that are this run's share, and what is added to their addresses.
  const char* const* rows[kStreams] = {};
  std::int64_t offset[kStreams] = {};

  /// Together with the load of byte `at` of row `row` of the run's span.
  [[gnu::always_inline]] void ask(const char*, int row, std::int64_t at) const {
    const int stream = row % kStreams;
    V::prefetch(rows[stream][row / kStreams] + offset[stream] + at);
  }

  struct InOrder {
    const char* first[kStreams];

    InOrder(const Streams& asked, const char*) {
      simd::unroll<kStreams>([&](auto i) { first[i] = asked.rows[i][0] + asked.offset[i]; });
    }
    template <int kOffset>
    [[gnu::always_inline]] void ask() const {
      constexpr int kNumber = kOffset / kLineBytes;
      V::template prefetch_at<kNumber / kStreams * kLineBytes>(first[kNumber % kStreams]);
    }
    void move(std::int64_t bytes) {
      simd::unroll<kStreams>([&](auto i) { first[i] += bytes / kStreams; });
    }
  };
};

}  // namespace attune::kernels::paged_decode
