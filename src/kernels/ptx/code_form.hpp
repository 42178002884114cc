// The two forms that general CUDA kernels are compiled in (cmake/AttuneCuda.cmake), and which of
// them a card runs. For hosts too.
#pragma once

namespace attune::kernels::ptx {

struct CodeForm {
  int shared_per_sm = 0;  ///< bytes that kernels count on
  bool overlap = false;   ///< a kernel begins while the one before it in the stream ends
};

/// Machine code for Hopper, and PTX for every other card from compute capability 8.0 on: what the
/// least of them have.
inline constexpr CodeForm kHopperForm{.shared_per_sm = 228 * 1024, .overlap = true};
inline constexpr CodeForm kPortableForm{.shared_per_sm = 100 * 1024, .overlap = false};

/// `sm`: the card's compute capability, as 90.
[[nodiscard]] constexpr CodeForm code_form(int sm) {
  return sm == 90 ? kHopperForm : kPortableForm;
}

/// The form of the code that is being compiled. Emulated blocks are Hopper's. ATTUNE_PORTABLE_FORM:
/// the CMake option ATTUNE_CUDA_PORTABLE_FORM, with which cards say that they are of 8.9.
#if defined(ATTUNE_PORTABLE_FORM) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900)
inline constexpr CodeForm kThisForm = kPortableForm;
#else
inline constexpr CodeForm kThisForm = kHopperForm;
#endif

}  // namespace attune::kernels::ptx
