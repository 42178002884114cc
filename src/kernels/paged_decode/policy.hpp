// Numbers that the decode kernel and its planner must agree on (layer kernels).
#pragma once

namespace attune::kernels::paged_decode {

/// Query heads of one KV head handled per read of a key; more belong to ragged_prefill, where keys
/// are packed once and multiplied many times.
inline constexpr int kMaxGroup = 8;

/// Query heads an item may have over all its KV heads.
inline constexpr int kMaxRows = 64;

}  // namespace attune::kernels::paged_decode
