// A token of the fp8 latent cache (KvLayout::mla_latent_fp8), as writers and kernels share it (layer
// attention; a kernel may include it):
//
//   512 latents in e4m3 | 4 fp32 scales, one per 128 of them | 64 rope columns in bf16
//
// latent = e4m3 * scale. Our writers use the least power of two from 2^-13 on with which the largest
// of a block does not exceed 448, so that a reader that rounds scales to bf16 loses nothing.
#pragma once

namespace attune::attention::packed_latent {

inline constexpr int kLatents = 512;
inline constexpr int kRope = 64;
inline constexpr int kScaleBlock = 128;
inline constexpr int kScales = kLatents / kScaleBlock;

/// Bytes from a token's first.
inline constexpr int kScalesAt = kLatents;
inline constexpr int kRopeAt = kScalesAt + 4 * kScales;
inline constexpr int kTokenBytes = kRopeAt + 2 * kRope;
static_assert(kTokenBytes == 656);

inline constexpr int kLeastScaleExponent = -13;

}  // namespace attune::attention::packed_latent
