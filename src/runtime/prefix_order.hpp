// Rows in an order in which requests that share pages stand together (layer runtime).
#pragma once

#include <span>

#include "runtime/scheduler.hpp"

namespace attune::runtime {

/// Within each part, moves rows next to the first one whose pages begin like theirs, branch by
/// branch; rows that share nothing keep their order. Goes by the first cache group: the others
/// branch where it does. O(rows * shared pages).
void order_by_prefix(std::span<ScheduledRow> rows);

}  // namespace attune::runtime
