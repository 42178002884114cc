// Tiles, shared memory and barriers of the Hopper prefill kernel.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/ragged_prefill/sm90/params.hpp"

namespace attune::kernels::ragged_prefill::sm90 {

/// How the softmax spends its instructions.
///   kPolynomial: of every 16 exponentials, how many run as polynomials on the FMA pipe instead of
///     the special function unit (FlashAttention-4's answer to 16 exponentials a clock). On Hopper
///     every share measured slower than none: docs/performance/cuda-prefill.md.
///   kLazyRescale: the running maximum, and with it the output, moves only when the new maximum
///     exceeds it by more than 8 in log2: probabilities stay below 2^8, the output is the same.
template <int Polynomial, bool LazyRescale>
struct Softmax {
  static constexpr int kPolynomial = Polynomial;
  static constexpr bool kLazyRescale = LazyRescale;
};

/// How keys and values reach shared memory: boxes of the copy engine (ragged rows, or pages of a
/// multiple of 8 tokens), or 16-byte gathers (any page). Widened: fp8 of any page through
/// registers, where e4m3 becomes fp16. Blocks: boxes of pages again, of the key tiles alone that
/// some row of the item keeps, each row its own (docs/decisions/0013-block-sparse.md).
enum class KvLoad { boxes, gather, widened, blocks };

/// How a finished tile leaves: through the copy engine from the tile's own query rows or from
/// memory of its own, or from registers by ordinary stores. Tiles that end with their request
/// always use ordinary stores. States: one level of a shared prefix, in fp32 at rows of the item's
/// own, to be joined with others; such a kernel lets the next one start beside it.
enum class Output { in_queries, own_memory, registers, states };

/// Where the sums of a row's probabilities come from: columns of ones behind the values, which cost
/// tensor cores 8 columns of P V and the warps nothing, or additions, for kernels whose products
/// and the power they draw are the bound.
enum class RowSums { by_products, by_additions };

/// Sizes of one kernel, chosen so that everything fits 227 KiB of shared memory and the registers.
/// Each of the consumer warpgroups has 64 query rows.
template <int Keys, int Warpgroups, int QueryStages, int KeyStages, int ValueStages,
          Output Way = Output::in_queries, RowSums Sums = RowSums::by_products>
struct Tiles {
  static constexpr int kKeys = Keys;
  static constexpr int kWarpgroups = Warpgroups;
  static constexpr int kQueryStages = QueryStages;
  static constexpr int kKeyStages = KeyStages;
  static constexpr int kValueStages = ValueStages;
  static constexpr Output kOutput = Way;
  static constexpr RowSums kRowSums = Sums;
};

/// Element: of the products; Outer: of q and o.
template <class Element_, int HeadDimQk, int HeadDimVo, class T, class Softmax_,
          KvLoad Load = KvLoad::boxes, class Outer_ = Element_>
struct Config {
  using Element = Element_;
  using Outer = Outer_;
  using Rule = Softmax_;
  static constexpr int kHeadDimQk = HeadDimQk;
  static constexpr int kHeadDimVo = HeadDimVo;
  static constexpr int kKeyTile = T::kKeys;
  static constexpr int kWarpgroups = T::kWarpgroups;
  static constexpr int kQueryTile = 64 * T::kWarpgroups;
  static constexpr int kQueryStages = T::kQueryStages;
  static constexpr int kKeyStages = T::kKeyStages;
  static constexpr int kValueStages = T::kValueStages;
  static constexpr Output kOutput = T::kOutput;
  static constexpr bool kStaged = kOutput == Output::in_queries || kOutput == Output::own_memory;
  static constexpr bool kGather = Load == KvLoad::gather;
  static constexpr bool kWidened = Load == KvLoad::widened;
  static constexpr bool kBlocks = Load == KvLoad::blocks;
  /// Boxes bring whatever lies behind the last key; the other loaders write zeros there.
  static constexpr bool kClearsTail = Load == KvLoad::boxes || kBlocks;

  /// With sums by products P V is two of them: all columns but the last 64, and the last 64 together
  /// with 8 columns of ones, which are the row sums.
  static constexpr bool kAddsUp = T::kRowSums == RowSums::by_additions;
  static constexpr int kLowColumns = kAddsUp ? HeadDimVo : HeadDimVo - 64;
  static constexpr int kHighColumns = kAddsUp ? 0 : 64 + 8;
  static constexpr int kOnes = kAddsUp ? 1 : 16 * 64;  ///< elements; none is needed for additions

