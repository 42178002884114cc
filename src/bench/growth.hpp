// How cost grows with length, batch, heads and threads, fitted to results of attune bench and to
// the floors of the same rows (layer bench).
#pragma once

#include <string>
#include <vector>

#include <attune/status.hpp>

namespace attune::bench {

/// One timed row, as result files hold it.
struct GrowthPoint {
  std::string case_name;
  std::string backend;
  int threads = 1;
  double ms = 0.0;
  double floor_ms = 0.0;  ///< what the binding ceiling alone would take
};

/// Rows that differ in one number only. Exponents are slopes of log time over log of the number:
/// least squares.
struct Growth {
  std::string series;  ///< the case's name with N for the number that varies, and the backend
  std::string varies;  ///< length, batch, heads or threads
  std::vector<int> values;
  std::vector<double> ms;
  double exponent = 0.0;
  double floor_exponent = 0.0;  ///< of the floors: what theory says
};

/// Series of three values and more, of threads two and more, in the order of their first rows.
[[nodiscard]] std::vector<Growth> fit_growth(const std::vector<GrowthPoint>& points);

/// The rows of JSON files that `attune bench --output` wrote, all of one device.
[[nodiscard]] Result<std::vector<GrowthPoint>> read_growth(const std::vector<std::string>& paths);

}  // namespace attune::bench
