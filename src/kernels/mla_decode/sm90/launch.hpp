// The host's side of the Hopper latent kernels (layer kernels).
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "kernels/mla_decode/params.hpp"
#include "kernels/mla_decode/sm90/policy.hpp"
#include "kernels/tensor_map/tensor_map.hpp"

namespace attune::kernels::mla_decode::sm90 {

/// How keys lie and are brought.
enum class KeySource : std::uint8_t {
  pages,          ///< a page is a tile
  tokens,         ///< gathered one by one
  listed,         ///< … by lists of slots
  pooled,         ///< … in two pools, keys of 512 columns that are values
  packed,         ///< a page is a tile of 656-byte tokens
  listed_packed,  ///< … of which lists name slots
  e4m3,           ///< a page is a tile of 576-byte tokens, and queries are such rows
};

/// One compiled kernel.
struct Instance {
  DType dtype = DType::bf16;  ///< of o
  KeySource source = KeySource::pages;
  int threads = 0;
  int shared_bytes = 0;
  const void* kernel = nullptr;
};

/// Rows of the smallest blocks that there is a kernel for; others have twice as many, up to kRows.
[[nodiscard]] constexpr int least_rows(DType dtype) {
  return dtype == DType::f16 ? kRows : kFewRows;
}

/// What an item costs beside its tiles, in tiles.
inline constexpr int kItemTiles = 4;

/// Of bf16 or fp16, for pages of this many tokens and blocks of this many rows.
[[nodiscard]] Instance instance_of(DType dtype, int page_size, int rows);
/// … over lists of slots, whose lengths are the device's to know.
[[nodiscard]] Instance listed_instance(DType dtype, int rows);
/// … of two pools, of 512 columns.
[[nodiscard]] Instance pooled_instance(DType dtype, int rows);
/// Of bf16 queries over the fp8 latent cache: in pages of 64 tokens (KeySource::packed), or over
/// lists of slots (listed_packed).
[[nodiscard]] Instance packed_instance(KeySource source, int rows);
/// Of queries in e4m3 over latents in e4m3, in pages of 64 tokens; o is bf16.
[[nodiscard]] Instance e4m3_instance(int rows);

/// Once per instance and device: raises the shared-memory limit.
[[nodiscard]] Status prepare(const Instance& instance);

/// The kernel and the merge behind it, the second starting while the first ends. Nothing waits,
/// nothing is allocated.
[[nodiscard]] Status launch(const Instance& instance, tensor_map::Encoder encoder, Grid grid,
                            const Params& params, cudaStream_t stream);

}  // namespace attune::kernels::mla_decode::sm90
