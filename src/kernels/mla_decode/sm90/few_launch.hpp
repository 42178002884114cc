// The kernels for few rows, of bf16, compiled by themselves (layer kernels).
#pragma once

#include "kernels/mla_decode/sm90/launch.hpp"

namespace attune::kernels::mla_decode::sm90::few {

/// For blocks of 16 or 32 rows.
[[nodiscard]] Instance instance_of(KeySource source, int rows);
/// … over the fp8 cache.
[[nodiscard]] Instance packed_instance(KeySource source, int rows);

}  // namespace attune::kernels::mla_decode::sm90::few
