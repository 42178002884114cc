// The decode kernel: persistent CTAs take items (attention/work_list.hpp), each warp its own tiles.
// Whole rows are written at once, parts meet in the workspace, where the last one to arrive joins
// them in order; or, where each block has one part and all run at the same time, each joins a share
// of its row's outputs.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/paged_decode/sm80/ring.cuh"
#include "kernels/paged_decode/sm80/tile.cuh"
#include "kernels/ptx/atomic.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mailbox.cuh"

namespace attune::kernels::paged_decode::sm80 {

/// Four adjacent outputs of query head `head`; `maximum` and `sum` are the row's, in base 2.
__device__ __forceinline__ void write_output(const Params& p, const RowTarget& t, int row, int dim,
                                             float4 v, float maximum, float sum) {
  const int head = t.first_head + row;
  float factor = 0.0f;
  float lse = -INFINITY;
  if (sum > 0.0f) {
    lse = (maximum + __log2f(sum)) * kLn2;
    factor = __fdividef(p.v_scale, sum);
    if (p.v_scale_per_head != nullptr) factor *= p.v_scale_per_head[t.kv_head];
    if (p.sinks != nullptr)
      factor = __fdividef(factor, 1.0f + ptx::exp2_approx((p.sinks[head] - lse) * kLog2E));
  }
  v = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
  const std::int64_t at =
      t.token * p.o_token_stride + static_cast<std::int64_t>(head) * p.o_head_stride + dim;
  if (p.o_element == Element::f32) {
    *reinterpret_cast<float4*>(static_cast<float*>(p.o) + at) = v;
  } else {
    const bool bf16 = p.o_element == Element::bf16;
    const uint2 packed =
        bf16 ? make_uint2(ptx::pack_pair<__nv_bfloat16>(v.x, v.y),
                          ptx::pack_pair<__nv_bfloat16>(v.z, v.w))
             : make_uint2(ptx::pack_pair<__half>(v.x, v.y), ptx::pack_pair<__half>(v.z, v.w));
    *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(p.o) + at) = packed;
  }
  if (dim == 0 && p.lse != nullptr)
    p.lse[t.token * p.lse_token_stride + head * p.lse_head_stride] = lse;
}

__device__ __forceinline__ void add_scaled(float4& to, float weight, float4 v) {
  to.x += weight * v.x;
  to.y += weight * v.y;
  to.z += weight * v.z;
  to.w += weight * v.w;
}

template <class Kv, class Policy>
class DecodeKernel {
 public:
  static constexpr int kVectors = Policy::kDimVo / 4;

  __device__ explicit DecodeKernel(const Params& p, std::uint8_t* shared)
      : p_(p),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        rings_(shared),
        queries_(shared + Policy::kWarps * Policy::kStages * Policy::kStageBytes),
        exchange_(queries_ + Policy::kWarps * Policy::kQueryBytes),
        states_(reinterpret_cast<float2*>(exchange_ + Policy::kWarps * Policy::kExchangeBytes)),
        free_stages_(reinterpret_cast<int*>(states_ + Policy::kWarps * Policy::kRows)),
        claimed_(free_stages_ + Policy::kWarps),
        is_last_(claimed_ + 2),
        role_{.part = Policy::kDimParts == 1 ? 0 : warp_ % Policy::kDimParts,
              .head = warp_ / Policy::kDimParts % p.heads_per_cta,
              .slice = warp_ / Policy::kDimParts / p.heads_per_cta,
              .num_slices = Policy::kWarps / Policy::kDimParts / p.heads_per_cta} {}