  static constexpr int kThreads = 128 * (T::kWarpgroups + 1);
  // The pool of registers is what the launch allots: threads times the cap, a multiple of 8 a
  // thread. Asking for more than the pool holds hangs.
  static constexpr int kCap = 65536 / kThreads / 8 * 8;
  static constexpr bool kWide = T::kKeys > 128 || HeadDimVo > 128;
  static constexpr int kConsumerRegisters = kWidened              ? 144
                                            : T::kWarpgroups == 3 ? 160
                                            : kWide               ? 240
                                                                  : 232;
  static constexpr int kProducerRegisters = kWidened              ? 80
                                            : T::kWarpgroups == 3 ? 32
                                            : kWide               ? 24
                                                                  : 40;
  static_assert(T::kWarpgroups * kConsumerRegisters + kProducerRegisters <=
                (T::kWarpgroups + 1) * kCap);
  static_assert(HeadDimQk % 64 == 0 && HeadDimVo % 64 == 0 && T::kKeys % 16 == 0);
  static_assert(T::kOutput != Output::in_queries || HeadDimVo <= HeadDimQk);
  static_assert(std::is_same_v<Element, Outer> || kWidened);
  static_assert(!kWidened || std::is_same_v<Element, __half>);
};

/// Items on their way from the warp that takes them to those that load and compute.
inline constexpr int kItemStages = 4;
/// With how many key tiles of an item left to ask for the next item is taken: early enough for the
/// answer to come before the ring has run dry.
inline constexpr int kTilesLeft = 4;

/// Everything in shared memory. Tiles are panels of 64 columns (128 bytes), rows one after another,
/// as the copy engine's 128-byte swizzle leaves them.
template <class C>
struct Shared {
  using Element = typename C::Element;

  alignas(1024) Element q[C::kQueryStages][C::kQueryTile * C::kHeadDimQk];
  alignas(1024) Element k[C::kKeyStages][C::kKeyTile * C::kHeadDimQk];
  alignas(1024) Element v[C::kValueStages][C::kKeyTile * C::kHeadDimVo];
  alignas(1024) Element ones[C::kOnes];  ///< behind v: the descriptor's stride to it is positive

  ptx::Mbarrier q_full[C::kQueryStages];
  ptx::Mbarrier q_empty[C::kQueryStages];
  ptx::Mbarrier k_full[C::kKeyStages];
  ptx::Mbarrier k_empty[C::kKeyStages];
  ptx::Mbarrier v_full[C::kValueStages];
  ptx::Mbarrier v_empty[C::kValueStages];

  ptx::Mbarrier item_full[kItemStages];
  ptx::Mbarrier item_wanted;

  PrefillTile item[kItemStages];  ///< tile_end 0 = no more work
};

/// With memory of its own for finished tiles.
template <class C>
struct SharedWithOutput : Shared<C> {
  alignas(1024) typename C::Element o[C::kQueryTile * C::kHeadDimVo];
};

/// Warps that widen an operand, and how many tiles ahead of the widened ones they keep theirs.
inline constexpr int kWideningWarps = 2;
inline constexpr int kStoredStages = 2;

/// A warp's share of an operand's tiles as they are stored, rows one after another.
template <class C, int HeadDim>
struct StoredRows {
  alignas(128) std::uint8_t rows[kStoredStages][C::kKeyTile / kWideningWarps * HeadDim];
  alignas(8) ptx::Mbarrier full[kStoredStages];
};

/// With room for tiles as they are stored.
template <class C>
struct SharedWithStored : Shared<C> {
  StoredRows<C, C::kHeadDimQk> stored_k[kWideningWarps];
  StoredRows<C, C::kHeadDimVo> stored_v[kWideningWarps];
};

template <class C>
using SharedOf = std::conditional_t<
    C::kWidened, SharedWithStored<C>,
    std::conditional_t<C::kOutput == Output::own_memory, SharedWithOutput<C>, Shared<C>>>;

/// Named barriers (0 is __syncthreads).
inline constexpr int kTurnBarrier = 1;       ///< + warpgroup: its turn to issue products
inline constexpr int kWarpgroupBarrier = 8;  ///< + warpgroup: its own four warps

}  // namespace attune::kernels::ragged_prefill::sm90
