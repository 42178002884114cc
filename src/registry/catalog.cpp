#include "registry/catalog.hpp"

#include "attune_catalog_includes.hpp"

#include "registry/borrowed_kernels.hpp"
#include "registry/preference.hpp"

namespace attune::registry {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): the one macro of the project
#define ATTUNE_BACKEND(name) {&backends::name::kDescriptor, backends::name::kMake, #name, {}},
constexpr CatalogEntry kRows[] = {
#include "backends/catalog.inc"
};
#undef ATTUNE_BACKEND

constexpr std::size_t kNumRows = std::size(kRows);

constexpr bool uses_name(const BackendDescriptor& d, std::string_view name) {
  return d.name == name || d.aliases.contains(name) || d.deprecated_aliases.contains(name);
}

constexpr bool names_are_unique() {
  for (std::size_t i = 0; i < kNumRows; ++i) {
    const BackendDescriptor& a = *kRows[i].descriptor;
    for (std::size_t j = 0; j < kNumRows; ++j) {
      const BackendDescriptor& b = *kRows[j].descriptor;
      if (i != j && uses_name(b, a.name)) return false;
      for (std::string_view alias : a.aliases)
        if (i != j && uses_name(b, alias)) return false;
      for (std::string_view alias : a.deprecated_aliases)
        if (i != j && uses_name(b, alias)) return false;
    }
  }
  return true;
}

constexpr bool folders_match() {
  for (const CatalogEntry& row : kRows)
    if (row.descriptor->name != row.folder) return false;
  return true;
}

constexpr bool paged(const Capability& c) {
  for (Variant v : c.variants)
    if (!is_linear(v)) return true;
  return false;
}

constexpr bool lists_are_filled() {
  for (const CatalogEntry& row : kRows) {
    if (row.descriptor->summary.empty() || row.descriptor->capabilities.empty()) return false;
    for (const Capability& c : row.descriptor->capabilities) {
      if (c.variants.empty() || c.phases.empty() || c.q_dtypes.empty() || c.kv_dtypes.empty())
        return false;
      if (paged(c) == c.kv_layouts.empty()) return false;
      if (c.device == DeviceKind::cuda && c.sm.empty()) return false;
      for (std::int32_t page : c.page_sizes)
        if (page < 1 || page > 256) return false;
      if (c.status == BackendStatus::not_built && row.descriptor->needs.empty()) return false;
    }
  }
  return true;
}

constexpr bool known(std::string_view name) {
  for (const CatalogEntry& row : kRows)
    if (row.descriptor->name == name) return true;
  return false;
}

template <class List>
constexpr bool all_known(const List& names) {
  for (const std::string_view name : names)
    if (!known(name)) return false;
  return true;
}

constexpr bool preferences_are_known() {
  for (const PreferenceRow& row : kPreferences) {
    for (const Candidate& c : row.candidates)
      if (!known(c.name)) return false;
    if (row.candidates.empty() || row.candidates[row.candidates.size() - 1].name != "reference")
      return false;
  }
  for (const ModelRule& rule : kModelRules)
    if (!known(rule.backend)) return false;
  for (const Loan& loan : kLoans)
    if (!all_known(loan.borrowers) || !known(loan.lender)) return false;
  for (const ModelConstraint& c : kModelConstraints)
    if (!all_known(c.allowed) || !all_known(c.denied)) return false;
  return true;
}

static_assert(names_are_unique(), "two backends share a name or an alias");
static_assert(folders_match(), "a descriptor's name differs from its folder");
static_assert(lists_are_filled(), "a descriptor leaves a list empty that must say something");
static_assert(preferences_are_known(),
              "a preference row names an unknown backend or does not end in reference");

}  // namespace

std::span<const CatalogEntry> catalog() { return kRows; }

bool answers_to(const BackendDescriptor& descriptor, std::string_view name, bool& deprecated) {
  deprecated = descriptor.deprecated_aliases.contains(name);
  return uses_name(descriptor, name);
}

}  // namespace attune::registry