  __device__ void run() {
    std::uint8_t* ring = ring_of(warp_);
    std::uint8_t* queries = queries_ + warp_ * Policy::kQueryBytes;
    ptx::dependency_release();
    if constexpr (Policy::kBeside) claim_two();
    if (!Policy::kBeside && !p_.listed_before) ptx::dependency_wait();
    // Read before it is known to exist: the list always has room for two items a CTA.
    const Item first = read_item(p_, Policy::kBeside ? claimed_[0] : static_cast<int>(blockIdx.x));
    const ItemQueue<Policy> queue{.num_items = p_.work->num_items, .claimed = claimed_};
    if (queue.id(0) >= queue.num_items) {
      if (!Policy::kBeside && p_.listed_before) ptx::dependency_wait();
      return;
    }

    RingLoader<Policy> loader(p_, role_, queue, take_item<Policy>(p_, role_, first), ring, queries);
    int taken = 0;  // tiles
    int stage = 0;
    int turn = 0;
    int arriving = -1;  // the item before, when it is a part and its arrival has not been judged
    WarpState<Kv, Policy> state;
    for (int n = 0; queue.id(n) < queue.num_items; ++n) {
      const Item item = loader.begin(n);
      state.clear();
      LogitRule rule;
      float slopes[Policy::kRowTiles][2];
      const RowTarget target = row_target<Policy>(p_, item, role_.head);
      read_rule(item, target, rule, slopes);

      const int first_tile = item.chunk.tile_begin + role_.slice;
      Products<Policy> products;
      for (int tile = first_tile; tile < item.chunk.tile_end; tile += role_.num_slices) {
        // The stage of the tile taken last is free.
        loader.fill(taken + Policy::kStages);
        const int next_stage = stage + 1 == Policy::kStages ? 0 : stage + 1;
        if (!Policy::kAhead || tile == first_tile) wait_for<0>(loader, taken);
        if (tile == first_tile) {
          state.load_queries(p_.q_element, queries, target.rows);
          __syncwarp();
          loader.allow(n + 1);
        }
        if (!Policy::kAhead || tile == first_tile)
          make_products(state, ring + stage * Policy::kStageBytes, turn, products);
        Products<Policy> next;
        if (Policy::kAhead && tile + role_.num_slices < item.chunk.tile_end) {
          wait_for<1>(loader, taken);
          make_products(state, ring + next_stage * Policy::kStageBytes, turn, next);
        }
        weigh_tile(state, ring + stage * Policy::kStageBytes, products,
                   tile_range<Policy>(item.chunk.request, tile), rule, slopes);
        if constexpr (Policy::kAhead) {
#pragma unroll
          for (int b = 0; b < Policy::kTile / 16; ++b)
#pragma unroll
            for (int r = 0; r < Policy::kRowTiles; ++r)
#pragma unroll
              for (int e = 0; e < 4; ++e) products[b][r][e] = next[b][r][e];
        }
        __syncwarp();
        ++taken;
        stage = next_stage;
      }
      loader.allow(n + 1);
      state.reduce();
      finish_item(queue, n, item, state, stage == 0 ? Policy::kStages - 1 : stage - 1, arriving);
    }
    if (arriving < 0) return;
    __syncthreads();
    if (*is_last_ != 0) join(read_item(p_, arriving));
  }

 private:
  /// Four adjacent outputs of one query head of this CTA.
  struct Output {
    int head;  ///< among heads_per_cta
    int row;
    int dim;
    RowTarget target;
  };

  /// A running join of parts: maximum in base 2, sum, outputs.
  struct Joined {
    float maximum = -INFINITY;
    float sum = 0.0f;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    __device__ void rescale(float top) {
      const float factor = ptx::exp2_approx(maximum - (top == -INFINITY ? 0.0f : top));
      sum *= factor;
      v = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
      maximum = top;
    }
    /// What the lane `step` away has.
    [[nodiscard]] __device__ Joined of_lane(int step) const {
      const auto get = [&](float x) { return __shfl_xor_sync(0xffffffffu, x, step); };
      Joined other;
      other.maximum = get(maximum);
      other.sum = get(sum);
      other.v = make_float4(get(v.x), get(v.y), get(v.z), get(v.w));
      return other;
    }
    __device__ void add(float part_maximum, float part_sum, float4 part) {
      const float weight = ptx::exp2_approx(part_maximum - (maximum == -INFINITY ? 0.0f : maximum));
      sum += weight * part_sum;
      add_scaled(v, weight, part);
    }
  };

  /// Tile `taken` + Ahead of this warp is in its stage.
  template <int Ahead>
  static __device__ void wait_for(const RingLoader<Policy>& loader, int taken) {
    if (loader.started() == taken + Policy::kStages)
      ptx::cp_async_wait<Policy::kStages - 1 - Ahead>();
    else
      ptx::cp_async_wait<0>();
    __syncwarp();
  }

  /// Logits of the tile in `stage`, those of the warps that share it added up.
  __device__ void make_products(const WarpState<Kv, Policy>& state, const std::uint8_t* stage,
                                int& turn, Products<Policy>& products) const {
    multiply_tile(state, stage, products);
    if constexpr (Policy::kDimParts > 1) {
      const int first_warp = warp_ - role_.part;
      add_dim_parts<Policy>(exchange_ + first_warp * Policy::kExchangeBytes, role_.part,
                            1 + first_warp / Policy::kDimParts, turn, products);
      turn = 1 - turn;
    }
  }

