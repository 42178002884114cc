// What the decode kernel asks memory for while it works (layer kernels).
//
// One core reads at the speed of its memory only if it has some 70 cache lines on their way at all
// times. Loads reach as far as the reorder buffer, 2 KB of keys with the arithmetic between them;
// the rest has to be asked for. Lines are asked for in the order of their addresses, evenly over
// the arithmetic, and three times at growing distance: Zen 5 drops a prefetch that finds no free
// miss buffer, and each further request catches most of what the one before it lost (one request a
// line: 24 GB/s of 39; two: 31; three: 38).
#pragma once

#include <cstdint>

#include "kernels/dense/params.hpp"
#include "kernels/simd/unroll.hpp"

namespace attune::kernels::paged_decode {

/// V is the SIMD type, which keeps the copies of different instruction sets apart.
template <class V>
struct Fetch {
  static constexpr int kLeads = 3;
  static constexpr std::int64_t kLeadBytes[kLeads] = {4096, 16384, 32768};
  /// The memory of a run, in pieces that lie together.
  static constexpr int kPieces = 4;

  /// Keys, or values, of one tile.
  struct Side {
    const char* const* rows = nullptr;  ///< [dense::kKeyTile], of the item's first KV head
    int from = 0;
    int to = 0;
    std::int64_t head_bytes = 0;  ///< from one KV head to the next
  };

  /// How tiles are read: a side after the other, in spans of keys, each head after head. One span
  /// of one head is a run.
  struct Order {
    int num_heads = 1;
    int span = 1;
    bool apart = false;  ///< a head's next key lies behind all other heads (NHD)

    [[nodiscard]] int first(const Side& side) const { return side.from / span * span; }
  };

  /// Goes through the memory of later runs, one for each distance, while a run is read.
  class Lead {
   public:
    Lead(const char* const* const (&pieces)[kLeads], std::int64_t piece_bytes)
        : piece_bytes_(piece_bytes), left_(piece_bytes) {
      simd::unroll<kLeads>([&](auto i) {
        pieces_[i] = pieces[i];
        at_[i] = *pieces[i];
      });
    }

    /// kBytes more have been read.
    template <std::int64_t kBytes>
    [[gnu::always_inline]] void step() {
      constexpr std::int64_t kLine = 64;
      if (kBytes >= kLine || left_ % kLine == 0) {
        for (std::int64_t byte = 0; byte < kBytes; byte += kLine)
          for (int i = 0; i < kLeads; ++i) V::prefetch(at_[i] + byte);
      }
      for (int i = 0; i < kLeads; ++i) at_[i] += kBytes;
      left_ -= kBytes;
      if (left_ > 0) return;
      left_ = piece_bytes_;
      if (++piece_ == kPieces) return;
      for (int i = 0; i < kLeads; ++i) at_[i] = pieces_[i][piece_];
    }

   private:
    const char* const* pieces_[kLeads];
    const char* at_[kLeads];
    std::int64_t piece_bytes_;
    std::int64_t left_;
    int piece_ = 0;
  };

  /// Knows where the next runs lie.
  class Ahead {
   public:
    Ahead(const Order& order, std::int64_t row_bytes) : order_(order) {
      const int side_runs = dense::kKeyTile / order.span * order.num_heads;
      const int most = side_runs < kRing ? side_runs : kRing - 1;
      for (int i = 0; i < kLeads; ++i) {
        const std::int64_t run_bytes = order.span * row_bytes;
        const std::int64_t runs = (kLeadBytes[i] + run_bytes - 1) / run_bytes;
        const std::int64_t d = runs + (order.apart ? order.num_heads - 1 : 0);
        distance_[i] = d < most ? static_cast<int>(d) : most;
      }
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

    /// For the next run to be read.
    [[nodiscard]] Lead lead(std::int64_t row_bytes) {
      while (known_ <= read_ + distance_[kLeads - 1] && side_ < kSides) add();
      const char* const* pieces[kLeads];
      for (int i = 0; i < kLeads; ++i) {
        const std::int64_t run = read_ + distance_[i];
        pieces[i] = pieces_[(run < known_ ? run : known_ - 1) % kRing];
      }
      ++read_;
      return Lead(pieces, order_.span / kPieces * row_bytes);
    }

   private:
    static constexpr int kRing = 32;
    static constexpr int kSides = 3;

    void start(int side) {
      if (side < kSides && sides_[side].from == sides_[side].to) side = kSides;
      side_ = side;
      if (side == kSides) return;
      head_ = piece_head_ = 0;
      span_ = piece_row_ = order_.first(sides_[side]);
    }

    /// Writes down where the run at the cursor lies and moves on.
    void add() {
      const Side& side = sides_[side_];
      const char** const pieces = pieces_[known_++ % kRing];
      const int keys = order_.span / kPieces;
      for (int i = 0; i < kPieces; ++i) {
        if (!order_.apart) {
          pieces[i] = side.rows[span_ + i * keys] + head_ * side.head_bytes;
          continue;
        }
        pieces[i] = side.rows[piece_row_] + piece_head_ * side.head_bytes;
        piece_head_ += keys;
        for (; piece_head_ >= order_.num_heads; piece_head_ -= order_.num_heads) ++piece_row_;
      }
      if (++head_ < order_.num_heads) return;
      head_ = 0;
      span_ += order_.span;
      if (span_ >= side.to) start(side_ + 1);
    }

    Order order_;
    Side sides_[kSides];
    int distance_[kLeads];  ///< in runs
    const char* pieces_[kRing][kPieces];
    std::int64_t known_ = 0;  ///< runs written down so far, of which the last kRing are kept
    std::int64_t read_ = 0;
    int side_ = 0;  ///< the cursor: kSides where it has come to the end
    int span_ = 0;
    int head_ = 0;
    int piece_row_ = 0;
    int piece_head_ = 0;
  };
};

}  // namespace attune::kernels::paged_decode
