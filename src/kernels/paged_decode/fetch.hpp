// What the decode kernel asks memory for while it works (layer kernels).
//
// One core reads at the speed of its memory only if it has some 70 cache lines on their way at all
// times. Loads reach as far as the reorder buffer, 2 KB of keys with the arithmetic between them;
// the rest has to be asked for, evenly over the arithmetic. How depends on the core
// (docs/performance/cpu.md has the numbers):
//
//   V::kStreams 1  Zen 5 drops a prefetch that finds no free miss buffer, so lines are asked for in
//                  the order of addresses, three times at growing distance: each further request
//                  catches most of those dropped.
//   V::kStreams 4  Cores with AMX keep a request until there is a buffer, but have fewer buffers
//                  than memory takes to be busy. What fetches ahead by itself, into the second
//                  cache, does so within pages of 4 KB: so four pages are asked for at once, a line
//                  of each in turn.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/dense/params.hpp"
#include "kernels/paged_decode/asked.hpp"
#include "kernels/simd/unroll.hpp"

namespace attune::kernels::paged_decode {

/// V is the SIMD type, which keeps the copies of different instruction sets apart.
template <class V>
struct Fetch {
  static constexpr std::int64_t kNear = 4096;
  static constexpr std::int64_t kMid = 8192;
  static constexpr std::int64_t kFar = 16384;
  static constexpr std::int64_t kLine = kLineBytes;
  static constexpr int kStreams = V::kStreams;
  static constexpr std::int64_t kStreamBytes = 4096;
  using Asked = std::conditional_t<(kStreams > 1), Streams<V>, Repeated<V>>;
  using Ahead = typename Asked::InOrder;

  /// Keys, or values, of one tile.
  struct Side {
    const char* const* rows = nullptr;  ///< [dense::kKeyTile], of the item's first KV head
    int from = 0;
    int to = 0;
    std::int64_t head_bytes = 0;  ///< from one KV head to the next
    std::int64_t row_bytes = 0;
  };

  /// Keys, or values, `from` … `to`-1 of a tile as one KV head of the item sees them.
  struct Run {
    const char* const* rows = nullptr;
    std::int64_t offset = 0;  ///< bytes from the item's first KV head
    int from = 0;
    int to = 0;
    Asked asked;

    [[nodiscard]] const char* row(int i) const { return rows[i] + offset; }
  };

  /// The order in which an item is read: a side of a tile after the other, in spans of kSpan keys,
  /// each head after head. One span of one head is a run.
  template <int kSpan>
  class Walk {
   public:
    Walk(int num_heads, std::int64_t row_bytes) : num_heads_(num_heads) {
      const std::int64_t run_bytes = kSpan * row_bytes;
      const int most = dense::kKeyTile / kSpan * num_heads;  // runs of a side
      const auto runs = [&](std::int64_t bytes) {
        const std::int64_t n = (bytes + run_bytes - 1) / run_bytes;
        return n > kRing - 1 ? kRing - 1 : n > most ? most : static_cast<int>(n);
      };
      near_ = runs(kNear);
      mid_ = runs(kMid);
      far_ = runs(kFar);
      while (stream_ < kMostOfStream && stream_ * run_bytes < kStreamBytes) stream_ *= 2;
      if (kStreams > 1) far_ = 2 * kStreams * stream_ - 1;
    }

    /// From now on `k` is read, then `v`, then `next_k` and `next_v`.
    void enter(const Side& k, const Side& v, const Side& next_k, const Side& next_v) {
      sides_[0] = k;
      sides_[1] = v;
      sides_[2] = next_k;
      sides_[3] = next_v;
      // The cursor has gone through all that was known, or is among what was next.
      if (known_ == 0)
        start(0);
      else if (side_ == kSides)
        start(2);
      else
        side_ -= 2;
    }

