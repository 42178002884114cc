#include "registry/tables.hpp"

#include <algorithm>

#include "base/join.hpp"
#include "registry/fields.hpp"
#include "registry/preference.hpp"

namespace attune::registry {
namespace {

using base::join;

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

template <class List, class ToText>
std::string json_list(const List& list, ToText to_text) {
  std::string out = "[";
  for (const auto& item : list) {
    if (out.size() > 1) out += ", ";
    out += to_text(item);
  }
  return out + "]";
}

/// Fields that hold one value, and those that hold numbers.
bool is_single(std::string_view field) {
  return field == "device" || field == "status" || field == "isa" || field == "max_head_dim" ||
         field == "head_dim_multiple";
}
bool is_number(std::string_view field) {
  return field == "max_head_dim" || field == "head_dim_multiple" || field == "gqa_group_sizes" ||
         field == "page_sizes";
}

std::string json_of(const Capability& row) {
  std::string out = "{";
  for (const Field& field : fields_of(row)) {
    if (out.size() > 1) out += ", ";
    const auto value = [&](const std::string& v) { return is_number(field.name) ? v : quoted(v); };
    out += join(quoted(field.name), ": ",
                is_single(field.name) ? value(field.values[0]) : json_list(field.values, value));
  }
  return out + "}";
}

std::string json_of(const BackendDescriptor& d) {
  std::string aliases;
  for (const auto& [list, deprecated] :
       {std::pair{&d.aliases, "false"}, {&d.deprecated_aliases, "true"}})
    for (std::string_view alias : *list)
      aliases += join(aliases.empty() ? "" : ", ", "{\"name\": ", quoted(alias),
                      ", \"deprecated\": ", deprecated, "}");
  return join("{\"name\": ", quoted(d.name), ", \"aliases\": [", aliases,
              "], \"built\": ", quoted(name(d.status())), ", \"summary\": ", quoted(d.summary),
              ", \"needs\": ", quoted(d.needs), ", \"paper\": ", quoted(d.paper),
              ", \"capabilities\": ",
              json_list(d.capabilities, [](const Capability& c) { return json_of(c); }), "}");
}

const Field* find(const std::vector<Field>& fields, std::string_view name) {
  const auto it =
      std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
  return it == fields.end() ? nullptr : &*it;
}

std::string where_text(const std::vector<Field>& fields) {
  std::string text = find(fields, "device")->values[0];
  if (const Field* sm = find(fields, "sm")) text += " SM " + comma_list(sm->values);
  if (const Field* archs = find(fields, "archs"); archs != nullptr && !archs->values.empty())
    text += " " + comma_list(archs->values);
  if (const Field* isa = find(fields, "isa"); isa != nullptr && isa->values[0] != "scalar")
    text += " " + isa->values[0];
  return text;
}

std::string dims_text(const std::vector<Field>& fields) {
  const Field* most = find(fields, "max_head_dim");
  const Field* multiple = find(fields, "head_dim_multiple");
  std::string any = multiple == nullptr ? "" : "multiples of " + multiple->values[0];
  if (most != nullptr) any += (any.empty() ? "up to " : " up to ") + most->values[0];
  if (any.empty()) any = "any";
  return comma_list(find(fields, "head_dims")->values, any);
}

template <class List>
std::string names_of(const List& list) {
  std::vector<std::string> words;
  for (auto item : list) words.emplace_back(name(item));
  return comma_list(words);
}

std::string condition(When when) {
  return when == When::always ? "" : join(" *(", text(when), ")*");
}

std::string devices_text(const FixedList<DeviceClass, 11>& devices) {
  if (devices.empty() || devices.size() == kEverywhere.size()) return "everywhere";
  return names_of(devices);
}

template <std::size_t N>
std::string words_of(const FixedList<std::string_view, N>& list, std::string_view otherwise) {
  return comma_list(std::vector<std::string>(list.begin(), list.end()), otherwise);
}

constexpr std::string_view kGenerated =
    "<!-- Written by `attune tables`; change the descriptors instead. -->\n";

}  // namespace

std::string backends_json(Descriptors backends) {
  return json_list(backends, [](const BackendDescriptor* d) { return json_of(*d); }) + "\n";
}

std::string backends_help(Descriptors backends) {
  std::size_t width = 0;
  for (const BackendDescriptor* d : backends) width = std::max(width, d->name.size());
  std::string text;
  for (const BackendDescriptor* d : backends)
    text += join("  ", d->name, std::string(width + 2 - d->name.size(), ' '), d->summary,
                 d->status() == BackendStatus::not_built ? " (not built)" : "", "\n");
  return text;
}

std::string backends_markdown(Descriptors backends) {
  std::string text(kGenerated);
  text +=
      "\n# Backends\n\nEvery name the project knows. A row is what the kernels of that name can do "
      "for some variants on one "
      "kind of\ndevice; whatever a row does not name is refused with a reason. `not_built` rows "
      "are described, never "
      "faked;\n`unproven` ones were built and emulated, but never ran on their device: they serve "
      "when "
      "named and are never chosen.\n\n"
      "| backend | device | variants | phases | q types | KV types | head dims | GQA groups | page "
      "sizes | layouts | "
      "status |\n|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const BackendDescriptor* d : backends) {
    for (const Capability& row : d->capabilities) {
      const std::vector<Field> f = fields_of(row);
      const auto cell = [&](std::string_view field, std::string_view otherwise) {
        return comma_list(find(f, field)->values, otherwise);
      };
      const bool linear = row.kv_layouts.empty();
      text += join("| `", d->name, "` | ", where_text(f), " | ", cell("variants", ""), " | ",
                   cell("phases", ""), " | ", cell("q_dtypes", ""), " | ", cell("kv_dtypes", ""),
                   " | ", linear ? "any" : dims_text(f), " | ", cell("gqa_group_sizes", "any"),
                   " | ", linear ? "none" : cell("page_sizes", "1 to 256"), " | ",
                   cell("kv_layouts", "none"), " | ", cell("status", ""), " |\n");
    }
  }
  for (const BackendDescriptor* d : backends) {
    text += join("\n## ", d->name, "\n\n", d->summary, ".");
    if (!d->paper.empty()) text += join(" Source: ", d->paper, ".");
    if (!d->needs.empty() && d->needs != "nothing") text += join(" Needs: ", d->needs, ".");
    if (!d->aliases.empty()) text += join(" Also: ", words_of(d->aliases, ""), ".");
    if (!d->deprecated_aliases.empty())
      text += join(" Deprecated names: ", words_of(d->deprecated_aliases, ""), ".");
    text += "\n\n";
    for (const Capability& row : d->capabilities) {
      const std::vector<Field> f = fields_of(row);
      text += join("- ", where_text(f), ", ", comma_list(find(f, "variants")->values), ": ",
                   comma_list(find(f, "features")->values, "no feature beyond the least"), "\n");
    }
  }
  return text;
}

