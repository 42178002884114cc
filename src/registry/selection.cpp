#include "registry/selection.hpp"

#include <algorithm>

#include "base/join.hpp"
#include "registry/borrowed_kernels.hpp"
#include "registry/model_rules.hpp"
#include "registry/nearest.hpp"
#include "registry/shared_pages.hpp"

namespace attune::registry {
namespace {

using base::join;

bool has_pages(const AttentionSpec& s) {
  return !is_linear(s.variant) && s.kind != AttentionKind::encoder_only;
}

/// Layers that a named attention backend leaves to a companion of their own, unless it declares
/// them too.
bool has_companion(Variant v) { return is_linear(v) || v == Variant::minimax_sparse; }

bool declares(const BackendDescriptor& backend, Variant v) {
  for (const Capability& row : backend.capabilities)
    if (row.variants.contains(v)) return true;
  return false;
}

ModelFacts facts_of(const ModelQuery& query) {
  ModelFacts facts{.architecture = query.architecture};
  for (const LayerGroup& group : query.groups) {
    facts.has_gdn = facts.has_gdn || group.spec.variant == Variant::gdn;
    facts.has_mamba2 = facts.has_mamba2 || group.spec.variant == Variant::mamba2;
    facts.has_sinks = facts.has_sinks || group.spec.sinks;
  }
  return facts;
}

/// One group, or the part of one that an override cuts out, and the names the user gave for it.
struct Part {
  LayerGroup group;
  const CatalogEntry* prefill = nullptr;  ///< null = automatic
  const CatalogEntry* decode = nullptr;
  std::string why;
};

struct PhaseOffers {
  Phase phase = Phase::prefill;
  std::vector<Offer> offers;
  int winner = -1;

  [[nodiscard]] bool by_user() const { return !offers.empty() && offers[0].by == ChosenBy::user; }
};

int first_accepted(const PhaseOffers& phase) {
  const auto found = std::find_if(phase.offers.begin(), phase.offers.end(),
                                  [](const Offer& o) { return o.verdict.accepted(); });
  return found == phase.offers.end() ? -1 : static_cast<int>(found - phase.offers.begin());
}

class Chooser {
 public:
  Chooser(const Catalog& catalog, const ModelQuery& query, const DeviceInfo& device,
          const SelectionOptions& options)
      : setting_{catalog, device, options, facts_of(query), device_class(device)} {
    if (options.page_size > 0) pages_ = PageSizes(options.page_size);
  }

  Selection run(const ModelQuery& query) {
    std::vector<Part> parts = split(query);
    if (!result_.status.ok()) return std::move(result_);
    for (Part& part : parts) serve(part);
    result_.page_size = paged_ ? pages_.preferred() : 0;
    for (GroupSelection& g : result_.groups)
      if (has_pages(g.group.spec)) g.page_size = result_.page_size;
    if (!refusals_.empty()) result_.status = unsupported(failure_, std::move(refusals_));
    return std::move(result_);
  }

 private:
  std::vector<Part> split(const ModelQuery& query);
  const CatalogEntry* named(std::string_view name);
  void serve(Part& part);
  void pair(const Part& part, std::vector<PhaseOffers>& phases, GroupSelection& group);
  PhaseSelection outcome(const Part& part, PhaseOffers& offered);
  void fail(const Part& part, const PhaseOffers& offered);

