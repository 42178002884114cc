// Work items as calls of a member of what they share.
//
//   for_each<&Run::attend>(*executor, items, run);  // run.attend(item, thread)
#pragma once

#include <cstdint>

#include <attune/device.hpp>

namespace attune::backends::shared {

template <auto kAct, class Shared>
void for_each(Executor& executor, std::int64_t items, const Shared& shared) {
  executor.run(
      items,
      [](void* context, std::int64_t item, int thread) {
        (static_cast<const Shared*>(context)->*kAct)(item, thread);
      },
      const_cast<Shared*>(&shared));
}

}  // namespace attune::backends::shared
