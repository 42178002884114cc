#include "plan/tile_schedule.hpp"

#include <algorithm>
#include <numeric>

#include "base/math.hpp"

namespace attune::plan {

std::int64_t query_block_tokens(std::int64_t heads, std::int64_t max_rows, std::int64_t min_rows,
                                std::int64_t total_rows, std::int64_t wanted_blocks) {
  const std::int64_t fair = base::ceil_div(total_rows, std::max<std::int64_t>(wanted_blocks, 1));
  const std::int64_t rows = std::clamp(fair, min_rows, max_rows);
  return std::max<std::int64_t>(rows / heads, 1);
}

std::vector<std::int32_t> costliest_first(std::span<const double> costs) {
  std::vector<std::int32_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return costs[static_cast<std::size_t>(a)] > costs[static_cast<std::size_t>(b)];
  });
  return order;
}

}  // namespace attune::plan
