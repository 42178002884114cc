// Tile sizes of the plain-mma prefill kernel: planner and kernel read the same constants.
#pragma once

namespace attune::kernels::ragged_prefill::sm80 {

/// Rows of shared memory in units of sixteen bytes. The units of a row are exchanged by XOR with a
/// number of the row, so that eight rows' units at one place (what ldmatrix reads at once) lie in
/// eight different groups of banks without a byte of padding.
template <int Bytes>
struct SwizzledRows {
  static_assert(Bytes % 16 == 0);
  static constexpr int kBytes = Bytes;
  static constexpr int kUnits = Bytes / 16;
  /// Units change places within groups of this many: the power of two in kUnits, at most eight.
  static constexpr int kGroup = (kUnits & -kUnits) > 8 ? 8 : kUnits & -kUnits;
  /// Distributes over sums of numbers without a bit in common.
  static constexpr int mix(int row) { return row % 8 / (8 / kGroup); }
};

/// `Rows` rows of queries, shared by `Warps` warps, against tiles of keys and values that lie in a
/// ring of `Stages` stages. Padded: serves every head dim up to its own that is a multiple of 16
/// bytes; what lies beyond is zero. DimParts: warps that have the same rows; each makes their logits
/// from its part of the head dim and holds its part of their outputs, since a thread's registers
/// hold 256 dims of sixteen rows at most and leave nothing for the rest.
template <int DimQk, int DimVo, int KvBytes, int Warps, int KeyTile, int Stages,
          bool Padded = false, int Rows = 128, int DimParts = 1>
struct Policy {
  static constexpr bool kPadded = Padded;
  static constexpr bool kBlocks = false;
  static constexpr int kDimQk = DimQk;
  static constexpr int kDimVo = DimVo;
  static constexpr int kKvBytes = KvBytes;
  static constexpr int kKeyTile = KeyTile;
  static constexpr int kRows = Rows;
  static constexpr int kDimParts = DimParts;
  static constexpr int kWarps = Warps;
  static constexpr int kThreads = 32 * Warps;
  static constexpr int kWarpRows = Rows * DimParts / Warps;
  static constexpr int kStages = Stages;

  using Queries = SwizzledRows<DimQk * 2>;
  using Keys = SwizzledRows<DimQk * KvBytes>;
  using Values = SwizzledRows<DimVo * KvBytes>;
  static constexpr int kQueryBytes = kRows * Queries::kBytes;
  static constexpr int kKeyBytes = kKeyTile * Keys::kBytes;
  static constexpr int kStageBytes = kKeyBytes + kKeyTile * Values::kBytes;
  /// Where warps of the same rows meet: a logit is four bytes.
  static constexpr int kExchangeBytes = DimParts == 1 ? 0 : Warps * kWarpRows * KeyTile * 4;
  static constexpr int kSharedBytes = kQueryBytes + Stages * kStageBytes + kExchangeBytes;
  /// CTAs a multiprocessor holds: eight warps of 255 registers a thread fill it.
  static constexpr int kCtas = 8 / Warps;
};

/// Follows a mask by blocks as well: a kernel of its own, since asking costs the others 1 to 4 %.
template <class Plain>
struct WithBlocks : Plain {
  static constexpr bool kBlocks = true;
};

}  // namespace attune::kernels::ragged_prefill::sm80
