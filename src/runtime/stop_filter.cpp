#include "runtime/stop_filter.hpp"

#include <algorithm>
#include <utility>

namespace attune::runtime {
namespace {

/// Length of the longest end of `text` that begins `stop`, short of all of it.
std::size_t overlap(std::string_view text, std::string_view stop) {
  for (std::size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n)
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  return 0;
}

}  // namespace

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopFilter::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  std::size_t first = std::string::npos;
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    first = std::min(first, held_.find(stop));
    keep = std::max(keep, overlap(held_, stop));
  }
  if (first != std::string::npos) {
    stopped_ = true;
    std::string shown = held_.substr(0, first);
    held_.clear();
    return shown;
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

std::string StopFilter::finish() { return std::exchange(held_, {}); }

}  // namespace attune::runtime
