// Tile sizes of the CUDA decode kernels: planner and kernel read the same constants.
#pragma once

#include "kernels/ptx/code_form.hpp"

namespace attune::kernels::paged_decode::sm80 {

/// KvBytes: of one stored element. RowTiles: query heads of one KV head, in eights. Warps: of a block
/// whose rings shared memory holds. Padded: serves every head dim up to its own that is a multiple of
/// 16 bytes; what lies beyond is zero. DimParts: warps that share a tile, each with a part of the
/// head dim, of which it loads, multiplies and holds no other; they exchange logits.
template <int DimQk, int DimVo, int KvBytes, int RowTiles, int Warps, int CtasPerSm, int Tile,
          bool Padded = false, int DimParts = 1>
struct Policy {
  static constexpr bool kBeside = false;
  static constexpr bool kListed = false;
  static constexpr bool kPadded = Padded;
  static constexpr int kDimQk = DimQk;
  static constexpr int kDimVo = DimVo;
  static constexpr int kDimParts = DimParts;
  static constexpr int kPartQk = DimQk / DimParts;
  static constexpr int kPartVo = DimVo / DimParts;
  static constexpr int kKvBytes = KvBytes;
  static constexpr int kRowTiles = RowTiles;
  static constexpr int kRows = 8 * RowTiles;
  static constexpr int kCtasPerSm = CtasPerSm;

  /// Tokens of a tile: what one warp loads and consumes at a time, about 8 KiB. Tiles start at
  /// multiples of it.
  static constexpr int kTile = Tile;
  static_assert(Tile % 16 == 0, "the product takes sixteen tokens at a time");

  // ldmatrix meets no bank twice: rows of whole lines lie dense and twist their units by their
  // number; others start an odd number of 16-byte units apart, which makes a copied line two of
  // shared memory and costs 4 % of the bandwidth.
  static constexpr int padded(int bytes) { return (bytes / 16 | 1) * 16; }
  static constexpr int kKeyBytes = kPartQk * KvBytes;
  static constexpr int kValueBytes = kPartVo * KvBytes;
  static constexpr bool kTwisted = kKeyBytes % 128 == 0 && kValueBytes % 128 == 0;
  static constexpr int kKeyStride = kTwisted ? kKeyBytes : padded(kKeyBytes);
  static constexpr int kValueStride = kTwisted ? kValueBytes : padded(kValueBytes);
  /// Where byte `at` of row `row` lies from the row's start; whole units.
  static constexpr int in_row(int row, int at) { return kTwisted ? at ^ row % 8 * 16 : at; }
  static constexpr int kStageBytes = Tile * (kKeyStride + kValueStride);
  static constexpr int kQueryStride = padded(kPartQk * 2);
  static constexpr int kQueryBytes = kRows * kQueryStride;

  /// Floats from one head's outputs to the next's while warps are joined (see output_place).
  static constexpr int kOutputStride = (kPartVo + 31) / 32 * 32;
  static_assert(kRows * kOutputStride * 4 <= kStageBytes, "a stage holds one warp's outputs");

  /// A warp's logits of two tiles in turn, where others of the same tile read them.
  static constexpr int kExchangeBytes = DimParts == 1 ? 0 : 2 * Tile * kRows * 4;
  /// DecodeKernel's members beside the rings.
  static constexpr int state_bytes(int warps) {
    return warps * (kQueryBytes + kExchangeBytes + kRows * 8 + 4) + 16;
  }
  /// Stages of a warp's ring on a card with so much shared memory a SM.
  static constexpr int stages_of(int warps, int shared_per_sm) {
    const int fit = (shared_per_sm / CtasPerSm - 1024 - state_bytes(warps)) / (warps * kStageBytes);
    return fit < 8 ? fit : 8;
  }
  /// A ring of less than two stages hides nothing: rather half of the warps.
  static constexpr int warps(int shared_per_sm) {
    int warps = Warps;
    while (warps % (2 * DimParts) == 0 && stages_of(warps, shared_per_sm) < 2) warps /= 2;
    return warps;
  }
  static constexpr int stages(int shared_per_sm) {
    return stages_of(warps(shared_per_sm), shared_per_sm);
  }
  static constexpr int shared_bytes(int shared_per_sm) {
    const int count = warps(shared_per_sm);
    return count * stages(shared_per_sm) * kStageBytes + state_bytes(count);
  }
  static constexpr int kWarps = warps(ptx::kThisForm.shared_per_sm);
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kStages = stages(ptx::kThisForm.shared_per_sm);
  static constexpr bool kFits = kStages >= 2;
  /// The next tile's logits are made before this tile's softmax, which then has products to run
  /// under: 8-bit keys, whose conversions keep a warp waiting. Takes a stage.
  static constexpr bool kAhead = KvBytes == 1 && kStages >= 3;
};

/// Of a kernel that runs at the same time as the one before it in the stream, whose SMs join in
/// when they are done: every item is claimed, and `claims` is left for the next kernel to zero. A
/// kernel of its own, because the choice between the two costs half a microsecond.
template <class P>
struct Beside : P {
  static constexpr bool kBeside = true;
};

/// Of a kernel whose KV heads have pages of their own (Params::lengths).
template <class P>
struct Listed : P {
  static constexpr bool kListed = true;
};

}  // namespace attune::kernels::paged_decode::sm80
