// A function of the program's own on logits, given to a run (layer attention); <attune/flex.hpp> tells
// what it is part of.
#pragma once

#include <cstdint>

namespace attune {

/// One query and one key.
struct FlexPair {
  std::int64_t request = 0;  ///< of the batch
  int qo_head = 0;           ///< query head
  std::int64_t q_position = 0;
  std::int64_t kv_position = 0;
};

/// Logits of one query with neighbouring keys: scores[i] is that of the key at first.kv_position + i.
/// None of them is one that a window or the causal rule hides.
struct ScoreRun {
  FlexPair first{};
  float* scores = nullptr;
  int count = 0;
};

/// A score function and what it reads; both must live until the run that is given them returns.
struct ScoreMod {
  /// Changes the scores in place. Must not throw; is called by several threads at once, and for each
  /// pair at most once a run. -infinity hides a key, whose value must be finite then (a mask hides
  /// any); what it makes of keys that the mask hides does not matter.
  void (*apply)(const ScoreRun& run, const void* context) = nullptr;
  const void* context = nullptr;

  [[nodiscard]] bool given() const { return apply != nullptr; }
};

/// `change(float score, const FlexPair&) -> float`, kept by reference, inlined into one loop over the
/// keys of a run: what the compiler can turn into vector code, it will.
template <class Change>
[[nodiscard]] ScoreMod score_function(const Change& change) {
  return {.apply =
              [](const ScoreRun& run, const void* context) {
                const Change& with = *static_cast<const Change*>(context);
                FlexPair at = run.first;
                for (int i = 0; i < run.count; ++i) {
                  at.kv_position = run.first.kv_position + i;
                  run.scores[i] = with(run.scores[i], at);
                }
              },
          .context = &change};
}

}  // namespace attune
