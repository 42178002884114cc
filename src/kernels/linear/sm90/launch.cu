#include "kernels/linear/sm90/launch.hpp"

#include <algorithm>
#include <string>

#include <cuda_runtime.h>

#include "base/cuda/status.hpp"
#include "base/math.hpp"
#include "kernels/linear/sm90/channel_scores.cuh"
#include "kernels/linear/sm90/convolution.cuh"
#include "kernels/linear/sm90/fork.cuh"
#include "kernels/linear/sm90/instances.hpp"
#include "kernels/linear/sm90/prepare.cuh"
#include "kernels/linear/sm90/recurrent.cuh"
#include "kernels/linear/sm90/recurrent_stream.cuh"
#include "kernels/linear/sm90/scores.cuh"
#include "kernels/ptx/launch.cuh"

namespace attune::kernels::linear::sm90 {
namespace {

Status failed(cudaError_t error, const char* kernel) {
  return base::cuda::call_status(error, std::string("linear ") + kernel);
}

Status launched(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? Status{} : failed(error, kernel);
}

cudaError_t allow_shared(const void* kernel, std::size_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

struct ScoresKernels {
  PromptKernel alone;     ///< ahead of scan
  PromptKernel beside{};  ///< not of kda
};

template <bool Grouped>
ScoresKernels scores_of() {
  using Kernel = Scores<128, false, Grouped>;
  constexpr std::size_t kShared = sizeof(typename Kernel::Shared);
  return {.alone = {&scores_kernel<128, Grouped>, Kernel::kThreads, kShared},
          .beside = {&scores_beside_kernel<128, Grouped>, Kernel::kThreads * Kernel::kAtOnce,
                     kShared * Kernel::kAtOnce}};
}

ScoresKernels scores_by_channel() {
  using Kernel = ChannelScores<128>;
  return {.alone = {&channel_scores_kernel<128>, Kernel::kThreads, sizeof(Kernel::Shared)}};
}

ScoresKernels scores_of(const PromptParams& d) {
  if (d.p.family == Family::kda) return scores_by_channel();
  return d.p.num_v_heads == d.key_heads ? scores_of<false>() : scores_of<true>();
}

dim3 grid_of(std::int64_t x, int y = 1, int z = 1) {
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
}

/// For a launch that nothing runs beside.
PromptParams alone(PromptParams d) {
  d.ready = nullptr;
  return d;
}

Status start_scores(const PromptParams& d, cudaStream_t stream) {
  if (d.num_chunks == 0) return {};
  const PromptKernel scores = scores_of(d).alone;
  ptx::launch(scores.function, grid_of(d.num_chunks, d.key_heads),
              dim3(static_cast<unsigned>(scores.threads)), scores.shared_bytes, stream, d);
  return launched("scores");
}

/// Where it waits for `ready`, before the kernel ahead in the stream has ended.
Status start_scan(const PromptParams& d, int slice, cudaStream_t stream) {
  const PromptKernel scan = scan_of(d.p.family, d.key_columns, slice);
  if (scan.function == nullptr || d.value_columns % slice != 0)
    return {StatusCode::internal, "linear scan: no kernel for " + std::to_string(d.key_columns) +
                                      " key columns and slices of " + std::to_string(slice)};
  cudaLaunchConfig_t config{};
  config.gridDim =
      grid_of(std::int64_t{d.num_sequences} * d.p.num_v_heads * (d.value_columns / slice));
  config.blockDim = dim3(static_cast<unsigned>(scan.threads));
  config.dynamicSmemBytes = scan.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = d.ready != nullptr ? 1 : 0;
  void* arguments[] = {const_cast<PromptParams*>(&d)};
  (void)cudaLaunchKernelExC(&config, ptx::kernel_handle(scan.function), arguments);
  return launched("scan");
}

template <int KeyColumns, bool ByChannel, int Taps>
void start_recurrent(const DecodeParams& d, cudaStream_t stream) {
  using Kernel = Recurrent<KeyColumns, ByChannel, Taps>;
  ptx::launch(
      &recurrent_kernel<KeyColumns, ByChannel, Taps>,
      grid_of(d.num_spans, base::ceil_div(d.p.dv, Kernel::kRows * d.tiles), d.p.num_v_heads),
      dim3(Kernel::kThreads), sizeof(typename Kernel::Shared), stream, d);
}

template <bool ByChannel>
using DefaultStream = StateStream<ByChannel, 4>;

template <int KeyColumns, bool ByChannel>
void start_recurrent(const DecodeParams& d, cudaStream_t stream) {
  if (d.p.conv_kernel == 0) {
    start_recurrent<KeyColumns, ByChannel, 0>(d, stream);
  } else if (d.p.conv_kernel <= 4) {
    start_recurrent<KeyColumns, ByChannel, 4>(d, stream);
  } else {
    start_recurrent<KeyColumns, ByChannel, kMaxTaps>(d, stream);
  }
}

}  // namespace

Status prepare_kernels() {
  cudaError_t error = cudaSuccess;
  for (const ScoresKernels& scores : {scores_of<false>(), scores_of<true>(), scores_by_channel()})
    for (const PromptKernel& kernel : {scores.alone, scores.beside})
      if (error == cudaSuccess && kernel.function != nullptr)
        error = allow_shared(ptx::kernel_handle(kernel.function), kernel.shared_bytes);
  if (error == cudaSuccess)
    error = allow_shared(ptx::kernel_handle(&state_stream_kernel<true, 4>),
                         sizeof(DefaultStream<true>::Shared));
  if (error == cudaSuccess)
    error = allow_shared(ptx::kernel_handle(&state_stream_kernel<false, 4>),
                         sizeof(DefaultStream<false>::Shared));
  each_scan(
      [](const PromptKernel& kernel, void* first_error) {
        auto& kept = *static_cast<cudaError_t*>(first_error);
        if (kept == cudaSuccess)
          kept = allow_shared(ptx::kernel_handle(kernel.function), kernel.shared_bytes);
      },
      &error);
  if (error == cudaSuccess) return {};
  return failed(error, "shared memory");
}

Status launch_prepare(const PromptParams& d, cudaStream_t stream) {
  const std::int64_t units = 2 * d.key_heads + d.p.num_v_heads;
  const auto start = [&](auto kernel) {
    ptx::launch(kernel,
                grid_of(units, std::min(d.num_chunks, kPrepareChunks),
                        base::ceil_div(d.num_chunks, kPrepareChunks)),
                dim3(kPrepareThreads), 0, stream, d);
  };
  if (d.p.conv_kernel == 0) {
    start(&prepare_kernel<0>);
  } else if (d.p.conv_kernel <= 4) {
    start(&prepare_kernel<4>);
  } else {
    start(&prepare_kernel<kMaxTaps>);
  }
  return launched("prepare");
}

Status launch_gates(const PromptParams& d, cudaStream_t stream) {
  ptx::launch(&gates_kernel,
              grid_of(d.num_chunks, base::ceil_div(d.p.num_v_heads, kGatesThreads / 32)),
              dim3(kGatesThreads), 0, stream, d);
  return launched("gates");
}

Status launch_scores(const PromptParams& d, cudaStream_t stream) {
  return start_scores(alone(d), stream);
}

Status launch_scan(const PromptParams& d, int slice, cudaStream_t stream) {
  return start_scan(alone(d), slice, stream);
}

Status launch_scores_and_scan(const PromptParams& d, int slice, cudaStream_t stream) {
  if (d.beside == 0) {
    if (Status s = launch_scores(d, stream); !s.ok()) return s;
    return launch_scan(d, slice, stream);
  }
  const PromptKernel scores = scores_of(d).beside;
  ptx::launch(scores.function, grid_of(d.beside), dim3(static_cast<unsigned>(scores.threads)),
              scores.shared_bytes, stream, d);
  if (Status s = launched("scores"); !s.ok()) return s;
  return start_scan(d, slice, stream);
}

Status launch_prompts(const PromptParams& d, bool copy_rows, int slice, cudaStream_t stream) {
  if (d.num_sequences == 0) return {};
  if (copy_rows)
    if (Status s = launch_prepare(d, stream); !s.ok()) return s;
  if (has_delta_rule(d.p.family)) return launch_scores_and_scan(d, slice, stream);
  if (Status s = launch_gates(d, stream); !s.ok()) return s;
  return launch_scan(d, slice, stream);
}

Status launch_recurrent(const DecodeParams& d, cudaStream_t stream) {
  if (d.num_spans == 0) return {};
  if (d.staying > 0) {
    const auto start = [&](auto kernel, int threads, std::size_t shared_bytes) {
      ptx::launch(kernel, grid_of(d.staying), dim3(static_cast<unsigned>(threads)), shared_bytes,
                  stream, d);
    };
    if (d.p.family == Family::kda) {
      start(&state_stream_kernel<true, 4>, DefaultStream<true>::kThreads,
            sizeof(DefaultStream<true>::Shared));
    } else {
      start(&state_stream_kernel<false, 4>, DefaultStream<false>::kThreads,
            sizeof(DefaultStream<false>::Shared));
    }
    return launched("recurrent");
  }
  if (d.p.family == Family::kda) {
    start_recurrent<128, true>(d, stream);
  } else if (d.p.dk <= 128) {
    start_recurrent<128, false>(d, stream);
  } else {
    start_recurrent<256, false>(d, stream);
  }
  return launched("recurrent");
}

Status launch_convolution(const ConvolutionParams& d, cudaStream_t stream) {
  if (d.num_spans == 0 || d.most_tokens == 0) return {};
  ptx::launch(&convolution_kernel,
              grid_of(d.num_spans, base::ceil_div(d.channels, kConvolutionThreads),
                      base::ceil_div(d.most_tokens, kConvolutionTokens)),
              dim3(kConvolutionThreads), 0, stream, d);
  return launched("convolution");
}

Status launch_advance(const ConvolutionParams& d, cudaStream_t stream) {
  if (d.num_spans == 0 || d.kernel < 2) return {};
  const auto start = [&](auto kernel, int threads) {
    ptx::launch(kernel, grid_of(d.num_spans, base::ceil_div(threads, kConvolutionThreads)),
                dim3(kConvolutionThreads), 0, stream, d);
  };
  if (d.wide_advance) {
    start(&advance_eight_kernel, d.channels / 8);
  } else {
    start(&advance_kernel, d.channels);
  }
  return launched("advance");
}

Status launch_fork_history(const ForkParams& d, cudaStream_t stream) {
  if (d.num_spans == 0 || d.convolution.kernel < 2) return {};
  ptx::launch(&fork_history_kernel,
              grid_of(d.num_spans, base::ceil_div(d.convolution.channels, kConvolutionThreads)),
              dim3(kConvolutionThreads), 0, stream, d);
  return launched("fork_history");
}

Status launch_fork_state(const ForkParams& d, cudaStream_t stream) {
  if (d.num_spans == 0 || d.elements == 0) return {};
  const auto pieces = static_cast<int>(base::ceil_div(d.elements, std::int64_t{kForkElements}));
  ptx::launch(&fork_state_kernel, grid_of(d.num_spans, pieces), dim3(kForkThreads), 0, stream, d);
  return launched("fork_state");
}

}  // namespace attune::kernels::linear::sm90
