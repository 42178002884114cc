#include "registry/borrowed_kernels.hpp"

#include <optional>
#include <utility>
#include <vector>

#include "base/join.hpp"

namespace attune::registry {
namespace {

using base::join;

const BackendDescriptor* descriptor_of(const Setting& setting, std::string_view name) {
  for (const CatalogEntry& entry : setting.catalog.entries)
    if (entry.descriptor->name == name) return entry.descriptor;
  return nullptr;
}

bool is_fp8(DType dtype) { return dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2; }

/// By the rows that have kernels, whether or not this build has: nullopt where none is there.
std::optional<std::vector<Refusal>> refusals_of(const BackendDescriptor& lender,
                                                const Request& request) {
  std::optional<std::vector<Refusal>> least;
  for (const Capability& row : lender.capabilities) {
    if (row.status == BackendStatus::not_built) continue;
    BackendDescriptor alone = lender;
    alone.capabilities = {row};
    std::vector<Refusal> refusals = judge(alone, request, true).refusals;
    if (!least || refusals.size() < least->size()) least = std::move(refusals);
  }
  return least;
}

}  // namespace

std::string borrowed_kernels(const Setting& setting, const Offer& chosen, const AttentionSpec& spec,
                             Phase phase) {
  for (const Loan& loan : kLoans) {
    if (!loan.borrowers.contains(chosen.name()) || loan.variant != spec.variant ||
        loan.phase != phase)
      continue;
    const BackendDescriptor* const lender = descriptor_of(setting, loan.lender);
    if (lender == nullptr) continue;
    // What an engine wants beyond the spec is for the borrower to promise.
    SelectionOptions options = setting.options;
    options.required = {};
    const auto refusals_for = [&](const AttentionSpec& s) {
      return refusals_of(*lender, {s, phase, setting.device, options, setting.model});
    };
    const auto refusals = refusals_for(spec);
    if (!refusals) continue;
    if (refusals->empty())
      return join(loan.lent, ", as ", loan.lender, " takes them; a plan keeps ", loan.own, " for ",
                  loan.batchwise);
    if (loan.widens && is_fp8(spec.kv_dtype)) {
      AttentionSpec widened = spec;
      widened.kv_dtype = spec.q_dtype;
      if (refusals_for(widened)->empty())
        return join(loan.lent, " over keys copied to ", name(spec.q_dtype), " first; a plan keeps ",
                    loan.own, " where that costs less");
    }
    const Refusal& r = refusals->front();
    return join(loan.own, ": ", loan.lent, " want ", r.rule, " ", r.wanted, ", have ", r.have);
  }
  return {};
}

}  // namespace attune::registry
