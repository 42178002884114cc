// Stop strings in text that arrives piece by piece (layer runtime).
//
// Text that may still become a stop string is held back, so that no part of one is ever shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attune::runtime {

class StopFilter {
 public:
  /// Empty strings are left out: they would stop everything.
  explicit StopFilter(std::vector<std::string> stops);

  /// The text that is safe to show once `piece` has arrived; empty after a stop.
  std::string push(std::string_view piece);

  /// What was held back, at the end of a text that no stop string ended.
  std::string finish();

  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace attune::runtime
