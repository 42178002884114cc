// A decode kernel with its plan and parameters, as the backend makes them, and its launch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "bench/cuda/decode_problem.cuh"
#include "kernels/paged_decode/sm80/kernel.cuh"
#include "plan/decode_work.hpp"

namespace attune::bench {

using namespace kernels::paged_decode::sm80;

struct Kernel {
  const char* name;
  Kv kv;
  int dim_qk, dim_vo, rows, tile, warps, ctas_per_sm, shared_bytes, stages;
  void (*function)(Params);
  void (*traced)(Params, ulonglong2*);
};

__device__ inline unsigned long long now_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

/// The kernel with the time each CTA began and ended.
template <class T, class P>
__global__ void __launch_bounds__(P::kThreads, P::kCtasPerSm)
    traced_kernel(const __grid_constant__ Params p, ulonglong2* times) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  const auto begin = now_ns();
  DecodeKernel<T, P>(p, shared).run();
  if (threadIdx.x == 0) times[blockIdx.x] = make_ulonglong2(begin, now_ns());
}

template <class T, class P>
Kernel make(const char* name, Kv kv) {
  constexpr int kShared = P::shared_bytes(228 * 1024);
  Kernel k{name,
           kv,
           P::kDimQk,
           P::kDimVo,
           P::kRows,
           P::kTile,
           P::kWarps,
           P::kCtasPerSm,
           kShared,
           P::kStages,
           paged_decode_kernel<T, P>,
           nullptr};
  check(cudaFuncSetAttribute(k.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
        name);
  int resident = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, k.function, P::kThreads, kShared),
        name);
  if constexpr (P::kDimQk == 128 && P::kRows == 8) {
    k.traced = traced_kernel<T, P>;
    check(cudaFuncSetAttribute(k.traced, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
          name);
  }
  if (resident < P::kCtasPerSm) std::printf("%s: only %d CTAs a SM\n", name, resident);
  return k;
}

struct Launchable {
  Params params;
  int grid = 0;
  attention::CutRule rule;
  plan::DecodeRules rules;
  plan::DecodeList list;
  Array<std::uint8_t> workspace;  ///< work, chunks
  Array<float> partial_o;
  Array<float2> partial_state;
  Array<float4> mail_o;
  Array<float2> mail_state;
  Array<std::int32_t> counters;
};

/// How a batch is cut; in tokens.
struct Cut {
  int heads_per_cta = 1;
  int min_tokens = 256;
  int even_tokens = 0;
  int least_even_tokens = 64;
};

inline int num_sms() {
  int n = 0;
  check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0), "SMs");
  return n;
}

/// What the kernel of `l` is given: `d`'s tensors, the list and the room for parts.
inline void set_params(const Kernel& kernel, const Data& d, const plan::DecodeShape& shape,
                       Launchable& l) {
  const int group = d.p.qo_heads / d.p.kv_heads;
  Params& p = l.params;
  p.q = d.q.get();
  p.q_token_stride = std::int64_t{d.p.qo_heads} * d.p.dim_qk;
  p.q_head_stride = d.p.dim_qk;
  p.o = d.o.get();
  p.o_token_stride = std::int64_t{d.p.qo_heads} * d.p.dim_vo;
  p.o_head_stride = d.p.dim_vo;
  p.lse = d.lse.get();
  p.lse_token_stride = d.p.qo_heads;
  p.lse_head_stride = 1;
  p.q_element = p.o_element = d.p.kv == Kv::f16 ? Element::f16 : Element::bf16;
  p.kv.k = d.k.get();
  p.kv.v = d.v.get();
  p.kv.k_page_stride = std::int64_t{d.p.page_size} * d.p.kv_heads * d.p.dim_qk;
  p.kv.v_page_stride = std::int64_t{d.p.page_size} * d.p.kv_heads * d.p.dim_vo;
  p.kv.k_token_stride = d.p.hnd ? d.p.dim_qk : d.p.kv_heads * d.p.dim_qk;
  p.kv.v_token_stride = d.p.hnd ? d.p.dim_vo : d.p.kv_heads * d.p.dim_vo;
  p.kv.k_head_stride = d.p.hnd ? d.p.page_size * d.p.dim_qk : d.p.dim_qk;
  p.kv.v_head_stride = d.p.hnd ? d.p.page_size * d.p.dim_vo : d.p.dim_vo;
  p.kv.indptr = d.d_indptr.get();
  p.kv.indices = d.d_indices.get();
  p.kv.page_size = d.p.page_size;
  p.page = FastDivisor(static_cast<std::uint32_t>(d.p.page_size));
  p.work = reinterpret_cast<const attention::DecodeWork*>(l.workspace.get());
  p.chunks = reinterpret_cast<const attention::DecodeChunk*>(p.work + 1);
  p.listed_before = true;
  p.partial_o = l.partial_o.get();
  p.partial_state = l.partial_state.get();
  p.claims = l.counters.get();
  p.arrivals = l.counters.get() + 1;
  p.num_kv_heads = d.p.kv_heads;
  p.gqa_group_size = group;
  p.row_blocks = FastDivisor(static_cast<std::uint32_t>(shape.row_blocks));
  p.rows = FastDivisor(static_cast<std::uint32_t>(std::min(kernel.rows, group)));
  p.heads_per_cta = shape.heads_per_cta;
  p.units = FastDivisor(static_cast<std::uint32_t>(shape.units));
  p.scale_log2 = kLog2E / std::sqrt(static_cast<float>(d.p.dim_qk)) * (d.p.scales ? 0.75f : 1.0f);
  p.v_scale = d.p.scales ? 1.25f : 1.0f;
  p.soft_cap_log2 = d.p.soft_cap * kLog2E;
  p.sinks = d.p.sinks ? d.sinks.get() : nullptr;
  p.alibi_slopes = d.p.alibi ? d.slopes.get() : nullptr;
  p.mail_o = l.mail_o.get();
  p.mail_state = l.mail_state.get();
}

