// attune explain: which backend serves each group of layers and phase of a model, why, and what
// stands against the others. Reads a configuration, never weights, and opens no library.
#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/command.hpp"
#include "cli/explain_memory.hpp"
#include "cli/selection_options.hpp"
#include "model/attention_groups.hpp"
#include "model/checkpoint.hpp"
#include "model/config_parse.hpp"
#include "model/described_family.hpp"
#include "model/draft_worker.hpp"
#include "model/rank_split.hpp"

namespace attune::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainOptions {
  CommonOptions common;
  bool assume_built = false;
  bool memory = false;
  std::string memory_limit;
  int speculative_topk = 0;
  bool deterministic = false;
  bool no_prefix_cache = false;
  std::optional<std::string> draft_worker;
  int ranks = 1;
};

Result<model::ModelConfig> read_config(const std::string& path,
                                       const model::LinearFamilies& families) {
  if (path.empty())
    return invalid_argument(
        "--model is missing: a config.json, a folder that holds one, or a .gguf file");
  if (!path.ends_with(".gguf")) return model::load_config(path, &families);
  Result<model::Checkpoint> checkpoint =
      model::open_checkpoint(path);  // maps the file, reads its head
  if (!checkpoint.ok()) return checkpoint.status();
  return std::move(checkpoint->config);
}

/// The model that is asked about: the target or its draft worker, or one rank of it.
Result<model::ModelConfig> subject_of(const ExplainOptions& o,
                                      const model::LinearFamilies& families) {
  Result<model::ModelConfig> subject = read_config(o.common.model, families);
  if (subject.ok() && o.draft_worker) {
    const auto layers = model::parse_draft_layers(*o.draft_worker);
    if (!layers.ok()) return layers.status();
    subject = model::draft_worker(*subject, *layers);
  }
  if (!subject.ok() || o.ranks == 1) return subject;
  return model::rank_of(*subject, o.ranks);
}

Json refusals_json(const std::vector<Refusal>& refusals) {
  Json out = Json::array();
  for (const Refusal& r : refusals)
    out.push_back({{"rule", r.rule}, {"wanted", r.wanted}, {"have", r.have}});
  return out;
}

/// One object a group and phase, as the contract has it.
Json groups_json(const Selection& selection) {
  Json out = Json::array();
  for (const GroupSelection& g : selection.groups) {
    for (const PhaseSelection& p : g.phases) {
      Json row = {{"layers", g.group.layers},
                  {"kind", g.group.kind},
                  {"phase", name(p.phase)},
                  {"backend", p.backend.empty() ? Json() : Json(p.backend)},
                  {"page_size", g.page_size > 0 ? Json(g.page_size) : Json()},
                  {"kv_layout", g.kv_layout ? Json(name(*g.kv_layout)) : Json()},
                  {"kv_dtype", name(g.group.spec.kv_dtype)},
                  {"chosen_by", name(p.chosen_by)},
                  {"why", p.why},
                  {"considered", Json::array()}};
      if (g.group.encoder) row["encoder"] = true;
      for (const Consideration& c : p.considered)
        row["considered"].push_back(
            {{"name", c.name}, {"accepted", c.accepted}, {"refusals", refusals_json(c.refusals)}});
      out.push_back(std::move(row));
    }
  }
  return out;
}

std::string reasons(const Consideration& c) {
  std::string text;
  for (const Refusal& r : c.refusals)
    text +=
        fmt::format("{}{}: wants {}, have {}", text.empty() ? "" : "; ", r.rule, r.wanted, r.have);
  return text;
}

/// `before`: the phase already shown, of which only differences are repeated.
void print_phase(const PhaseSelection& p, const PhaseSelection* before) {
  fmt::print("  {:<8} {}  ({})\n", name(p.phase), p.backend.empty() ? "nobody" : p.backend,
             p.backend.empty() ? "every candidate refuses"
                               : fmt::format("{}: {}", name(p.chosen_by), p.why));
  for (const Consideration& c : p.considered) {
    const auto known = [&](const Consideration& b) {
      return b.name == c.name && reasons(b) == reasons(c);
    };
    if (before != nullptr &&
        std::any_of(before->considered.begin(), before->considered.end(), known))
      continue;
    fmt::print("    {:<22} {:<4} {}\n", c.name, c.accepted ? "yes" : "no",
               c.name == p.backend ? "<- chosen" : reasons(c));
  }
}

