#include "registry/offers.hpp"

#include <algorithm>

#include "base/join.hpp"
#include "registry/model_rules.hpp"
#include "registry/preference.hpp"

namespace attune::registry {
namespace {

using base::join;

bool offered(const std::vector<Offer>& offers, std::string_view name) {
  return std::any_of(offers.begin(), offers.end(),
                     [&](const Offer& o) { return o.entry->descriptor->name == name; });
}

Offer judged(const Setting& setting, Offer offer, const AttentionSpec& spec, Phase phase) {
  const Request request{spec, phase, setting.device, setting.options, setting.model};
  offer.verdict = judge(*offer.entry->descriptor, request,
                        setting.catalog.can_make(*offer.entry, setting.device.kind));
  return offer;
}

/// Rows that never ran on their device are for those who name them.
void leave_out_unproven(Offer& offer) {
  Verdict& verdict = offer.verdict;
  if (!verdict.accepted()) return;
  std::erase_if(verdict.accepting,
                [](const Capability* row) { return row->status == BackendStatus::unproven; });
  if (verdict.accepting.empty())
    verdict.refusals.push_back(
        {std::string(offer.name()), "proven",
         "to be named: it was compiled and emulated, never run on this device",
         "an automatic choice"});
  else
    verdict.row = verdict.accepting.front();
}

const CatalogEntry* entry_of(const Setting& setting, std::string_view name) {
  for (const CatalogEntry& entry : setting.catalog.entries)
    if (entry.descriptor->name == name) return &entry;
  return nullptr;
}

std::string condition(When when) { return when == When::always ? "" : join(" (", text(when), ")"); }

}  // namespace

Offer named_offer(const Setting& setting, const CatalogEntry& entry, std::string why,
                  const AttentionSpec& spec, Phase phase) {
  return judged(setting,
                {.entry = &entry, .by = ChosenBy::user, .why = std::move(why), .verdict = {}}, spec,
                phase);
}

std::vector<Offer> automatic_offers(const Setting& setting, const AttentionSpec& spec,
                                    Phase phase) {
  std::vector<Offer> offers;
  const auto offer = [&](std::string_view name, ChosenBy by, std::string why,
                         std::int32_t page_size) {
    const CatalogEntry* entry = entry_of(setting, name);
    if (entry == nullptr || offered(offers, name)) return;
    offers.push_back(judged(
        setting,
        {.entry = entry, .by = by, .why = std::move(why), .page_size = page_size, .verdict = {}},
        spec, phase));
    if (!setting.options.assume_built) leave_out_unproven(offers.back());
  };
  const auto applies = [&](When when) { return holds(when, spec, setting.options, setting.model); };

  for (const ModelRule& rule : kModelRules) {
    if (!matches(rule.architectures, setting.model.architecture) ||
        !rule.devices.contains(setting.where) || !rule.variants.contains(spec.variant) ||
        !rule.phases.contains(phase) || !applies(rule.when))
      continue;
    offer(rule.backend, ChosenBy::model_rule,
          join("rule for ", setting.model.architecture, " on ", name(setting.where),
               condition(rule.when)),
          rule.page_size);
    break;
  }
  for (const PreferenceRow& row : kPreferences) {
    if (!row.devices.contains(setting.where) || !row.variants.contains(spec.variant) ||
        !row.phases.contains(phase))
      continue;
    for (const Candidate& c : row.candidates)
      if (applies(c.when))
        offer(c.name, ChosenBy::preference,
              join("row ", name(setting.where), " / ", name(spec.variant), " / ", name(phase),
                   condition(c.when)),
              0);
    break;
  }
  return offers;
}

std::vector<Offer> other_offers(const Setting& setting, const std::vector<Offer>& offers,
                                const AttentionSpec& spec, Phase phase) {
  std::vector<Offer> others;
  for (const CatalogEntry& entry : setting.catalog.entries)
    if (!offered(offers, entry.descriptor->name))
      others.push_back(judged(setting, {.entry = &entry, .why = {}, .verdict = {}}, spec, phase));
  return others;
}

}  // namespace attune::registry
