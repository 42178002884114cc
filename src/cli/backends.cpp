// attune backends: every name, what it can do, and how it stands on this machine or an imagined
// one.
#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <memory>

#include "cli/command.hpp"
#include "cli/selection_options.hpp"
#include "registry/fields.hpp"
#include "registry/tables.hpp"

namespace attune::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BackendsOptions {
  CommonOptions common;
};

const char* status_word(const BackendStanding& s) {
  if (s.usable) return "usable";
  return s.built ? "unusable" : "not_built";
}

Json device_json(const DeviceInfo& d) {
  Json out = {{"kind", name(d.kind)}, {"name", d.name}, {"present", d.present}};
  if (d.kind == DeviceKind::cpu) out["isa"] = name(d.isa);
  if (d.kind == DeviceKind::cuda) out["sm"] = d.sm;
  if (d.kind == DeviceKind::hip) out["arch"] = d.arch;
  return out;
}

int print_json(const Registry& registry, const DeviceInfo& device,
               const std::vector<BackendStanding>& standings) {
  Json out = {{"device", device_json(device)}, {"backends", Json::array()}};
  const Json descriptors = Json::parse(registry::backends_json(registry.list()));
  for (std::size_t i = 0; i < standings.size(); ++i) {
    Json row = {{"name", descriptors[i]["name"]},
                {"aliases", descriptors[i]["aliases"]},
                {"status", status_word(standings[i])},
                {"reasons", Json::array()}};
    for (const Refusal& r : standings[i].reasons)
      row["reasons"].push_back({{"rule", r.rule}, {"wanted", r.wanted}, {"have", r.have}});
    row.update(descriptors[i]);
    out["backends"].push_back(std::move(row));
  }
  fmt::print("{}\n", out.dump(2));
  return kDone;
}

/// The values of one field over all rows of a backend, each once.
std::string over_rows(const BackendDescriptor& d, std::string_view field,
                      std::string_view otherwise) {
  std::vector<std::string> words;
  for (const Capability& row : d.capabilities)
    for (const registry::Field& f : registry::fields_of(row)) {
      if (f.name != field) continue;
      for (const std::string& value : f.values)
        if (std::find(words.begin(), words.end(), value) == words.end()) words.push_back(value);
    }
  return registry::comma_list(words, otherwise);
}

int print_text(const DeviceInfo& device, const std::vector<BackendStanding>& standings) {
  fmt::print("on {}{}\n", device.name, device.present ? "" : " (imagined)");
  for (const BackendStanding& s : standings) {
    const BackendDescriptor& d = *s.descriptor;
    std::string names(d.name);
    for (std::string_view alias : d.aliases) names += fmt::format(", {}", alias);
    for (std::string_view alias : d.deprecated_aliases)
      names += fmt::format(", {} (deprecated)", alias);
    fmt::print("\n{:<24} {:<10} {}\n", names, status_word(s), d.summary);
    fmt::print("    {}; {}; {}; KV {}; pages {}; head dims {}\n", over_rows(d, "device", ""),
               over_rows(d, "variants", ""), over_rows(d, "phases", ""),
               over_rows(d, "kv_dtypes", ""), over_rows(d, "page_sizes", "any"),
               over_rows(d, "head_dims", "any"));
    for (const Refusal& r : s.reasons)
      fmt::print("    no   {}: wants {}, have {}\n", r.rule, r.wanted, r.have);
  }
  return kDone;
}

int run_backends(const BackendsOptions& options) {
  const Result<DeviceInfo> device = device_of(options.common);
  if (!device.ok()) return report(device.status());
  const Result<Registry> registry = open_registry(options.common);
  if (!registry.ok()) return report(registry.status());
  const std::vector<BackendStanding> standings = registry->standings(*device);
  return options.common.json ? print_json(*registry, *device, standings)
                             : print_text(*device, standings);
}

}  // namespace

void add_backends(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<BackendsOptions>();
  CLI::App* command =
      app.add_subcommand("backends", "every attention backend and how it stands on a device");
  add_device_options(*command, options->common, Devices::imagined);
  add_examples(*command, {"attune backends", "attune backends --device cuda:sm90 --json"});
  command->callback([options, &exit_code] { exit_code = run_backends(*options); });
}

}  // namespace attune::cli