void print_text(const model::ModelConfig& config, const DeviceInfo& device,
                const Selection& selection) {
  fmt::print("{} ({} layers) on {}{}\n", config.architecture, config.num_layers(), device.name,
             device.present ? "" : " (imagined)");
  for (const GroupSelection& g : selection.groups) {
    fmt::print("\n{}{} layers {}", g.group.encoder ? "encoder: " : "", g.group.kind,
               layer_ranges(g.group.layers));
    if (g.page_size > 0) fmt::print(", page size {}", g.page_size);
    if (g.kv_layout) fmt::print(", {}", name(*g.kv_layout));
    fmt::print(", {}\n", name(g.group.spec.kv_dtype));
    const PhaseSelection* before = nullptr;
    for (const PhaseSelection& p : g.phases) {
      print_phase(p, before);
      before = &p;
    }
  }
  const bool keeps_states = std::ranges::any_of(
      selection.groups, [](const GroupSelection& g) { return is_linear(g.group.spec.variant); });
  if (keeps_states && selection.page_size == 0)
    fmt::print("\nno layer keeps keys: this model needs no KV pages\n");
}

int run_explain(const ExplainOptions& o) {
  const auto families = model::families_of_plugins(o.common.plugins);
  if (!families.ok()) return report(families.status());
  const Result<model::ModelConfig> config = subject_of(o, **families);
  if (!config.ok()) return report(config.status());
  const Result<DeviceInfo> device = device_of(o.common);
  if (!device.ok()) return report(device.status());
  Result<SelectionOptions> options = selection_options(o.common);
  if (!options.ok()) return report(options.status());
  const Result<Registry> registry = open_registry(o.common);
  if (!registry.ok()) return report(registry.status());
  Result<std::int64_t> limit = std::int64_t{0};
  if (!o.memory_limit.empty()) limit = parse_bytes(o.memory_limit);
  if (!limit.ok()) return report(limit.status());

  options->assume_built = o.assume_built;
  options->speculative_topk = o.speculative_topk;
  options->prefix_cache = !o.no_prefix_cache;
  if (o.deterministic) options->required = Feature::deterministic;
  model::name_family_backends(*config, *options);
  const ModelQuery query{config->architecture,
                         model::attention_groups(*config, model::auto_dtypes(*config, *device))};
  const Selection selection = registry->explain(query, *device, *options);
  const bool memory = o.memory || !o.memory_limit.empty();
  for (const std::string& warning : selection.warnings) fmt::print(stderr, "attune: {}\n", warning);

  if (o.common.json) {
    Json out = {{"model", o.common.model},
                {"architecture", config->architecture},
                {"device", device->name},
                {"assume_built", o.assume_built},
                {"ranks", o.ranks},
                {"page_size", selection.page_size > 0 ? Json(selection.page_size) : Json()},
                {"groups", groups_json(selection)},
                {"fallbacks", selection.fallbacks},
                {"warnings", selection.warnings}};
    if (memory) out["memory"] = Json::parse(memory_json(*config, selection, *limit));
    if (!selection.status.ok()) out["error"] = selection.status.text();
    fmt::print("{}\n", out.dump(2));
  } else if (!selection.groups.empty()) {
    print_text(*config, *device, selection);
    if (memory) fmt::print("\n{}", memory_text(*config, selection, *limit));
  }
  return report(selection.status);
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand(
      "explain", "which backend serves each layer group and phase of a model, and why");
  add_model_option(*command, options->common,
                   "a config.json, a folder in Hugging Face layout, or a .gguf file");
  add_device_options(*command, options->common, Devices::imagined);
  add_selection_options(*command, options->common);
  add_examples_and_backends(*command,
                            {"attune explain --model config.json",
                             "attune explain --model config.json --device cuda:sm90 --assume-built",
                             "attune explain --model config.json --memory --memory-limit 24GiB"});
  command->add_flag("--assume-built", options->assume_built,
                    "answer as if every catalog entry had its kernel");
  command->add_flag("--memory", options->memory,
                    "add bytes of KV and state per token and per request");
  command
      ->add_option("--memory-limit", options->memory_limit, "and what fits in so much, e.g. 24GiB")
      ->check(not_empty());
  command
      ->add_option("--speculative-topk", options->speculative_topk,
                   "draft tokens kept a step: 0 = no speculation, 1 = a chain, more = a tree")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  command->add_option("--draft-worker", options->draft_worker,
                      "answer for the model's draft worker, whose layers are listed in order: full "
                      "or linear, e.g. full,linear");
  command
      ->add_option("--ranks", options->ranks,
                   "answer for one of so many devices that share the model's heads")
      ->capture_default_str();
  command->add_flag("--deterministic", options->deterministic, "ask for the same bits every run");
  command->add_flag("--no-prefix-cache", options->no_prefix_cache,
                    "prefixes are not reused across requests");
  command->callback([options, &exit_code] { exit_code = run_explain(*options); });
}

}  // namespace attune::cli
