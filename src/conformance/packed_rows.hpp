// Keys of a problem as the fp8 latent cache stores them (layer conformance).
#pragma once

namespace attune::conformance {

/// 576 e4m3 numbers → the 656 bytes of a token that say the same: block scales are the writers'
/// (attention/packed_latent.hpp), and no number loses a bit.
void pack_latent(const char* e4m3, char* token);

}  // namespace attune::conformance
