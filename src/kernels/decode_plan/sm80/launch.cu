#include "kernels/decode_plan/sm80/launch.hpp"

#include <string>

#include <cuda_runtime.h>

#include "base/cuda/status.hpp"
#include "base/math.hpp"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::decode_plan::sm80 {
namespace {

using attention::CutLevels;
using attention::CutPieces;
using attention::CutState;
using attention::kAllLevels;
using attention::kMostLevels;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kSharers = 8;  ///< lanes that write one request's chunks
constexpr int kSharedRows = 512;

/// Numbers summed over the block side by side.
template <int N>
struct Sums {
  std::int64_t of[N] = {};
};

struct Shared {
  std::int64_t meeting[3 * kWarps];
  std::int32_t fits[kWarps];
  std::int32_t short_chunks[kMostLevels + 1];  ///< of lower levels, once summed
  std::int32_t num_long;
};

/// Requests long enough for a share in every level. At least max(1, share / 2) tiles and half of
/// that and one, out of share * workers / units: three in two where shares are of three tiles,
/// fewer else.
constexpr std::int64_t most_long(const attention::CutRule& rule) {
  return base::ceil_div(std::int64_t{3} * rule.workers, std::int64_t{2} * rule.units) + 1;
}

constexpr std::size_t shared_bytes(const attention::CutRule& rule) {
  return sizeof(Shared) + sizeof(Row) * kSharedRows +
         sizeof(std::int32_t) * static_cast<std::size_t>(most_long(rule)) * (kMostLevels + 1);
}

/// A block of kThreads plans the batch. A thread has a run of neighbouring requests, so that prefix
/// sums over threads are prefix sums over requests.
class Planner {
 public:
  __device__ Planner(const Params& p, unsigned char* memory)
      : p_(p),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(thread_ / 32),
        shared_(*reinterpret_cast<Shared*>(memory)),
        rows_(p.num_requests <= kSharedRows ? reinterpret_cast<Row*>(memory + sizeof(Shared))
                                            : p.rows),
        long_rows_(
            reinterpret_cast<std::int32_t*>(memory + sizeof(Shared) + sizeof(Row) * kSharedRows)),
        long_chunks_(long_rows_ + most_long(p.rule)) {
    const int run = (p.num_requests + kThreads - 1) / kThreads;
    begin_ = min(thread_ * run, p.num_requests);
    end_ = min(begin_ + run, p.num_requests);
  }

  __device__ void run() {
    Sums<1> tiles;
    for (int r = begin_; r < end_; ++r) {
      Row& row = rows_[r];
      row.request = request(r);
      row.tiles = attention::tiles_of(row.request, p_.tile);
      tiles.of[0] += row.tiles;
    }
    if (thread_ <= kMostLevels) shared_.short_chunks[thread_] = 0;
    Sums<1> total;
    const Sums<1> before = scan(tiles, total);
    CutLevels levels = attention::factored(p_.rule, total.of[0]);
    if (attention::cuts_evenly(p_.rule, total.of[0], p_.num_requests))
      levels = {.count = 1, .size = even_size(total.of[0]), .even = true, .total = total.of[0]};
    count(levels, total.of[0] - before.of[0]);
    write(levels);
  }

 private:
  __device__ attention::DecodeRequest request(int r) const {
    const std::int64_t begin = p_.kv_indptr[r];
    const std::int64_t end = p_.kv_indptr[r + 1];
    const std::int64_t last = p_.kv_last_page_len[r];
    const std::int64_t length = end == begin ? 0 : (end - begin - 1) * p_.page_size + last;
    const bool sound = begin >= 0 && end >= begin && end <= p_.max_kv_entries &&
                       length <= p_.max_kv_len && last <= p_.page_size &&
                       (end == begin || last > 0);
    return attention::decode_request(p_.mask, r, sound ? static_cast<std::int32_t>(begin) : 0,
                                     sound ? length : 0, 0);
  }

