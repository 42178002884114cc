// How much of the card a stream's kernels may use (layer device): all of it, unless its context is
// one of a part of the SMs (a green context). Blocks that wait for one another must all fit in it.
#pragma once

#include <attune/device.hpp>

namespace attune::device::cuda {

/// SMs of a stream's context and of the current one, whichever has fewer.
struct UsableSms {
  int count = 0;
  // Whom this was asked of.
  void* context = nullptr;
  void* green = nullptr;
};

/// At most `num_sms`, what the card has. Half a microsecond with the driver, which waits for
/// nothing; also while the stream is recorded.
[[nodiscard]] UsableSms usable_sms(Stream stream, int num_sms);

/// The same where it may be known already: the driver is asked who the contexts are, and more only
/// where they are others.
[[nodiscard]] int usable_sms(const UsableSms& known, Stream stream, int num_sms);

}  // namespace attune::device::cuda
