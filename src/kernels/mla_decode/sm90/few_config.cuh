// Shared memory and barriers of the Hopper latent kernel for few rows.
#pragma once

#include <cstdint>

#include "kernels/mla_decode/sm90/config.cuh"

namespace attune::kernels::mla_decode::sm90::few {

inline constexpr int kConsumers = 128;  ///< one warpgroup

/// Panels of keys. Beside 16 rows two tiles are as fast as what would fit, and leave room for a
/// block of the merge kernel to be there when the rows are; beside 32 all that fit are 4 % faster.
template <int Rows>
inline constexpr int kSlots = Rows <= 16 ? 18 : 22;

template <class Element, int Rows>
struct Shared {
  /// A ring of panels, a tile's one behind another: rope, then latents. A panel's room goes back
  /// when its product has read it, whatever the rest of its tile does.
  alignas(1024) Element k[kSlots<Rows>][kPanel];
  alignas(1024) Element q[kPanels][Rows * 64];
  alignas(1024) Element p[Rows * 64];  ///< probabilities, a row's 64 keys side by side

  float maximum[4][Rows];  ///< of a warp's keys
  /// Of a warp's keys; items take turns, so that no warp overwrites what another still reads.
  float sum[2][4][Rows];
  std::int32_t arrival;  ///< at the item's meeting: 0 = first

  ptx::Mbarrier q_full;
  ptx::Mbarrier q_empty;  ///< after the item's last scores
  ptx::Mbarrier drawn;    ///< `arrival` is there
  ptx::Mbarrier read;     ///< … and has been read
  ptx::Mbarrier k_full[kSlots<Rows>];
  ptx::Mbarrier k_empty[kSlots<Rows>];
};
static_assert(sizeof(Shared<std::uint16_t, 16>) <= 227 * 1024);
static_assert(sizeof(Shared<std::uint16_t, 32>) <= 227 * 1024);

inline constexpr int kGroupBarrier = 1;  ///< named: + warpgroup

}  // namespace attune::kernels::mla_decode::sm90::few
