// Work on an executor's threads from a lambda (layer model).
#pragma once

#include <algorithm>
#include <cstdint>

#include <attune/device.hpp>

#include "base/math.hpp"

namespace attune::model {

/// body(item, thread) for every item; small counts stay on the calling thread.
template <class Body>
void for_each_item(Executor& executor, std::int64_t num_items, Body&& body) {
  if (num_items == 1) {
    body(std::int64_t{0}, 0);
    return;
  }
  executor.run(
      num_items,
      [](void* context, std::int64_t item, int thread) {
        (*static_cast<std::remove_reference_t<Body>*>(context))(item, thread);
      },
      &body);
}

/// body(first, last, thread) over ranges of `num_rows` rows. Waking threads costs microseconds, so
/// a range holds at least `kWorthATask` numbers.
template <class Body>
void for_row_ranges(Executor& executor, std::int64_t num_rows, std::int64_t row_size, Body&& body) {
  if (num_rows <= 0) return;
  constexpr std::int64_t kWorthATask = 16384;
  const std::int64_t least =
      std::max<std::int64_t>(1, kWorthATask / std::max<std::int64_t>(row_size, 1));
  const std::int64_t even = base::ceil_div<std::int64_t>(num_rows, 2 * executor.num_threads());
  const std::int64_t step = std::max(least, even);
  for_each_item(executor, base::ceil_div(num_rows, step), [&](std::int64_t item, int thread) {
    body(item * step, std::min(num_rows, (item + 1) * step), thread);
  });
}

}  // namespace attune::model