    /// The next run to be read.
    [[nodiscard]] Run next() {
      while (known_ <= read_ + far_ && side_ < kSides) add();
      const Place& here = places_[read_ % kRing];
      Run run{.rows = here.rows,
              .offset = here.offset,
              .from = here.from,
              .to = here.to,
              .asked = ask_of(here)};
      ++read_;
      return run;
    }

   private:
    static constexpr int kRing = 32;
    static constexpr int kSides = 4;
    static constexpr int kMostOfStream = kRing / 2 / kStreams;

    /// A run and where it lies.
    struct Place {
      const char* const* rows = nullptr;
      std::int64_t offset = 0;
      int span = 0;
      int from = 0;
      int to = 0;
      std::intptr_t first = 0;  ///< address of its first row
      std::intptr_t reach = 0;  ///< from there to its last row
      std::int64_t row_bytes = 0;

      [[nodiscard]] const char* row(int i) const { return rows[span + i] + offset; }
    };

    void start(int side) {
      side_ = side < kSides && sides_[side].from < sides_[side].to ? side : kSides;
      if (side_ == kSides) return;
      head_ = 0;
      span_ = sides_[side].from / kSpan * kSpan;
    }

    /// Writes down where the run at the cursor lies and moves on.
    void add() {
      const Side& side = sides_[side_];
      Place& place = places_[known_++ % kRing];
      place.rows = side.rows;
      place.offset = head_ * side.head_bytes;
      place.span = span_;
      place.from = span_ > side.from ? span_ : side.from;
      place.to = span_ + kSpan < side.to ? span_ + kSpan : side.to;
      if constexpr (kStreams == 1) {
        place.first = reinterpret_cast<std::intptr_t>(place.row(0));
        place.reach = reinterpret_cast<std::intptr_t>(place.row(kSpan - 1)) - place.first;
        place.row_bytes = side.row_bytes;
      }
      if (++head_ < num_heads_) return;
      head_ = 0;
      span_ += kSpan;
      if (span_ >= side.to) start(side_ + 1);
    }

    [[nodiscard]] Asked ask_of(const Place& here) const {
      Asked asked;
      if constexpr (kStreams > 1) {
        // Streams of whole groups of runs: each run asks for its share of the next group.
        const int group = kStreams * stream_;
        const int part = static_cast<int>(read_ % group);
        simd::unroll<kStreams>([&](auto i) {
          const std::int64_t then = read_ - part + group + i * stream_ + part / kStreams;
          // The run itself where there is none.
          const Place& there = then < known_ ? places_[then % kRing] : here;
          asked.rows[i] = there.rows + there.span + part % kStreams * (kSpan / kStreams);
          asked.offset[i] = there.offset;
        });
      } else {
        asked.near = way(here, read_ + near_);
        asked.mid = way(here, read_ + mid_);
        asked.far = way(here, read_ + far_);
      }
      return asked;
    }

    /// Bytes from `here` to run number `then`; 0 where there is none. The rows of both lie alike
    /// unless pages are small: then all of that run is asked for at once.
    [[nodiscard]] std::int64_t way(const Place& here, std::int64_t then) const {
      if (then >= known_) return 0;
      const Place& there = places_[then % kRing];
      if (here.reach == there.reach) return there.first - here.first;
      for (int i = there.from; i < there.to; ++i)
        for (std::int64_t byte = 0; byte < there.row_bytes; byte += kLine)
          V::prefetch(there.rows[i] + there.offset + byte);
      return 0;
    }

    int num_heads_;
    int near_;  ///< in runs
    int mid_;
    int far_;
    int stream_ = 1;  ///< runs of a stream
    Side sides_[kSides];
    Place places_[kRing];
    std::int64_t known_ = 0;  ///< runs written down so far, of which the last kRing are kept
    std::int64_t read_ = 0;
    int side_ = 0;  ///< the cursor; kSides where it has come to the end
    int head_ = 0;
    int span_ = 0;
  };
};

}  // namespace attune::kernels::paged_decode
