// The shipped kernels of linear attention, strongest first (layer kernels).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/linear/convolution.hpp"
#include "kernels/linear/params.hpp"

namespace attune::kernels::linear {

/// Instruction sets by the words of --force-isa.
enum class Isa : std::uint8_t { scalar, avx2, avx512, avx512_bf16 };

struct Kernel {
  Isa isa = Isa::scalar;
  void (*run)(const Params& params, const Item& item, float* scratch) = nullptr;
  /// Floats of scratch memory a thread needs for these params.
  std::int64_t (*scratch_floats)(const Params& params) = nullptr;

  /// A convolution as a layer of its own, channels [first_channel, end_channel).
  void (*convolve)(const ConvolutionParams& params, const Item& item, int first_channel,
                   int end_channel, float* scratch) = nullptr;
  /// Floats of scratch memory a thread needs for that many channels.
  std::int64_t (*convolution_floats)(int channels) = nullptr;
};

extern const Kernel kScalarKernel;
extern const Kernel kAvx2Kernel;
extern const Kernel kAvx512Kernel;
extern const Kernel kAvx512Bf16Kernel;

/// Every kernel of this build, strongest first.
[[nodiscard]] std::span<const Kernel* const> kernels();

}  // namespace attune::kernels::linear
