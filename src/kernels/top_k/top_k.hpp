// The places of the largest numbers, by selection: nothing is sorted, nothing is allocated (layer
// kernels).
#pragma once

#include <cstdint>

namespace attune::kernels::top_k {

/// Writes the places of the `k` largest of scores[0, n), ascending, and returns how many there are:
/// the lesser of k and n. Of equal numbers the later ones are kept; a NaN counts as -infinity, and
/// 0 and -0 are equal.
std::int64_t keep_largest(const float* scores, std::int64_t n, std::int64_t k,
                          std::int32_t* places);

}  // namespace attune::kernels::top_k