std::string selection_markdown() {
  std::string text(kGenerated);
  text +=
      "\n# Selection\n\nAn automatic choice tries the rule of the model's architecture, then the "
      "row of its device, variant "
      "and phase, in order.\nThe first that no rule refuses is taken. A name that this build does "
      "not have is passed over; "
      "a built one that refuses\nmakes the next one a fallback, which is named and counted "
      "(`--fallback`). A name given by "
      "the user is never replaced.\nPrefill, decode and all groups of layers share one page size; "
      "the two phases of a group "
      "share one KV layout.\n`attune explain` shows all of it for one model and device.\n\n## "
      "Defaults\n\n"
      "| device | variants | in order |\n|---|---|---|\n";
  for (const PreferenceRow& row : kPreferences) {
    std::vector<std::string> words;
    for (const Candidate& c : row.candidates)
      words.push_back(join("`", c.name, "`", condition(c.when)));
    text += join("| ", devices_text(row.devices), " | ", names_of(row.variants), " | ",
                 comma_list(words), " |\n");
  }
  text +=
      "\n## Architectures\n\nBefore the row, on these devices; an architecture is matched by the "
      "beginning of its name in "
      "`config.json`.\n\n| architecture | device | takes |\n|---|---|---|\n";
  for (const ModelRule& rule : kModelRules) {
    text += join("| ", words_of(rule.architectures, ""), " | ", devices_text(rule.devices), " | `",
                 rule.backend, "`", condition(rule.when));
    if (rule.phases.size() == 1) text += join(" for ", name(rule.phases[0]));
    if (rule.page_size > 0) text += join(", page size ", rule.page_size);
    text += " |\n";
  }
  text +=
      "\n## Exclusions\n\n| architecture | device | allowed | denied | because "
      "|\n|---|---|---|---|---|\n";
  for (const ModelConstraint& c : kModelConstraints)
    text += join("| ", words_of(c.architectures, "any"), condition(c.when), " | ",
                 devices_text(c.devices), " | ", words_of(c.allowed, "all others"), " | ",
                 words_of(c.denied, "all others"), " | ", c.because, " |\n");
  text +=
      "\n## Cache types that `auto` means\n\nElsewhere: the checkpoint's own.\n\n| variant | "
      "device | type |\n|---|---|---|\n";
  for (const CacheTypeRule& rule : kCacheTypes)
    text += join("| ", name(rule.variant), " | ", devices_text(rule.devices), " | ",
                 name(rule.kv_dtype), " |\n");
  return text;
}

}  // namespace attune::registry
