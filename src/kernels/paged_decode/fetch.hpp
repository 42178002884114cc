// What the decode kernel asks memory for while it works (layer kernels).
//
// One core reads at the speed of its memory only if it has some 70 cache lines on their way at all
// times. Loads reach as far as the reorder buffer, 2 KB of keys with the arithmetic between them;
// the rest has to be asked for: evenly over the arithmetic, in the order of addresses, and three
// times at growing distance, because Zen 5 drops a prefetch that finds no free miss buffer and each
// further request catches most of those. Cores that wait for a miss buffer instead (V::kRequests is
// 1) are asked once, closer by (docs/performance/cpu.md has the numbers).
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"

namespace attune::kernels::paged_decode {

/// V is the SIMD type, which keeps the copies of different instruction sets apart.
template <class V>
struct Fetch {
  static constexpr std::int64_t kNear = V::kRequests > 1 ? 4096 : 2048;
  static constexpr std::int64_t kMid = 8192;
  static constexpr std::int64_t kFar = 16384;
  static constexpr std::int64_t kLine = 64;

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
    std::int64_t near = 0;  ///< bytes from a line of this run to those to fetch with it
    std::int64_t mid = 0;
    std::int64_t far = 0;

    [[nodiscard]] const char* row(int i) const { return rows[i] + offset; }
    /// Together with the load of the line at `p`.
    [[gnu::always_inline]] void fetch(const char* p) const {
      // Not a pointer into p's row, so not pointer arithmetic.
      const auto at = reinterpret_cast<std::intptr_t>(p);
      V::prefetch(reinterpret_cast<const char*>(at + near));
      if constexpr (V::kRequests > 1) {
        V::prefetch(reinterpret_cast<const char*>(at + mid));
        V::prefetch(reinterpret_cast<const char*>(at + far));
      }
    }
  };

  /// Where the next lines are to be asked for, while the first of a run is read whose lines
  /// follow each other.
  struct Ahead {
    const char* near;
    const char* mid;
    const char* far;

    Ahead(const Run& run, const char* first)
        : near(first + run.near), mid(first + run.mid), far(first + run.far) {}
    template <int kOffset>
    [[gnu::always_inline]] void fetch() const {
      V::template prefetch_at<kOffset>(near);
      if constexpr (V::kRequests > 1) {
        V::template prefetch_at<kOffset>(mid);
        V::template prefetch_at<kOffset>(far);
      }
    }
    void move(std::int64_t bytes) {
      near += bytes;
      mid += bytes;
      far += bytes;
    }
  };

  /// The order in which an item is read: a side of a tile after the other, in spans of kSpan keys,
  /// each head after head. One span of one head is a run.
  template <int kSpan>
  class Walk {
   public:
    Walk(int num_heads, std::int64_t row_bytes) : num_heads_(num_heads) {
      const int most = dense::kKeyTile / kSpan * num_heads;  // runs of a side
      const auto runs = [&](std::int64_t bytes) {
        const std::int64_t n = (bytes + kSpan * row_bytes - 1) / (kSpan * row_bytes);
        return n > kRing - 1 ? kRing - 1 : n > most ? most : static_cast<int>(n);
      };
      near_ = runs(kNear);
      mid_ = runs(kMid);
      far_ = runs(kFar);
    }

    /// From now on `k` is read, then `v`, then `next_k`.
    void enter(const Side& k, const Side& v, const Side& next_k) {
      sides_[0] = k;
      sides_[1] = v;
      sides_[2] = next_k;
      // The cursor has gone through the keys already, or is among them.
      if (known_ == 0)
        start(0);
      else if (side_ == kSides)
        start(1);
      else
        side_ -= 2;
    }

    /// The next run to be read.
    [[nodiscard]] Run next() {
      while (known_ <= read_ + far_ && side_ < kSides) add();
      const Place& here = places_[read_ % kRing];
      Run run = here.run;
      run.near = way(here, read_ + near_);
      run.mid = way(here, read_ + mid_);
      run.far = way(here, read_ + far_);
      ++read_;
      return run;
    }

   private:
    static constexpr int kRing = 32;
    static constexpr int kSides = 3;

    /// A run and where it lies.
    struct Place {
      Run run;
      std::intptr_t first = 0;  ///< address of its first row
      std::intptr_t reach = 0;  ///< from there to its last row
      std::int64_t row_bytes = 0;
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
      place.run.rows = side.rows;
      place.run.offset = head_ * side.head_bytes;
      place.run.from = span_ > side.from ? span_ : side.from;
      place.run.to = span_ + kSpan < side.to ? span_ + kSpan : side.to;
      place.first = address(place.run, span_);
      place.reach = address(place.run, span_ + kSpan - 1) - place.first;
      place.row_bytes = side.row_bytes;
      if (++head_ < num_heads_) return;
      head_ = 0;
      span_ += kSpan;
      if (span_ >= side.to) start(side_ + 1);
    }

    [[nodiscard]] static std::intptr_t address(const Run& run, int row) {
      return reinterpret_cast<std::intptr_t>(run.row(row));
    }

    /// Bytes from `here` to run number `then`; 0 where there is none. The rows of both lie alike
    /// unless pages are small: then all of that run is asked for at once.
    [[nodiscard]] std::int64_t way(const Place& here, std::int64_t then) const {
      if (then >= known_) return 0;
      const Place& there = places_[then % kRing];
      if (here.reach == there.reach) return there.first - here.first;
      for (int i = there.run.from; i < there.run.to; ++i)
        for (std::int64_t byte = 0; byte < there.row_bytes; byte += kLine)
          V::prefetch(there.run.row(i) + byte);
      return 0;
    }

    int num_heads_;
    int near_;  ///< in runs
    int mid_;
    int far_;
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