  /// What the threads before this one have, and what all have. A barrier of the block.
  template <int N>
  __device__ Sums<N> scan(const Sums<N>& mine, Sums<N>& total) {
    Sums<N> upto = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2)
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const std::int64_t other = __shfl_up_sync(0xffffffffu, upto.of[n], step);
        if (lane_ >= step) upto.of[n] += other;
      }
    __syncthreads();
    if (lane_ == 31)
      for (int n = 0; n < N; ++n) shared_.meeting[n * kWarps + warp_] = upto.of[n];
    __syncthreads();
    Sums<N> before;
    total = {};
#pragma unroll
    for (int n = 0; n < N; ++n) {
      before.of[n] = upto.of[n] - mine.of[n];
      for (int w = 0; w < kWarps; ++w) {
        const std::int64_t of_warp = shared_.meeting[n * kWarps + w];
        if (w < warp_) before.of[n] += of_warp;
        total.of[n] += of_warp;
      }
    }
    return before;
  }

  /// The least size of even chunks: each warp tries one, until one is left.
  __device__ std::int64_t even_size(std::int64_t total) {
    attention::EvenSizes sizes = attention::even_sizes(p_.rule, total, p_.num_requests);
    while (sizes.low < sizes.high) {
      const std::int64_t step = (sizes.high - sizes.low + kWarps - 1) / kWarps;
      const std::int64_t mine = sizes.low + warp_ * step;
      std::int32_t chunks = 0;
      for (int r = lane_; r < p_.num_requests; r += 32)
        chunks += static_cast<std::int32_t>(attention::quotient(rows_[r].tiles + mine - 1, mine));
#pragma unroll
      for (int bits = 16; bits > 0; bits /= 2) chunks += __shfl_xor_sync(0xffffffffu, chunks, bits);
      __syncthreads();
      if (lane_ == 0) shared_.fits[warp_] = chunks <= p_.rule.workers / p_.rule.units ? 1 : 0;
      __syncthreads();
      int first = 0;  // that fits; larger ones do as well
      while (first < kWarps && shared_.fits[first] == 0) ++first;
      if (first < kWarps) sizes.high = min(sizes.high, sizes.low + first * step);
      if (first > 0) sizes.low = min(sizes.high, sizes.low + (first - 1) * step + 1);
    }
    return sizes.low;
  }

  /// Levels as the places suffice for, and every request's parts and places.
  __device__ void count(CutLevels& levels, std::int64_t left_at_begin) {
    enum { kPlaces, kShortChunks, kLong };
    Sums<3> before;
    for (;; --levels.count) {
      Sums<3> mine;
      std::int64_t left = left_at_begin;
      for (int r = begin_; r < end_; ++r) {
        const CutState s = attention::count_parts(levels, rows_[r].tiles, left);
        if (s.parts > 1) mine.of[kPlaces] += s.parts;
        if (s.level == kAllLevels)
          ++mine.of[kLong];
        else
          mine.of[kShortChunks] += s.parts;
        left -= s.tiles;
      }
      Sums<3> total;
      before = scan(mine, total);
      if (thread_ == 0) shared_.num_long = static_cast<std::int32_t>(total.of[kLong]);
      if (total.of[kPlaces] <= p_.rule.max_parts) break;
      if (levels.even) levels.count = 1;
    }
    std::int64_t left = left_at_begin;
    for (int r = begin_; r < end_; ++r) {
      Row& row = rows_[r];
      const CutState s = attention::count_parts(levels, row.tiles, left);
      row.level = s.level;
      row.parts = s.parts;
      row.first_place = static_cast<std::int32_t>(before.of[kPlaces]);
      row.first_chunk = static_cast<std::int32_t>(before.of[kShortChunks]);
      if (s.parts > 1) before.of[kPlaces] += s.parts;
      if (s.level == kAllLevels) {
        long_rows_[before.of[kLong]++] = r;
      } else {
        before.of[kShortChunks] += s.parts;
        atomicAdd(shared_.short_chunks + s.level + 1, s.parts);
      }
      left -= s.tiles;
    }
    __syncthreads();
  }

  [[nodiscard]] __device__ CutState state_of(const Row& row) const {
    return {
        .tiles = row.tiles, .level = row.level, .parts = row.parts, .first_place = row.first_place};
  }

  /// Longest first: at each level the pieces of long requests, then short ones. A level's short
  /// requests follow those of the levels before in the batch's order, too, so one sum places them.
  __device__ void write(const CutLevels& levels) {
    const int passes = max(levels.count, 1);
    const int num_long = shared_.num_long;
    for (int n = thread_; n < num_long; n += kThreads) {
      CutState s = state_of(rows_[long_rows_[n]]);
      for (int level = 0; level < passes; ++level) {
        const CutPieces pieces = attention::pieces_at(levels, level, s);
        long_chunks_[level * num_long + n] = pieces.count;
        s.at += pieces.tiles;
      }
    }
    if (thread_ == 0)
      for (int level = 1; level <= kMostLevels; ++level)
        shared_.short_chunks[level] += shared_.short_chunks[level - 1];
    __syncthreads();
    const int entries = passes * num_long;
    const int run = (entries + kThreads - 1) / kThreads;
    const int begin = min(thread_ * run, entries);
    const int end = min(begin + run, entries);
    Sums<1> mine;
    for (int e = begin; e < end; ++e) mine.of[0] += long_chunks_[e];
    Sums<1> total;
    auto at = static_cast<std::int32_t>(scan(mine, total).of[0]);
    for (int e = begin; e < end; ++e) {
      const std::int32_t pieces = long_chunks_[e];
      long_chunks_[e] = at;
      at += pieces;
    }
    __syncthreads();
    const auto of_long = static_cast<std::int32_t>(total.of[0]);
    for (int e = thread_ / kSharers; e < entries + p_.num_requests; e += kThreads / kSharers) {
      const bool is_long = e < entries;
      const Row row = rows_[is_long ? long_rows_[e % num_long] : e - entries];
      if (!is_long && row.level == kAllLevels) continue;
      CutState s = state_of(row);
      const int level = is_long ? e / num_long : row.level;
      for (int lower = 0; is_long && lower < level; ++lower) {
        const CutPieces pieces = attention::pieces_at(levels, lower, s);
        s.part += pieces.count;
        s.at += pieces.tiles;
      }
      const int next = (level + 1) * num_long;
      const std::int32_t first =
          is_long ? long_chunks_[e] + shared_.short_chunks[level]
                  : row.first_chunk + (next < entries ? long_chunks_[next] : of_long);
      const CutPieces pieces = attention::pieces_at(levels, level, s);
      for (int i = thread_ % kSharers; i < pieces.count; i += kSharers)
        put(first + i, attention::chunk_of(levels, row.request, s, pieces, i));
    }
    if (thread_ != 0) return;
    const std::int32_t chunks = of_long + shared_.short_chunks[kMostLevels];
    *p_.work = {.num_chunks = chunks, .num_items = chunks * p_.rule.units};
  }

  __device__ void put(std::int32_t at, const attention::DecodeChunk& chunk) const {
    alignas(16) const attention::DecodeChunk copy = chunk;
    const auto* from = reinterpret_cast<const int4*>(&copy);
    auto* to = reinterpret_cast<int4*>(p_.chunks + at);
#pragma unroll
    for (int i = 0; i < 3; ++i) to[i] = from[i];
  }

  const Params& p_;
  int thread_;
  int lane_;
  int warp_;
  Shared& shared_;
  Row* rows_;
  std::int32_t* long_rows_;    ///< [most_long]
  std::int32_t* long_chunks_;  ///< [levels, long requests]: their number, then those before them
  int begin_ = 0;              ///< the thread's requests
  int end_ = 0;
};

__global__ void __launch_bounds__(kThreads) decode_plan_kernel(const __grid_constant__ Params p) {
  Planner(p, ptx::dynamic_shared<128>()).run();
}

}  // namespace

std::int64_t rows_wanted(std::int64_t num_requests) {
  return num_requests > kSharedRows ? num_requests : 0;
}

Status launch(const Params& params, cudaStream_t stream) {
  const std::size_t shared = shared_bytes(params.rule);
  const void* kernel = ptx::kernel_handle(&decode_plan_kernel);
  constexpr std::size_t kAlwaysThere = 48 * 1024;
  cudaError_t error = cudaSuccess;
  if (shared > kAlwaysThere)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared));
  void* arguments[] = {const_cast<Params*>(&params)};
  if (error == cudaSuccess)
    error = cudaLaunchKernel(kernel, dim3(1), dim3(kThreads), arguments, shared, stream);
  return base::cuda::call_status(error, "decode_plan");
}

}  // namespace attune::kernels::decode_plan::sm80
