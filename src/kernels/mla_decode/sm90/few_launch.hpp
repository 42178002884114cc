// The kernels for few rows, of bf16, compiled by themselves (layer kernels).
#pragma once

#include "kernels/mla_decode/sm90/launch.hpp"

namespace attune::kernels::mla_decode::sm90::few {

/// For blocks of 16 or 32 rows.
[[nodiscard]] Instance instance_of(KeySource source, int rows);
/// Of 16, over the fp8 cache.
[[nodiscard]] Instance packed_instance();

}  // namespace attune::kernels::mla_decode::sm90::few