  __device__ void claim_two() {
    if (threadIdx.x == 0) {
      claimed_[0] = atomicAdd(p_.claims, 2);
      claimed_[1] = claimed_[0] + 1;
    }
    __syncthreads();
  }

  __device__ std::uint8_t* ring_of(int warp) const {
    return rings_ + warp * (Policy::kStages * Policy::kStageBytes);
  }

  __device__ void read_rule(const Item& item, const RowTarget& target, LogitRule& rule,
                            float (&slopes)[Policy::kRowTiles][2]) const {
    const attention::DecodeRequest& request = item.chunk.request;
    rule.scale_log2 = p_.scale_log2;
    if (p_.k_scale_per_head != nullptr) rule.scale_log2 *= p_.k_scale_per_head[target.kv_head];
    rule.soft_cap_log2 = p_.soft_cap_log2;
    rule.temperature = request.temperature;
    rule.query_pos = request.query_pos;
    rule.plain = p_.soft_cap_log2 == 0.0f && p_.alibi_slopes == nullptr && rule.temperature == 1.0f;
#pragma unroll
    for (int n = 0; n < Policy::kRowTiles; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int r = 8 * n + 2 * (lane_ % 4) + e;
        slopes[n][e] = p_.alibi_slopes != nullptr && r < target.rows
                           ? p_.alibi_slopes[target.first_head + r] * kLog2E
                           : 0.0f;
      }
  }

  /// Joins the warps of each head. Their outputs pass through the free stage of each one's ring,
  /// while the other stages go on filling. Whether a part was the last of its row to arrive is
  /// asked by one lane of one warp, in turn, and answered one item later: nobody waits for it.
  __device__ void finish_item(const ItemQueue<Policy>& queue, int n, const Item& item,
                              const WarpState<Kv, Policy>& state, int free_stage, int& arriving) {
    // Asked for now, needed when this item is done.
    const int given = Policy::kBeside ? 0 : 2 * static_cast<int>(gridDim.x);
    const bool claims =
        threadIdx.x == 0 && queue.num_items > given && queue.id(n + 1) < queue.num_items;
    int claim = 0;
    if (claims) claim = atomicAdd(p_.claims, 1);

    const int id = queue.id(n);
    publish(state, free_stage);
    __syncthreads();
    const bool whole = item.chunk.parts == 1;
    const bool mails =
        !Policy::kBeside && !whole && item.chunk.side_by_side != 0 && p_.mail_o != nullptr;
    const std::int64_t place =
        static_cast<std::int64_t>(item.chunk.first_place + item.chunk.part) * p_.units.divisor +
        item.unit;
    for (int at = threadIdx.x; at < num_outputs(); at += Policy::kThreads) {
      const Output out = output_of(item, at);
      if (out.row >= out.target.rows || (Policy::kPadded && out.dim >= p_.head_dim_vo)) continue;
      const Joined joined = join_warps(out);
      if (whole) {
        write_output(p_, out.target, out.row, out.dim, joined.v, joined.maximum, joined.sum);
      } else if (mails) {
        ptx::send(p_.mail_o + mail_place(id, at), joined.v);
        ptx::send(p_.mail_state + mail_place(id, at), make_float2(joined.maximum, joined.sum));
      } else {
        const std::int64_t row = partial_row(place, out);
        *reinterpret_cast<float4*>(p_.partial_o + row * Policy::kDimVo + out.dim) = joined.v;
        if (out.dim == 0) p_.partial_state[row] = make_float2(joined.maximum, joined.sum);
      }
    }
    if (mails) {
      collect(item, id);
      return;  // it was the block's only item
    }
    if (arriving >= 0 && *is_last_ != 0) join(read_item(p_, arriving));
    if (threadIdx.x == 0) {
      claimed_[n % 2] = claims ? claim + given : queue.num_items;
      // Each CTA fails once; the last failure leaves the counter at zero for the next run.
      const int failures = static_cast<int>(gridDim.x);
      if (!Policy::kBeside && claims && claim == queue.num_items - given + failures - 1)
        *p_.claims = 0;
    }
    __syncthreads();
    arriving = whole ? -1 : id;
    if (!whole && static_cast<int>(threadIdx.x) == n % Policy::kWarps * 32) arrive(item);
  }