  Setting setting_;
  PageSizes pages_;  ///< that every group chosen so far can live with
  bool paged_ = false;
  Selection result_;
  std::string failure_;
  std::vector<Refusal> refusals_;
};

const CatalogEntry* Chooser::named(std::string_view name) {
  if (name.empty() || name == "auto") return nullptr;
  const Result<const CatalogEntry*> entry = find_entry(setting_.catalog, name, result_.warnings);
  if (entry.ok()) return *entry;
  if (result_.status.ok()) result_.status = entry.status();
  return nullptr;
}

std::vector<Part> Chooser::split(const ModelQuery& query) {
  const SelectionOptions& options = setting_.options;
  const CatalogEntry* prefill = named(options.prefill);
  const CatalogEntry* decode = named(options.decode);
  std::vector<const CatalogEntry*> overriding;
  for (const LayerOverride& o : options.layers) overriding.push_back(named(o.backend));

  int num_layers = 0;
  bool any_core = false;
  std::vector<bool> is_core;  // layers with attention that has no companion
  for (const LayerGroup& group : query.groups) {
    if (group.encoder) continue;
    const bool core = !has_companion(group.spec.variant);
    any_core = any_core || core;
    for (int layer : group.layers) {
      num_layers = std::max(num_layers, layer + 1);
      is_core.resize(static_cast<std::size_t>(num_layers));
      if (core) is_core[static_cast<std::size_t>(layer)] = true;
    }
  }
  for (const LayerOverride& o : options.layers)
    if (result_.status.ok() && (o.first < 0 || o.last < o.first || o.last >= num_layers))
      result_.status = invalid_argument(join("layers ", o.first, "-", o.last, "=", o.backend,
                                             ": the model has layers 0 to ", num_layers - 1));

  std::vector<Part> parts;
  for (const LayerGroup& group : query.groups) {
    const Variant v = group.spec.variant;
    const auto applies = [&](const CatalogEntry* entry, bool elsewhere) {
      return entry != nullptr &&
             (!has_companion(v) || declares(*entry->descriptor, v) || !elsewhere);
    };
    const auto override_of = [&](int layer) -> const CatalogEntry* {
      const CatalogEntry* found = nullptr;
      for (std::size_t i = 0; i < overriding.size(); ++i)
        if (layer >= options.layers[i].first && layer <= options.layers[i].last)
          found = overriding[i];
      if (group.encoder || found == nullptr) return nullptr;
      return applies(found, is_core[static_cast<std::size_t>(layer)]) ? found : nullptr;
    };
    Part rest{.group = group, .why = {}};
    rest.group.layers.clear();
    rest.prefill = applies(prefill, any_core) ? prefill : nullptr;
    rest.decode = applies(decode, any_core) ? decode : nullptr;
    std::vector<Part> own{rest};
    for (int layer : group.layers) {
      const CatalogEntry* entry = override_of(layer);
      auto part = entry == nullptr ? own.begin()
                                   : std::find_if(own.begin() + 1, own.end(), [&](const Part& p) {
                                       return p.prefill == entry;
                                     });
      if (part == own.end()) {
        own.push_back({.group = rest.group,
                       .prefill = entry,
                       .decode = entry,
                       .why = "named for these layers"});
        part = own.end() - 1;
      }
      part->group.layers.push_back(layer);
    }
    for (Part& part : own)
      if (!part.group.layers.empty() || group.layers.empty()) parts.push_back(std::move(part));
  }
  return parts;
}

void Chooser::serve(Part& part) {
  AttentionSpec& spec = part.group.spec;
  if (!is_linear(spec.variant)) {  // a recurrent state has a type of its own
    for (const CacheTypeRule& rule : kCacheTypes)
      if (rule.variant == spec.variant && rule.devices.contains(setting_.where))
        spec.kv_dtype = rule.kv_dtype;
    if (setting_.options.kv_dtype) spec.kv_dtype = *setting_.options.kv_dtype;
  }
  std::vector<PhaseOffers> phases;
  for (Phase phase : {Phase::prefill, Phase::decode}) {
    if (phase == Phase::decode && spec.kind == AttentionKind::encoder_only) continue;
    const CatalogEntry* user = phase == Phase::prefill ? part.prefill : part.decode;
    PhaseOffers offered{.phase = phase, .offers = {}};
    if (user != nullptr)
      offered.offers.push_back(named_offer(
          setting_, *user, part.why.empty() ? "named by the user" : part.why, spec, phase));
    else
      offered.offers = automatic_offers(setting_, spec, phase);
    phases.push_back(std::move(offered));
  }
  GroupSelection group{.group = part.group};
  pair(part, phases, group);
  for (PhaseOffers& offered : phases) group.phases.push_back(outcome(part, offered));
  result_.groups.push_back(std::move(group));
}

/// The first pair of accepted offers whose page sizes and layout fit each other and the groups
/// before.
void Chooser::pair(const Part& part, std::vector<PhaseOffers>& phases, GroupSelection& group) {
  PhaseOffers& first = phases.front();
  PhaseOffers& last = phases.back();
  const bool paged = has_pages(part.group.spec);
  const auto pages_of = [&](const Offer& a, const Offer& b) {
    PageSizes pages = PageSizes(a.verdict.accepting).intersect(PageSizes(b.verdict.accepting));
    if (a.page_size > 0) pages.prefer(a.page_size);
    return pages;
  };
  for (std::size_t i = 0; i < first.offers.size() && first.winner < 0; ++i) {
    const Offer& a = first.offers[i];
    if (!a.verdict.accepted()) continue;
    for (std::size_t j = 0; j < last.offers.size() && first.winner < 0; ++j) {
      if (phases.size() == 1 && j != i) continue;
      const Offer& b = last.offers[j];
      if (!b.verdict.accepted()) continue;
      const PageSizes both = pages_of(a, b);
      const PageSizes all = pages_.intersect(both);
      const std::optional<KvLayout> layout = shared_layout(*a.verdict.row, *b.verdict.row);
      if (paged && (all.empty() || !layout)) continue;
      first.winner = static_cast<int>(i);
      last.winner = static_cast<int>(j);
      if (paged) {
        pages_ = all;
        paged_ = true;
      } else if (!is_linear(part.group.spec.variant)) {
        group.page_size = both.preferred();
      }
      if (!is_linear(part.group.spec.variant)) group.kv_layout = layout;
    }
  }
  // Where nobody serves one phase, that one fails, and the other's answer stands.
  if (phases.size() == 2 && first.winner < 0) {
    const int prefill = first_accepted(first);
    const int decode = first_accepted(last);
    if (decode < 0) first.winner = prefill;
    if (prefill < 0) last.winner = decode;
  }
  // Accepted by the rules, and still not fit for the cache that the others share.
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const PhaseOffers& other = phases[phases.size() - 1 - p];
    const Offer* partner =
        other.winner >= 0 ? &other.offers[static_cast<std::size_t>(other.winner)] : nullptr;
    for (const Offer& o : other.offers)
      if (partner == nullptr && o.verdict.accepted()) partner = &o;
    std::vector<Offer>& offers = phases[p].offers;
    for (std::size_t i = 0; i < offers.size(); ++i) {
      Offer& o = offers[i];
      const bool passed_over = phases[p].winner < 0 || static_cast<int>(i) < phases[p].winner;
      if (!o.verdict.accepted() || !passed_over || partner == nullptr) continue;
      const PageSizes own(o.verdict.accepting);
      const bool layouts_differ = !shared_layout(*o.verdict.row, *partner->verdict.row);
      o.verdict.refusals.push_back(
          {o.name(), "shared_cache",
           layouts_differ ? join("layout ", name(o.verdict.row->kv_layouts[0])) : own.text(),
           layouts_differ
               ? join("layout ", name(partner->verdict.row->kv_layouts[0]), " of ", partner->name())
               : join(pages_.intersect(PageSizes(partner->verdict.accepting)).text(), " of ",
                      partner->name(), " and the groups before")});
    }
  }
}

PhaseSelection Chooser::outcome(const Part& part, PhaseOffers& offered) {
  PhaseSelection phase{.phase = offered.phase};
  const auto unbuilt = [](const Offer& o) {
    return std::any_of(o.verdict.refusals.begin(), o.verdict.refusals.end(),
                       [](const Refusal& r) { return r.rule == "built" || r.rule == "proven"; });
  };
  // Passing over a name that this build does not have, or that has yet to prove itself, is no
  // fallback; passing over a refusal is.
  const auto first = std::find_if_not(offered.offers.begin(), offered.offers.end(), unbuilt);
  if (offered.winner >= 0) {
    const auto winner = offered.offers.begin() + offered.winner;
    phase.backend = winner->name();
    phase.chosen_by = winner->by;
    phase.why = winner->why;
    if (winner->by == ChosenBy::preference) phase.why += join(", place ", offered.winner + 1);
    if (first != winner && !offered.by_user()) {
      const Refusal& r = first->verdict.refusals.front();
      phase.chosen_by = ChosenBy::fallback;
      phase.why = join(first->name(), " refused: ", r.rule, ": wanted ", r.wanted, ", have ",
                       r.have, "; next in ", winner->why);
      ++result_.fallbacks;
      if (setting_.options.fallback == FallbackPolicy::warn)
        result_.warnings.push_back(join(part.group.kind, " layers, ", name(offered.phase), ": ",
                                        phase.backend, " takes the place of ", first->name(), " (",
                                        r.rule, ": wanted ", r.wanted, ", have ", r.have, ")"));
      if (setting_.options.fallback == FallbackPolicy::forbid) {
        phase.backend.clear();
        phase.chosen_by = ChosenBy::nobody;
        phase.why += join("; ", winner->name(), " could serve, but --fallback forbid");
      }
    }
  }
  if (phase.backend.empty()) {
    fail(part, offered);
  } else if (const std::string kernels = borrowed_kernels(
                 setting_, offered.offers[static_cast<std::size_t>(offered.winner)],
                 part.group.spec, offered.phase);
             !kernels.empty()) {
    phase.why += join("; ", kernels);
  }
  for (const Offer& o : offered.offers)
    phase.considered.push_back({o.name(), o.verdict.accepted(), o.verdict.refusals});
  for (const Offer& o : other_offers(setting_, offered.offers, part.group.spec, offered.phase))
    phase.considered.push_back({o.name(), o.verdict.accepted(), o.verdict.refusals});
  return phase;
}

void Chooser::fail(const Part& part, const PhaseOffers& offered) {
  if (failure_.empty()) {
    const std::string what =
        join(part.group.kind, " layers (", name(offered.phase), ") on ", name(setting_.where));
    if (!offered.by_user()) {
      failure_ = join("no backend serves the ", what);
    } else {
      failure_ = join(offered.offers[0].name(), " cannot serve the ", what);
      std::vector<std::string> able;
      for (const Offer& o : automatic_offers(setting_, part.group.spec, offered.phase))
        if (o.verdict.accepted()) able.push_back(o.name());
      if (!able.empty()) failure_ += join("; ", one_of(able), " could");
    }
  }
  const auto same = [](const Refusal& a, const Refusal& b) {
    return a.backend == b.backend && a.rule == b.rule && a.wanted == b.wanted && a.have == b.have;
  };
  for (const Offer& o : offered.offers)
    for (const Refusal& r : o.verdict.refusals)
      if (std::none_of(refusals_.begin(), refusals_.end(),
                       [&](const Refusal& seen) { return same(seen, r); }))
        refusals_.push_back(r);
}

}  // namespace

