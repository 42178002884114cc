#include "conformance/cases.hpp"

#include <algorithm>
#include <map>

#include "base/join.hpp"
#include "base/math.hpp"
#include "conformance/factors.hpp"
#include "conformance/hard_cases.hpp"

namespace attune::conformance {

namespace {

/// Off CPUs, whose kernels find a chunk's keys by their pages, chunks are whole pages.
void fit_chunks(const Capability& row, Case& one) {
  if (row.device != DeviceKind::cpu && one.source == KvSource::paged)
    one.spec.dual_chunk_len = base::round_up(one.spec.dual_chunk_len, std::int64_t{one.page_size});
}

}  // namespace

Case plain_case(const Capability& row, Phase phase) {
  if (is_linear(row.variants[0])) return plain_linear_case(row, phase);
  Case one = HardCases(row, row.variants[0])
                 .typical(phase == Phase::decode ? BatchForm::decode : BatchForm::extend, {{1, 1}});
  fit_chunks(row, one);
  return one;
}

std::vector<Case> make_cases(const Capability& row, std::uint64_t seed) {
  std::vector<Case> cases;
  for (const Variant variant : row.variants) {
    if (is_linear(variant)) {
      for (Case& one : make_linear_cases(row, variant)) cases.push_back(std::move(one));
      continue;
    }
    if (!is_dense(variant)) continue;
    const Factors factors = factors_of(row, variant);
    // Three different arrays of pairs: most triples, too, for thrice the cases.
    for (const std::uint64_t array : {1, 2, 3}) {
      const auto rows = factor_rows(factors, array);
      const auto chosen = array == 1 ? each_value_once(rows) : std::vector<std::size_t>{};
      for (std::size_t n = 0; n < rows.size(); ++n) {
        Case one = case_of(factors, rows[n], variant, array * 500 + n);
        one.smoke = std::find(chosen.begin(), chosen.end(), n) != chosen.end();
        if (!one.sharing.empty() && row.features.has(Feature::cascade))
          one.exercises = Feature::cascade;
        cases.push_back(std::move(one));
      }
    }
    for (Case& one : HardCases(row, variant).make()) cases.push_back(std::move(one));
  }
  std::map<std::string, int> seen;
  for (Case& one : cases) {
    fit_chunks(row, one);
    one.seed += seed * 10000;
    one.name = case_name(one);
    if (const int count = ++seen[one.name]; count > 1) one.name += base::join("#", count);
  }
  return cases;
}

}  // namespace attune::conformance
