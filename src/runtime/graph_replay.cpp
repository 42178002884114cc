#include "runtime/graph_replay.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/math.hpp"

namespace attune::runtime {

std::int64_t filled_up(std::int64_t count, std::int64_t most) {
  constexpr std::int64_t kStride = 8;
  const auto filled =
      count <= kStride ? static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)))
                       : base::round_up(count, kStride);
  return std::min(filled, most);
}

Status GraphReplay::compute(const model::StepInput& input, const StepShape& shape,
                            std::int64_t edition) {
  Step& step = steps_[shape];
  const bool fits = step.edition == edition;
  if (!fits || (step.recording != nullptr && step.recording->stale())) step.recording.reset();
  // The first step with its plans is issued: it allocates, loads and looks up what a recording must
  // find done, and plans that are remade every step cost no recording each.
  if (fits && step.recording == nullptr && statistics_.refusal.empty()) {
    Result<std::unique_ptr<model::Recording>> made =
        ops_.record([&] { return model_.compute(input); });
    if (made.ok()) {
      step.recording = std::move(*made);
      ++statistics_.recorded;
    } else {
      statistics_.refusal = made.status().text();
    }
  }
  step.edition = edition;
  if (step.recording == nullptr) {
    ++statistics_.issued;
    return model_.compute(input);
  }
  step.recording->replay();
  ++statistics_.replayed;
  return {};
}

}  // namespace attune::runtime
