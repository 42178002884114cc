// Paged keys and values on their way to shared memory: a ring of stages, each
// a tile of both. Each lane looks up one row of its warp's share a tile ahead (half of the lanes
// keys, half values), and the warp passes the addresses around while it copies: a division and a
// page id for each row, not for each sixteen bytes.
#pragma once

#include <cstdint>

#include "kernels/ptx/cp_async.cuh"
#include "kernels/ragged_prefill/sm80/params.hpp"
#include "kernels/ragged_prefill/sm80/policy.hpp"

namespace attune::kernels::ragged_prefill::sm80 {

/// How `Threads` threads share a tile of `Tile` rows: a thread keeps its place in the row, and in
/// rows of more than 32 units has several.
template <class Rows, int Tile, int Threads>
struct CopyShape {
  static constexpr int columns() {
    int n = 1;
    while (n < Rows::kUnits && n < 32) n *= 2;
    return n;
  }
  static constexpr int kColumns = columns();
  static constexpr int kTurns = (Rows::kUnits + kColumns - 1) / kColumns;
  static_assert(kTurns == 1 || Rows::kUnits % kColumns == 0, "turns are whole");
  static constexpr int kRowsOfWarp = 32 / kColumns;
  static constexpr int kRowsAtOnce = Threads / kColumns;
  static constexpr int kPasses = Tile / kRowsAtOnce;

  /// The n-th row that `warp` copies.
  static constexpr int row(int warp, int n) {
    return warp * kRowsOfWarp + n % kRowsOfWarp + n / kRowsOfWarp * kRowsAtOnce;
  }
};

template <class Policy>
class KeyRing {
  using Keys = typename Policy::Keys;
  using Values = typename Policy::Values;
  template <class Rows>
  using Shape = CopyShape<Rows, Policy::kKeyTile, Policy::kThreads>;
  static_assert(Policy::kKeyTile / Policy::kWarps <= 16, "half a warp looks up the rows of a side");

 public:
  /// Tiles that copies run ahead of their use.
  static constexpr int kAhead = Policy::kStages - 1;

  __device__ KeyRing(const Params& p, std::uint8_t* stages)
      : p_(p), stages_(stages), warp_(threadIdx.x / 32), lane_(threadIdx.x % 32) {}

  /// The keys [kv_begin, kv_end) of an item; stages go on where the last item left them.
  __device__ void begin(const attention::PrefillItem& item, int kv_head) {
    entry_begin_ = item.entry_begin;
    kv_len_ = item.kv_len;
    kv_end_ = item.kv_end;
    kv_head_ = kv_head;
    first_ = item.kv_begin;
    look_up(first_);
  }

  /// Starts copying the next tile, if there is one: one group of cp.async.
  __device__ void copy_next() {
    const char* row = address(first_);
    look_up(first_ + Policy::kKeyTile);
    std::uint8_t* stage = stages_ + in_;
    copy<Keys>(stage, row, 0, p_.head_dim_qk * Policy::kKvBytes);
    copy<Values>(stage + Policy::kKeyBytes, row, 16, p_.head_dim_vo * Policy::kKvBytes);
    ptx::cp_async_commit();
    if (first_ < kv_end_) {
      first_ += Policy::kKeyTile;
      in_ = after(in_);
    }
  }

  /// The oldest stage, once everybody's part of it has landed; everybody has left the one before.
  __device__ const std::uint8_t* take() {
    ptx::cp_async_wait<kAhead - 1>();
    __syncthreads();
    const std::uint8_t* stage = stages_ + out_;
    out_ = after(out_);
    return stage;
  }

 private:
  static __device__ int after(int stage) {
    return stage == (Policy::kStages - 1) * Policy::kStageBytes ? 0 : stage + Policy::kStageBytes;
  }

  __device__ bool is_values() const { return lane_ >= 16; }
  __device__ int token_of(int first) const {
    const int n = lane_ % 16;
    return first + (is_values() ? Shape<Values>::row(warp_, n) : Shape<Keys>::row(warp_, n));
  }

  /// Begins to read the page id of the lane's row of the tile at `first`.
  __device__ void look_up(int first) {
    const int token = token_of(first);
    if (token >= kv_len_) return;
    const std::int64_t entry = static_cast<std::int64_t>(entry_begin_) +
                               base::divide(static_cast<std::uint32_t>(token), p_.page);
    page_ = p_.kv.indices != nullptr ? __ldg(p_.kv.indices + entry) : static_cast<int>(entry);
  }

  __device__ const char* address(int first) const {
    const bool values = is_values();
    const auto* from = static_cast<const char*>(values ? p_.kv.v : p_.kv.k);
    const int token = token_of(first);
    // Rows beyond the request's keys are not read.
    if (token >= kv_len_) return from;
    const int slot =
        token - static_cast<int>(base::divide(static_cast<std::uint32_t>(token), p_.page)) *
                    p_.kv.page_size;
    const std::int64_t place = page_ * (values ? p_.kv.v_page_stride : p_.kv.k_page_stride) +
                               slot * (values ? p_.kv.v_token_stride : p_.kv.k_token_stride) +
                               kv_head_ * (values ? p_.kv.v_head_stride : p_.kv.k_head_stride);
    return from + place * Policy::kKvBytes;
  }

  /// Keys that a request does not have become zero unread, and so do dims a padded kernel serves
  /// beyond the call's. No branch: the warp stays together for its shuffles.
  template <class Rows>
  __device__ void copy(std::uint8_t* tile, const char* address, int source, int row_bytes) const {
    using S = Shape<Rows>;
    const int column = lane_ % S::kColumns;
    const int row = S::row(warp_, lane_ / S::kColumns);
    const bool copies = first_ < kv_end_ && column < Rows::kUnits;
    const int rows = kv_len_ - first_ - row;
    std::uint8_t* to = tile + row * Rows::kBytes;
    const int swizzled = column ^ Rows::mix(row);
#pragma unroll
    for (int pass = 0; pass < S::kPasses; ++pass) {
      const auto from = __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(address),
                                    source + pass * S::kRowsOfWarp + lane_ / S::kColumns);
      const int down = pass * S::kRowsAtOnce;
#pragma unroll
      for (int turn = 0; turn < S::kTurns; ++turn) {
        const int along = turn * S::kColumns * 16;
        const bool in_row = !Policy::kPadded || column * 16 + along < row_bytes;
        if (copies)
          ptx::cp_async_16(to + down * Rows::kBytes + (swizzled ^ Rows::mix(down)) * 16 + along,
                           reinterpret_cast<const char*>(from) + column * 16 + along,
                           in_row && down < rows);
      }
    }
  }

  const Params& p_;
  std::uint8_t* stages_;
  int warp_;
  int lane_;
  int in_ = 0;   ///< bytes from stages_: the slot of the next copy …
  int out_ = 0;  ///< … and the next to be taken
  int entry_begin_ = 0;
  int kv_len_ = 0;
  int kv_end_ = 0;
  int kv_head_ = 0;
  int first_ = 0;  ///< of the tile to be copied
  int page_ = 0;   ///< of the lane's row of that tile
};

}  // namespace attune::kernels::ragged_prefill::sm80
