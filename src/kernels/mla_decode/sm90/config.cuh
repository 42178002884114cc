// Shared memory, barriers and roles of the Hopper latent kernel.
#pragma once

#include <cstdint>

#include "kernels/mla_decode/params.hpp"
#include "kernels/mla_decode/sm90/policy.hpp"
#include "kernels/ptx/mbarrier.cuh"

namespace attune::kernels::mla_decode::sm90 {

// Tiles are panels of 64 columns (128 bytes) by 64 rows, as the copy engine's 128-byte swizzle
// leaves them: eight latent panels, then the rope panel.
inline constexpr int kPanel = 64 * 64;  ///< elements
inline constexpr int kLatentPanels = kDimVo / 64;
inline constexpr int kHalfPanels = kLatentPanels / 2;
inline constexpr int kRopePanel = kLatentPanels;
inline constexpr int kPanels = kDimQk / 64;
inline constexpr int kStages = 2;

inline constexpr int kConsumers =
    256;  ///< two warpgroups, each with one half of the output columns

/// Producer threads, and what they and the consumers hold in registers. What the launch allots is
/// threads times the cap at entry; asking for more than that hangs.
template <int Producers, int OfConsumer, int OfProducer>
struct Roles {
  static constexpr int kProducers = Producers;
  static constexpr int kThreads = kConsumers + Producers;
  static constexpr int kOfConsumer = OfConsumer;
  static constexpr int kOfProducer = OfProducer;
  static_assert(kConsumers * OfConsumer + Producers * OfProducer <=
                kThreads * (65536 / kThreads / 8 * 8));
};

/// Pieces in which a key tile arrives and is given back, each with its own barriers, so that
/// products start on the first: the rope panel, then pairs of panels.
inline constexpr int kRopePiece = 0;
inline constexpr int kPieces = 1 + kLatentPanels / 2;

template <class Element>
struct Shared {
  alignas(1024) Element q[kLatentPanels][kPanel];
  /// Probabilities of the tile in each stage, from the warpgroup that made them to the other. In
  /// p[0] a new item's ninth query panel arrives, and stays until both have it in registers; a part
  /// of a cut strip goes through both on its way out.
  alignas(1024) Element p[kStages][kPanel];
  alignas(1024) Element k[kStages][kPanels][kPanel];

  float maximum[kStages][kRows];  ///< running, after the tile in the stage; base 2
  /// Of the tiles a warpgroup made probabilities of; items take turns, so that nobody overwrites
  /// what the other still reads.
  float sum[2][2][kRows];

  std::int32_t arrival;  ///< at the item's meeting: 0 = first

  ptx::Mbarrier q_full;   ///< the latent panels
  ptx::Mbarrier q_empty;  ///< after the item's last scores
  ptx::Mbarrier rope_full;
  ptx::Mbarrier rope_empty;  ///< after its last probabilities, when `arrival` has been read
  ptx::Mbarrier drawn;       ///< `arrival` is there
  ptx::Mbarrier k_full[kStages][kPieces];
  ptx::Mbarrier k_empty[kStages][kPieces];
  ptx::Mbarrier k_raw[kStages][kLatentPanels / 2];  ///< packed latents, to be widened in place
};
static_assert(sizeof(Shared<std::uint16_t>) <= 227 * 1024);

/// Named barriers (0 is __syncthreads).
inline constexpr int kReadyBarrier = 1;      ///< + stage: its probabilities and maximum are there
inline constexpr int kWarpgroupBarrier = 3;  ///< + warpgroup: its own four warps
inline constexpr int kConsumerBarrier = 5;   ///< both warpgroups

}  // namespace attune::kernels::mla_decode::sm90
