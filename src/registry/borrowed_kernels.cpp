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
    if (loan.borrower != chosen.name() || loan.variant != spec.variant || loan.phase != phase)
      continue;
    const BackendDescriptor* const lender = descriptor_of(setting, loan.lender);
    if (lender == nullptr) continue;
    // What an engine wants beyond the spec is for the borrower to promise.
    SelectionOptions options = setting.options;
    options.required = {};
    const auto refusals =
        refusals_of(*lender, {spec, phase, setting.device, options, setting.model});
    if (!refusals) continue;
    if (refusals->empty())
      return join(loan.lent, ", as ", loan.lender, " takes them; a plan keeps ", loan.own, " for ",
                  loan.batchwise);
    const Refusal& r = refusals->front();
    return join(loan.own, ": ", loan.lent, " want ", r.rule, " ", r.wanted, ", have ", r.have);
  }
  return {};
}

}  // namespace attune::registry
