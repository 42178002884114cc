// A bench run as JSON, CSV or one self-contained HTML page; and two runs held against each other
// (layer bench).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "bench/runner.hpp"

namespace attune::bench {

struct Report {
  DeviceInfo device{};
  int threads = 1;
  std::string version{};
  Ceilings ceilings{};
  std::vector<Row> rows{};
  std::vector<std::string> skipped{};  ///< case, backend, and why
};

[[nodiscard]] std::string to_json(const Report& report);
[[nodiscard]] std::string to_csv(const Report& report);
[[nodiscard]] std::string to_html(const Report& report);

/// Whether write_report could write there, to be asked before anything is measured.
Status check_output(const std::string& path);
/// By the ending of `path`: .json, .csv, or .html of any other.
Status write_report(const Report& report, const std::string& path);

struct Change {
  std::string what;  ///< case, backend, device
  double old_ms = 0.0;
  double new_ms = 0.0;  ///< 0 = the new run lacks it
  bool regressed = false;
};

/// Rows of two JSON files, matched by case, backend and device. A row that is gone is a regression.
[[nodiscard]] Result<std::vector<Change>> compare(const std::string& old_path,
                                                  const std::string& new_path,
                                                  double max_regression);

}  // namespace attune::bench
