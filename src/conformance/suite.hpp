// The conformance suite: every case of every row a backend declares, and the table of what was
// declared, exercised and skipped. Tests and `attune verify --cases` run this same code (layer
// conformance).
//
//   const auto memory = host_memory();
//   Subject subject{.descriptor = &kDescriptor, .make = &make, .oracle = &reference::make,
//                   .device = cpu_device(), .executor = &pool, .memory = memory.get()};
//   const SuiteReport report = run_suite(subject, {.full = true, .match = "gqa/decode/*"});
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/case.hpp"

namespace attune::conformance {

struct SuiteOptions {
  bool full = false;
  std::string match = "*";  ///< of case names: * any text, ? any character
  std::uint64_t seed = 0;   ///< of the values
  FeatureSet declared{};    ///< only rows that declare all of these
  /// Off: of cases that differ in their types alone one runs, in turn, unless they hold answers to
  /// the reference or what append_kv wrote. What a property says of plans, pages and batches does not
  /// depend on the type of a number.
  bool every_dtype = true;
};

struct CaseResult {
  std::string name{};
  std::string backend{};
  Outcome outcome{};
  double seconds = 0.0;
};

/// One declared word of a row, and what became of it.
struct CapabilityResult {
  std::string backend;
  std::string capability;
  int exercised = 0;
  int skipped = 0;
  std::string reason{};  ///< of the last skip
};

struct SuiteReport {
  std::vector<CaseResult> cases;
  std::vector<CapabilityResult> capabilities;

  [[nodiscard]] int count(Verdict verdict) const;
  /// No failure; and, in an unfiltered full run, nothing declared that no case reached.
  [[nodiscard]] bool ok() const { return count(Verdict::failed) == 0; }
};

using Progress = std::function<void(const CaseResult&)>;

[[nodiscard]] SuiteReport run_suite(const Subject& subject, const SuiteOptions& options,
                                    const Progress& progress = {});

/// The names a run would have, without running anything.
[[nodiscard]] std::vector<std::string> case_names(const Subject& subject,
                                                  const SuiteOptions& options);

[[nodiscard]] bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace attune::conformance
