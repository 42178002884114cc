// Shared memory, barriers and roles of the Hopper latent kernel for queries and keys in e4m3.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/mla_decode/sm90/config.cuh"

namespace attune::kernels::mla_decode::sm90::e4m3 {

// Panels of 128 columns (as many bytes) by 64 rows, as the copy engine's 128-byte swizzle leaves
// them: four of latents, then the rope columns and as many zeros.
inline constexpr int kColumns = 128;  ///< of a panel
inline constexpr int kPanelBytes = 64 * kColumns;
inline constexpr int kLatentPanels = kDimVo / kColumns;
inline constexpr int kRopePanel = kLatentPanels;
inline constexpr int kPanels = kLatentPanels + 1;
inline constexpr int kStages = 4;
inline constexpr int kGroups = 2;  ///< warpgroups that take turns at probabilities
inline constexpr int kGiven = 3;   ///< tiles whose probabilities are about

using Roles = sm90::Roles<128, 240, 24>;

struct Shared {
  alignas(1024) std::uint8_t q[kPanels][kPanelBytes];
  alignas(1024) __half p[kGiven][kRows * kKeys];  ///< probabilities, a row's 64 keys side by side
  alignas(1024) std::uint8_t k[kStages][kPanels][kPanelBytes];

  // Beside the probabilities: the running maxima (base 2), what outputs are times before these are
  // added, and whether any of a warp's rows has such a factor.
  float maximum[kGiven][kRows];
  float factor[kGiven][kRows];
  alignas(16) std::int32_t moved[kGiven][4];

  float sum[kGroups][kRows];  ///< of the tiles a warpgroup made probabilities of
  float own[kRows];           ///< what an item's outputs are times in the end
  float other[kRows];         ///< … and those of the part it meets
  std::int32_t arrival;       ///< at the item's meeting: 0 = first

  ptx::Mbarrier q_full;
  ptx::Mbarrier q_empty;  ///< after the item's last scores
  ptx::Mbarrier drawn;    ///< `arrival` is there
  ptx::Mbarrier read;     ///< … and has been read
  ptx::Mbarrier k_full[kStages];
  ptx::Mbarrier k_empty[kStages];
};
static_assert(sizeof(Shared) <= 227 * 1024);

}  // namespace attune::kernels::mla_decode::sm90::e4m3
