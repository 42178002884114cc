#include "model/window_pool.hpp"

namespace attune::model {

void list_window_tokens(std::span<const RequestRows> requests,
                        std::span<const std::int32_t> positions, std::vector<WindowToken>& tokens) {
  tokens.assign(positions.size(), {});
  for (const RequestRows& request : requests)
    for (std::int64_t row = 0; row < request.num_rows; ++row) {
      const auto at = static_cast<std::size_t>(request.first_row + row);
      tokens[at] = {.position = positions[at],
                    .row = static_cast<std::int32_t>(row),
                    .num_rows = static_cast<std::int32_t>(request.num_rows),
                    .known_rows = static_cast<std::int32_t>(request.num_rows - request.num_drafts),
                    .state = request.state,
                    .draft_state = request.draft_state};
    }
}

}  // namespace attune::model