  /// One output over the warps of its head, all of them asked at once.
  __device__ Joined join_warps(const Output& out) const {
    constexpr int kSlices = Policy::kWarps / Policy::kDimParts;
    float2 states[kSlices];
    float4 values[kSlices];
    Joined joined;
#pragma unroll
    for (int i = 0; i < kSlices; ++i) {
      states[i] = make_float2(-INFINITY, 0.0f);
      values[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (i < role_.num_slices) {
        const int warp =
            (i * p_.heads_per_cta + out.head) * Policy::kDimParts + out.dim / Policy::kPartVo;
        states[i] = state_of(warp, out.row);
        values[i] = outputs_of(warp, out.row, out.dim % Policy::kPartVo);
      }
    }
#pragma unroll
    for (int i = 0; i < kSlices; ++i) joined.maximum = fmaxf(joined.maximum, states[i].x);
#pragma unroll
    for (int i = 0; i < kSlices; ++i) joined.add(states[i].x, states[i].y, values[i]);
    return joined;
  }

  /// Hands this warp's state to the CTA.
  __device__ void publish(const WarpState<Kv, Policy>& state, int free_stage) {
    auto* mine = reinterpret_cast<float*>(ring_of(warp_) + free_stage * Policy::kStageBytes);
    const int j = lane_ % 4;
#pragma unroll
    for (int n = 0; n < Policy::kRowTiles; ++n) {
      if (lane_ < 4) {
#pragma unroll
        for (int e = 0; e < 2; ++e)
          states_[warp_ * Policy::kRows + 8 * n + 2 * j + e] =
              make_float2(state.maximum[n][e], state.sum[n][e]);
      }
#pragma unroll
      for (int d = 0; d < WarpState<Kv, Policy>::kDimTiles; ++d)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          mine[output_place<Policy>(8 * n + 2 * j + e % 2, output_dim<Kv>(d, e))] =
              state.o[d][n][e];
    }
    if (lane_ == 0) free_stages_[warp_] = free_stage;
  }

  __device__ int rows_limit() const { return static_cast<int>(p_.rows.divisor); }
  __device__ int num_outputs() const { return p_.heads_per_cta * rows_limit() * kVectors; }

  __device__ Output output_of(const Item& item, int at) const {
    Output out;
    const int line = at / kVectors;
    out.dim = at % kVectors * 4;
    out.head = static_cast<int>(divide(static_cast<std::uint32_t>(line), p_.rows));
    out.row = line - out.head * rows_limit();
    out.target = row_target<Policy>(p_, item, out.head);
    return out;
  }

  __device__ float2 state_of(int warp, int row) const {
    return states_[warp * Policy::kRows + row];
  }
  __device__ float4 outputs_of(int warp, int row, int dim) const {
    const auto* stage =
        reinterpret_cast<const float*>(ring_of(warp) + free_stages_[warp] * Policy::kStageBytes);
    return *reinterpret_cast<const float4*>(stage + output_place<Policy>(row, dim));
  }
  __device__ std::int64_t partial_row(std::int64_t place, const Output& out) const {
    return (place * p_.heads_per_cta + out.head) * rows_limit() + out.row;
  }

  /// One thread, after a barrier of the CTA: releases what the CTA wrote before the barrier and
  /// acquires what the others did. The last to arrive leaves the counter at zero for the next run.
  __device__ void arrive(const Item& item) {
    std::int32_t* counter = p_.arrivals +
                            static_cast<std::int64_t>(item.chunk.first_place) * p_.units.divisor +
                            item.unit;
    const std::int32_t before = ptx::arrive_at(counter);
    *is_last_ = before == item.chunk.parts - 1 ? 1 : 0;
    if (*is_last_ != 0) *counter = 0;
  }

  /// All parts of the row. Threads beyond one an output share the parts; who takes which depends on
  /// their number alone, so the bits do not depend on who came last.
  __device__ void join(const Item& item) {
    constexpr int kBatch = 16;  // loads under way at once
    const int outputs = num_outputs();
    const int width = min(outputs, Policy::kThreads);
    const int sharers = Policy::kThreads / width;  // more than one only where one pass does it all
    const int share = static_cast<int>(threadIdx.x) / width;
    const int parts = item.chunk.parts;
    const std::int64_t first =
        static_cast<std::int64_t>(item.chunk.first_place) * p_.units.divisor + item.unit;
    __syncthreads();  // the published outputs have been read: their places are free
    for (int base = 0; base < outputs; base += width) {
      const Output out = output_of(item, base + static_cast<int>(threadIdx.x) % width);
      const bool works = share < sharers && out.head < p_.heads_per_cta &&
                         out.row < out.target.rows &&
                         (!Policy::kPadded || out.dim < p_.head_dim_vo);
      Joined joined;
      for (int done = share; works && done < parts; done += kBatch * sharers) {
        float2 states[kBatch];
        float4 values[kBatch];
        float top = joined.maximum;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          states[i] = make_float2(-INFINITY, 0.0f);
          values[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          const int part = done + i * sharers;
          if (part < parts) {
            const std::int64_t row =
                partial_row(first + std::int64_t{part} * p_.units.divisor, out);
            states[i] = __ldcg(p_.partial_state + row);
            values[i] = __ldcg(
                reinterpret_cast<const float4*>(p_.partial_o + row * Policy::kDimVo + out.dim));
          }
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) top = fmaxf(top, states[i].x);
        joined.rescale(top);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) joined.add(states[i].x, states[i].y, values[i]);
      }
      if (sharers > 1) {
        *meeting_place(static_cast<int>(threadIdx.x)) = joined;
        __syncthreads();
        for (int i = 1; share == 0 && i < sharers; ++i) {
          const Joined other = *meeting_place(static_cast<int>(threadIdx.x) + i * width);
          joined.rescale(fmaxf(joined.maximum, other.maximum));
          joined.add(other.maximum, other.sum, other.v);
        }
      }
      if (works && share == 0)
        write_output(p_, out.target, out.row, out.dim, joined.v, joined.maximum, joined.sum);
    }
  }