inline Launchable prepare(const Kernel& kernel, const Data& d, const Cut& cut) {
  Launchable l;
  const int group = d.p.qo_heads / d.p.kv_heads;
  l.grid = num_sms() * kernel.ctas_per_sm;
  const plan::DecodeShape shape =
      plan::decode_shape(d.p.kv_heads, group, kernel.rows, cut.heads_per_cta);
  const int max_parts = std::max(2, 16 * l.grid / shape.units);
  l.rule = {.workers = l.grid,
            .units = shape.units,
            .max_chunks = static_cast<int>(d.p.lens.size()) + max_parts,
            .max_parts = max_parts,
            .min_tiles = std::max(1, cut.min_tokens / kernel.tile),
            .even_tiles = cut.even_tokens / kernel.tile,
            .least_even_tiles = std::max(1, cut.least_even_tokens / kernel.tile)};
  l.rules = {.mask = {.causal = true, .window_left = d.p.window_left}};
  plan::list_decode_work(d.view, l.rules, l.rule, kernel.tile, {}, l.list);
  std::vector<std::uint8_t> image(sizeof(l.list.work) +
                                  l.list.chunks.size() * sizeof(attention::DecodeChunk));
  std::memcpy(image.data(), &l.list.work, sizeof(l.list.work));
  std::memcpy(image.data() + sizeof(l.list.work), l.list.chunks.data(),
              image.size() - sizeof(l.list.work));
  l.workspace = Array<std::uint8_t>(image);
  const std::size_t items = std::size_t{1} * max_parts * shape.units;
  const std::size_t places = items * shape.heads_per_cta * kernel.rows;
  l.partial_o = Array<float>(places * d.p.dim_vo);
  l.partial_state = Array<float2>(places);
  l.counters = Array<std::int32_t>(items + 1);
  l.counters.fill_bytes(0);

  // Handed over where each block has a part at most.
  if (static_cast<int>(d.p.lens.size()) < l.grid / shape.units) {
    const std::size_t mail =
        std::size_t{1} * l.grid * shape.heads_per_cta * kernel.rows * d.p.dim_vo / 4;
    l.mail_o = Array<float4>(mail);
    l.mail_state = Array<float2>(mail);
    l.mail_o.fill_bytes(0xff);
    l.mail_state.fill_bytes(0xff);
  }
  set_params(kernel, d, shape, l);
  return l;
}

inline void launch(const Kernel& kernel, const Launchable& l, cudaStream_t stream,
                   bool overlap = false) {
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(l.grid);
  config.blockDim = static_cast<unsigned>(32 * kernel.warps);
  config.dynamicSmemBytes = static_cast<std::size_t>(kernel.shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (overlap) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (l.params.mail_o != nullptr) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  check(cudaLaunchKernelEx(&config, kernel.function, l.params), kernel.name);
}

/// How the backend cuts a row (backends/shared/cuda/paged_planner.cpp).
inline Cut backend_cut(const Problem& p) {
  const int scale = 2 / bytes_of(p.kv);  // its rules are in bytes
  const int rows_a_cta = static_cast<int>(p.lens.size()) * p.kv_heads / num_sms();
  return {bytes_of(p.kv) == 1 && rows_a_cta >= 6 ? 2 : 1, 512 * scale, 4096 * scale, 64 * scale};
}

}  // namespace attune::bench
