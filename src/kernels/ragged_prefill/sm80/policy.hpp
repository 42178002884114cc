// Tile sizes of the general CUDA prefill kernel: planner and kernel read the same constants.
#pragma once

namespace attune::kernels::ragged_prefill::sm80 {

/// Padded: serves every head dim up to its own that is a multiple of 16 bytes; what lies beyond is
/// zero.
template <int DimQk, int DimVo, int KvBytes, int KeyTile, bool Padded = false>
struct Policy {
  static constexpr bool kPadded = Padded;
  static constexpr int kDimQk = DimQk;
  static constexpr int kDimVo = DimVo;
  static constexpr int kKvBytes = KvBytes;
  static constexpr int kKeyTile = KeyTile;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRows = 16 * kWarps;

  // Rows of shared memory start an odd number of 16-byte units apart: ldmatrix meets no bank twice.
  static constexpr int padded(int bytes) { return (bytes / 16 | 1) * 16; }
  static constexpr int kKeyBytes = DimQk * KvBytes;
  static constexpr int kValueBytes = DimVo * KvBytes;
  static constexpr int kQueryStride = padded(DimQk * 2);
  static constexpr int kKeyStride = padded(kKeyBytes);
  static constexpr int kValueStride = padded(kValueBytes);
  static constexpr int kStageBytes = KeyTile * (kKeyStride + kValueStride);
  /// Two stages, and a unit that an odd row's last ldmatrix may touch.
  static constexpr int kSharedBytes = kRows * kQueryStride + 2 * kStageBytes + 16;
};

}  // namespace attune::kernels::ragged_prefill::sm80
