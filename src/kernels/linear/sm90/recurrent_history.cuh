// The convolution's state moved past a span by those who make its last token (layer kernels): a
// launch of its own would read everything again. A channel of v is one thread's alone. Channels of q
// and k are read for every value head and part of a state that share the key head, and whoever reads
// them last moves them: readers are counted by warps, which need not wait for one another.
#pragma once

#include <cstdint>

#include "kernels/linear/sm90/recurrent_token.cuh"

namespace attune::kernels::linear::sm90 {

template <int KeyColumns, int Taps>
class HistoryMove {
 public:
  /// Each of kTokenThreads threads, once the span's last token has been made of what was read.
  /// `rows`: of the state in the token; `readers`: of a key head.
  __device__ __forceinline__ void begin(const DecodeParams& d, const StateRows& at,
                                        const TokenEntries<KeyColumns, Taps>& entries, int rows,
                                        int readers, int thread) {
    if constexpr (Taps > 1) {
      if (d.conv_state == nullptr) return;
      const Params& p = d.p;
      if (thread < rows && at.first_row + thread < p.dv)
        put(d, at, p.v_channel + at.head * p.dv + at.first_row + thread, entries.v);
      if (readers == 1) {
        put_keys(d, at, entries, thread);
        return;
      }
      kept_ = entries;
      at_ = at;
      readers_ = readers;
      __syncwarp();
      // What was read has been used: no order beyond that is wanted. One of the whole device would
      // cost the SM what its first-level cache holds.
      if (lane_id() == 0) before_ = atomicAdd(counter(d, thread), 1);
    }
  }

  /// Whoever began does this, with other work in between: the count has a long way.
  __device__ __forceinline__ void end(const DecodeParams& d, int thread) {
    if constexpr (Taps > 1) {
      if (readers_ == 0) return;
      const bool last = __shfl_sync(0xffffffffu, before_, 0) + 1 == readers_;
      readers_ = 0;
      if (!last) return;
      if (lane_id() == 0) *counter(d, thread) = 0;
      put_keys(d, at_, kept_, thread);
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ std::int32_t* counter(const DecodeParams& d,
                                                                 int thread) const {
    const std::int64_t key_head = std::int64_t{at_.place} * d.p.num_k_heads + at_.key_head;
    return d.readers + key_head * kTokenWarps + thread / 32;
  }

  static __device__ __forceinline__ void put_keys(const DecodeParams& d, const StateRows& at,
                                                  const TokenEntries<KeyColumns, Taps>& entries,
                                                  int thread) {
    const Params& p = d.p;
#pragma unroll
    for (int i = 0; i < KeyColumns / kTokenThreads; ++i) {
      const int c = thread + i * kTokenThreads;
      if (c >= p.dk) continue;
      put(d, at, p.q_channel + at.key_head * p.dk + c, entries.q[i]);
      put(d, at, p.k_channel + at.key_head * p.dk + c, entries.k[i]);
    }
  }

  static __device__ __forceinline__ void put(const DecodeParams& d, const StateRows& at,
                                             int channel, const Entries<Taps>& entries) {
    const int history = d.p.conv_kernel - 1;
    const std::int64_t first =
        at.span.slot * d.p.conv_state_slot + static_cast<std::int64_t>(channel) * history;
#pragma unroll
    for (int r = 0; r < Taps - 1; ++r) {
      const int entry = r - (Taps - 1 - history);
      if (entry < 0) continue;
      if (d.p.bf16) {
        static_cast<Half*>(d.conv_state)[first + entry] = static_cast<Half>(entries.bits[r]);
      } else {
        static_cast<std::uint32_t*>(d.conv_state)[first + entry] = entries.bits[r];
      }
    }
  }

  TokenEntries<KeyColumns, Taps> kept_;
  StateRows at_{};
  int readers_ = 0;  ///< 0: nothing begun
  std::int32_t before_ = 0;
};

}  // namespace attune::kernels::linear::sm90
