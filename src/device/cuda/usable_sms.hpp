// How much of the card a stream's kernels may use (layer device): all of it, unless its context is
// one of a part of the SMs (a green context). Blocks that wait for one another must all fit in it.
#pragma once

#include <attune/device.hpp>

namespace attune::device::cuda {

/// SMs of the stream's context and of the current one, whichever has fewer; at most `num_sms`, what
/// the card has. Asks the driver, which waits for nothing; also while the stream is recorded.
[[nodiscard]] int usable_sms(Stream stream, int num_sms);

}  // namespace attune::device::cuda