  __device__ std::int64_t mail_place(int id, int at) const {
    return static_cast<std::int64_t>(id) * num_outputs() + at;
  }

  /// This block's share of the row's outputs, from all parts. Lanes next to each other share the
  /// parts of an output; who takes which depends on their number alone.
  __device__ void collect(const Item& item, int id) {
    const int outputs = num_outputs();
    const int parts = item.chunk.parts;
    const int units = static_cast<int>(p_.units.divisor);
    const int first = id - item.chunk.part * units;
    const int share = (outputs + parts - 1) / parts;
    const int end = min((item.chunk.part + 1) * share, outputs);
    int sharers = 2;
    while (sharers < parts && sharers < 32) sharers *= 2;
    for (int base = item.chunk.part * share; base < end; base += Policy::kThreads / sharers) {
      const int at = base + static_cast<int>(threadIdx.x) / sharers;
      const Output out = output_of(item, min(at, outputs - 1));
      const bool works =
          at < end && out.row < out.target.rows && (!Policy::kPadded || out.dim < p_.head_dim_vo);
      Joined joined;
      for (int i = static_cast<int>(threadIdx.x) % sharers; works && i < parts; i += sharers) {
        const std::int64_t place = mail_place(first + i * units, at);
        float4 v;
        float2 state;
        ptx::receive(p_.mail_o + place, p_.mail_state + place, v, state);
        joined.rescale(fmaxf(joined.maximum, state.x));
        joined.add(state.x, state.y, v);
      }
      for (int step = sharers / 2; step > 0; step /= 2) {
        const Joined other = joined.of_lane(step);
        joined.rescale(fmaxf(joined.maximum, other.maximum));
        joined.add(other.maximum, other.sum, other.v);
      }
      if (works && static_cast<int>(threadIdx.x) % sharers == 0)
        write_output(p_, out.target, out.row, out.dim, joined.v, joined.maximum, joined.sum);
    }
  }

  /// In the free stage of the thread's warp.
  __device__ Joined* meeting_place(int thread) const {
    const int warp = thread / 32;
    return reinterpret_cast<Joined*>(ring_of(warp) + free_stages_[warp] * Policy::kStageBytes) +
           thread % 32;
  }

  const Params& p_;
  int warp_;
  int lane_;
  std::uint8_t* rings_;
  std::uint8_t* queries_;   ///< [warps]
  std::uint8_t* exchange_;  ///< [warps, two turns], of warps that share tiles
  float2* states_;
  int* free_stages_;  ///< [warps]
  int* claimed_;      ///< ItemQueue::claimed
  int* is_last_;
  WarpRole role_;
};

template <class Kv, class Policy>
__global__ void __launch_bounds__(Policy::kThreads, Policy::kCtasPerSm)
    paged_decode_kernel(const __grid_constant__ Params p) {
  if constexpr (Policy::kFits) DecodeKernel<Kv, Policy>(p, ptx::dynamic_shared<128>()).run();
  // Who waits for this kernel waits for the one beside it, too.
  if constexpr (Policy::kBeside) ptx::dependency_wait();
}

}  // namespace attune::kernels::paged_decode::sm80
