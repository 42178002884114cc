#include "conformance/suite.hpp"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/join.hpp"
#include "conformance/cases.hpp"
#include "conformance/refusals.hpp"

namespace attune::conformance {
namespace {

bool declares(const Capability& row, FeatureSet features) {
  return (row.features.bits() & features.bits()) == features.bits();
}

bool selected(const Case& one, const SuiteOptions& options) {
  return (options.full || one.smoke) && glob_match(options.match, one.name);
}

/// Why no case of this suite runs over a row; empty if cases do.
std::string not_covered(const Capability& row) {
  for (const Variant v : row.variants)
    if (is_dense(v) || is_linear(v)) return {};
  return base::join("there are no cases yet of ", name(row.variants[0]),
                    "; it is held by its own tests");
}

class Tally {
 public:
  explicit Tally(std::string backend) : backend_(std::move(backend)) {}

  void declare(const std::string& word) { row(word); }
  void exercise(const std::string& word) { ++row(word).exercised; }
  void skip(const std::string& word, const std::string& reason) {
    ++row(word).skipped;
    row(word).reason = reason;
  }
  [[nodiscard]] std::vector<CapabilityResult> results() const {
    std::vector<CapabilityResult> all;
    for (const auto& [word, result] : rows_) all.push_back(result);
    return all;
  }

 private:
  CapabilityResult& row(const std::string& word) {
    return rows_.try_emplace(word, CapabilityResult{.backend = backend_, .capability = word})
        .first->second;
  }
  std::string backend_;
  std::map<std::string, CapabilityResult> rows_;
};

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

int SuiteReport::count(Verdict verdict) const {
  return static_cast<int>(std::count_if(cases.begin(), cases.end(), [&](const CaseResult& r) {
    return r.outcome.verdict == verdict;
  }));
}

SuiteReport run_suite(const Subject& subject, const SuiteOptions& options,
                      const Progress& progress) {
  SuiteReport report;
  const std::string backend(subject.descriptor->name);
  Tally tally(backend);
  const auto record = [&](CaseResult result) {
    if (progress) progress(result);
    report.cases.push_back(std::move(result));
  };
  for (const Capability& row : subject.descriptor->capabilities) {
    if (!declares(row, options.declared)) continue;
    const std::string unfit = hardware_reason(row, subject.device);
    const std::string reason = unfit.empty() ? not_covered(row) : unfit;
    for (const std::string& word : declared_by(row)) {
      if (reason.empty()) {
        tally.declare(word);
      } else {
        tally.skip(word, reason);
      }
    }
    if (!unfit.empty()) continue;
    for (CaseResult& refusal : check_refusals(subject, row, options.match))
      record(std::move(refusal));
    if (!reason.empty()) {
      const std::string all = base::join(name(row.variants[0]), "/*");
      if (glob_match(options.match, all))
        record({.name = all, .backend = backend, .outcome = skipped(reason)});
      continue;
    }
    for (const Case& one : make_cases(row, options.seed)) {
      if (!selected(one, options)) continue;
      const auto start = std::chrono::steady_clock::now();
      Outcome outcome = one.property->check(subject, one);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      for (const std::string& word : exercised_by(one, row)) {
        if (outcome.verdict == Verdict::skipped) {
          tally.skip(word, outcome.reason);
        } else {
          tally.exercise(word);
        }
      }
      record({.name = one.name,
              .backend = backend,
              .outcome = std::move(outcome),
              .seconds = took.count()});
    }
  }
  report.capabilities = tally.results();
  if (options.match == "*" && options.full) {
    for (const CapabilityResult& c : report.capabilities)
      if (c.exercised == 0 && c.skipped == 0)
        record({.name = base::join("declared/", c.capability),
                .backend = backend,
                .outcome = failed("declared, but no case exercises it")});
  }
  return report;
}

std::vector<std::string> case_names(const Subject& subject, const SuiteOptions& options) {
  std::vector<std::string> names;
  for (const Capability& row : subject.descriptor->capabilities) {
    if (!declares(row, options.declared) || !hardware_reason(row, subject.device).empty()) continue;
    for (const Case& one : make_cases(row, options.seed))
      if (selected(one, options)) names.push_back(one.name);
  }
  return names;
}

}  // namespace attune::conformance
