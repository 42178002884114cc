#include "conformance/suite.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "base/join.hpp"
#include "conformance/cases.hpp"
#include "conformance/properties.hpp"
#include "conformance/refusals.hpp"

namespace attune::conformance {
namespace {

bool declares(const Capability& row, FeatureSet features) {
  return (row.features.bits() & features.bits()) == features.bits();
}

bool selected(const Case& one, const SuiteOptions& options) {
  return (options.full || one.smoke) && glob_match(options.match, one.name);
}

/// Cases of a row, in its order.
struct RowCases {
  const Capability* row = nullptr;
  std::vector<Case> cases{};
};

/// A name without its types, OPERATION/PHASE//…; empty for cases that run with every type.
std::string shape_of(const Case& one) {
  if (one.property->name == kMatchesReference.name || one.property->name == kAppendThenRun.name)
    return {};
  const std::size_t begin = one.name.find('/', one.name.find('/') + 1) + 1;
  return one.name.substr(0, begin) + one.name.substr(one.name.find('/', begin));
}

/// Of cases of one shape leaves one: of the n-th shape the n-th, counted round.
void keep_one_dtype(std::vector<RowCases>& all) {
  std::vector<std::string> shapes;
  std::map<std::string, std::vector<std::string>> alike;
  for (const RowCases& row : all)
    for (const Case& one : row.cases) {
      const std::string shape = shape_of(one);
      if (shape.empty()) continue;
      std::vector<std::string>& names = alike[shape];
      if (names.empty()) shapes.push_back(shape);
      names.push_back(one.name);
    }
  std::set<std::string> dropped;
  for (std::size_t n = 0; n < shapes.size(); ++n) {
    const std::vector<std::string>& names = alike[shapes[n]];
    for (std::size_t i = 0; i < names.size(); ++i)
      if (i != n % names.size()) dropped.insert(names[i]);
  }
  for (RowCases& row : all)
    std::erase_if(row.cases, [&](const Case& one) { return dropped.contains(one.name); });
}

/// Of all rows that this device can run.
std::vector<RowCases> selected_cases(const Subject& subject, const SuiteOptions& options) {
  std::vector<RowCases> all;
  for (const Capability& row : subject.descriptor->capabilities) {
    if (!declares(row, options.declared) || !hardware_reason(row, subject.device).empty()) continue;
    RowCases& mine = all.emplace_back(RowCases{.row = &row});
    for (Case& one : make_cases(row, options.seed))
      if (selected(one, options)) mine.cases.push_back(std::move(one));
  }
  if (!options.every_dtype) keep_one_dtype(all);
  return all;
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
  const std::vector<RowCases> chosen = selected_cases(subject, options);
  auto next = chosen.begin();
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
    const std::vector<Case>& cases = (next++)->cases;
    for (CaseResult& refusal : check_refusals(subject, row, options.match))
      record(std::move(refusal));
    if (!reason.empty()) {
      const std::string all = base::join(name(row.variants[0]), "/*");
      if (glob_match(options.match, all))
        record({.name = all, .backend = backend, .outcome = skipped(reason)});
      continue;
    }
    for (const Case& one : cases) {
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
  for (const RowCases& row : selected_cases(subject, options))
    for (const Case& one : row.cases) names.push_back(one.name);
  return names;
}

}  // namespace attune::conformance