Result<const CatalogEntry*> find_entry(const Catalog& catalog, std::string_view name,
                                       std::vector<std::string>& warnings) {
  std::vector<std::string_view> names;
  for (const CatalogEntry& entry : catalog.entries) {
    bool deprecated = false;
    if (answers_to(*entry.descriptor, name, deprecated)) {
      std::string warning = join("'", name, "' is a deprecated name of ", entry.descriptor->name);
      if (deprecated && std::find(warnings.begin(), warnings.end(), warning) == warnings.end())
        warnings.push_back(std::move(warning));
      return &entry;
    }
    names.push_back(entry.descriptor->name);
    for (std::string_view alias : entry.descriptor->aliases) names.push_back(alias);
    for (std::string_view alias : entry.descriptor->deprecated_aliases) names.push_back(alias);
  }
  std::string text = join("unknown attention backend '", name, "'");
  std::vector<std::string> near;
  for (std::string_view n : nearest(name, names)) near.emplace_back(n);
  text += near.empty() ? std::string("; `attune backends` lists them")
                       : join("; nearest: ", one_of(near));
  return invalid_argument(std::move(text));
}

Selection choose(const Catalog& catalog, const ModelQuery& query, const DeviceInfo& device,
                 const SelectionOptions& options) {
  return Chooser(catalog, query, device, options).run(query);
}

}  // namespace attune::registry
