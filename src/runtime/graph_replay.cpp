#include "runtime/graph_replay.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/math.hpp"

namespace attune::runtime {

std::int64_t decode_rows(std::int64_t num_decodes, std::int64_t most) {
  constexpr std::int64_t kStride = 8;
  const auto rows =
      num_decodes <= kStride
          ? static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(num_decodes)))
          : base::round_up(num_decodes, kStride);
  return std::min(rows, most);
}

Status GraphReplay::compute(const model::StepInput& input, std::int64_t edition) {
  Step& step = steps_[static_cast<std::int64_t>(input.tokens.size())];
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
