// attune bench: cases timed on backends, in percent of what this machine can do; and two results
// held against each other.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "bench/growth.hpp"
#include "bench/report.hpp"
#include "bench/runner.hpp"
#include "bench/suite.hpp"
#include "cli/command.hpp"
#include "cli/selection_options.hpp"

namespace attune::cli {
namespace {

struct BenchOptions {
  CommonOptions common;
  std::string suite;
  std::vector<std::string> cases;
  std::vector<std::string> outputs;
};

struct CompareOptions {
  std::string old_path;
  std::string new_path;
  std::string max_regression = "5%";
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  while (begin <= list.size()) {
    std::size_t comma = list.find(',', begin);
    if (comma == std::string::npos) comma = list.size();
    if (comma > begin) words.push_back(list.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return words;
}

Result<std::vector<bench::Case>> wanted_cases(const BenchOptions& o, DeviceKind device) {
  if (!o.cases.empty() && !o.suite.empty())
    return invalid_argument("--suite and --case exclude each other: give one");
  if (o.cases.empty()) return bench::suite(o.suite.empty() ? "all" : o.suite, device);
  std::vector<bench::Case> cases;
  for (const std::string& list : o.cases) {
    for (const std::string& word : split(list)) {
      Result<bench::Case> c = bench::parse_case(word);
      if (!c.ok()) return c.status();
      cases.push_back(std::move(*c));
    }
  }
  if (cases.empty()) return invalid_argument("--case names no case");
  return cases;
}

/// The names asked for, or everything that could serve here; the reference is timed only when
/// named.
Result<std::vector<std::string>> wanted_backends(const Registry& registry, const BenchOptions& o,
                                                 const DeviceInfo& device) {
  std::vector<std::string> names;
  if (o.common.attention_backend != "auto") {
    for (const std::string& word : split(o.common.attention_backend)) {
      const Result<const BackendDescriptor*> found = registry.find(word);
      if (!found.ok()) return found.status();
      names.emplace_back((*found)->name);
    }
    if (names.empty()) return invalid_argument("--attention-backend names no backend");
    return names;
  }
  for (const BackendStanding& s : registry.standings(device))
    if (s.usable && s.descriptor->name != "reference") names.emplace_back(s.descriptor->name);
  if (names.empty())
    return unsupported("no backend but the reference is usable here: `attune backends` says why");
  return names;
}

void print_row(const bench::Row& row) {
  fmt::print("{:<52} {:<14} {:>10.4g} ms  {:>8.4g} TFLOP/s  {:>7.4g} GB/s  {:>5.1f} % {}\n",
             row.case_name, row.backend, row.ms, row.tflops, row.gbps, row.percent_of_ceiling,
             name(row.bound));
}

std::string why_of(const Status& refusal) {
  if (refusal.refusals().empty()) return refusal.text();
  const Refusal& first = refusal.refusals().front();
  return first.rule + ": wanted " + first.wanted + ", have " + first.have;
}

/// Of a case that has no row; of one that has, those of backends that were asked for.
void print_refusals(const bench::Case& c, bool served, const std::vector<std::string>& refusals) {
  if (refusals.empty()) return;
  fmt::print(stderr, "{}: {}\n", c.name, served ? "not on every backend" : "no backend serves it");
  for (const std::string& refusal : refusals) fmt::print(stderr, "  {}\n", refusal);
}

Result<std::unique_ptr<bench::Machine>> machine_of(const DeviceInfo& device, Executor& executor) {
  if (device.kind == DeviceKind::cuda) return bench::cuda_machine(device);
  return bench::host_machine(executor, device.isa);
}

int run_bench(const BenchOptions& o) {
  const Result<DeviceInfo> device = device_of(o.common);
  if (!device.ok()) return report(device.status());
  if (!device->present)
    return report(invalid_argument("--device " + o.common.device +
                                   " is not present: nothing can be timed on it"));
  for (const std::string& path : o.outputs)
    if (Status s = bench::check_output(path); !s.ok()) return report(s);
  const Result<std::vector<bench::Case>> cases = wanted_cases(o, device->kind);
  if (!cases.ok()) return report(cases.status());
  const Result<Registry> registry = open_registry(o.common);
  if (!registry.ok()) return report(registry.status());
  const auto backends = wanted_backends(*registry, o, *device);
  if (!backends.ok()) return report(backends.status());
  const int threads = thread_count(o.common);
  const auto executor = make_thread_pool(threads);
  if (!executor.ok()) return report(executor.status());
  const auto machine = machine_of(*device, **executor);
  if (!machine.ok()) return report(machine.status());

  bench::Report result{.device = *device, .threads = threads, .version = ATTUNE_VERSION};
  fmt::print(stderr, "measuring this machine's ceilings …\n");
  const Result<bench::Ceilings> ceilings = (*machine)->ceilings();
  if (!ceilings.ok()) return report(ceilings.status());
  result.ceilings = *ceilings;
  fmt::print(stderr, "reads {:.1f} GB/s, bf16 {:.3f} TFLOP/s ({}), fp32 {:.3f} TFLOP/s ({})\n",
             result.ceilings.bytes_per_s / 1e9, result.ceilings.bf16_flops / 1e12,
             result.ceilings.bf16_how, result.ceilings.f32_flops / 1e12, result.ceilings.f32_how);
  if (result.ceilings.int8_ops > 0.0)
    fmt::print(stderr, "int8 {:.3f} TOP/s ({})\n", result.ceilings.int8_ops / 1e12,
               result.ceilings.int8_how);
  Status last_refusal;
  for (const bench::Case& c : *cases) {
    std::vector<std::string> refusals;
    for (const std::string& backend : *backends) {
      const Result<bench::Row> row =
          bench::run_case(*registry, backend, c, *device, **machine, result.ceilings, {});
      if (row.ok()) {
        result.rows.push_back(*row);
        if (!o.common.json) print_row(*row);
        continue;
      }
      if (row.status().code() != StatusCode::unsupported) return report(row.status());
      last_refusal = row.status();
      refusals.push_back(backend + ": " + why_of(last_refusal));
    }
    const bool served = refusals.size() < backends->size();
    if (!served || o.common.attention_backend != "auto") print_refusals(c, served, refusals);
    for (const std::string& refusal : refusals) result.skipped.push_back(c.name + " " + refusal);
  }
  if (result.rows.empty()) return report(last_refusal);
  if (o.common.json) fmt::print("{}", bench::to_json(result));
  for (const std::string& path : o.outputs)
    if (Status s = bench::write_report(result, path); !s.ok()) return report(s);
  return kDone;
}

/// "5%" or "0.05" → 0.05
Result<double> parse_fraction(std::string text) {
  const bool percent = text.ends_with("%");
  if (percent) text.pop_back();
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0.0) ||
      std::isinf(value))
    return invalid_argument("--max-regression '" + text + "': wanted a share such as 5%");
  return percent ? value / 100.0 : value;
}

int run_growth(const std::vector<std::string>& paths) {
  const auto points = bench::read_growth(paths);
  if (!points.ok()) return report(points.status());
  const std::vector<bench::Growth> fits = bench::fit_growth(*points);
  if (fits.empty())
    return report(invalid_argument(
        "no rows differ in one number only; run attune bench --suite growth --output FILE.json, "
        "and with another --threads for a second file"));
  fmt::print("| series | N | ms | exponent | by the ceiling |\n| --- | --- | --- | --- | --- |\n");
  for (const bench::Growth& g : fits) {
    std::vector<std::string> ms;
    for (const double x : g.ms) ms.push_back(fmt::format("{:.3g}", x));
    fmt::print("| {} | {} {} | {} | {:.2f} | {:.2f} |\n", g.series, g.varies,
               fmt::join(g.values, ", "), fmt::join(ms, ", "), g.exponent, g.floor_exponent);
  }
  return kDone;
}

int run_compare(const CompareOptions& o) {
  const Result<double> limit = parse_fraction(o.max_regression);
  if (!limit.ok()) return report(limit.status());
  const auto changes = bench::compare(o.old_path, o.new_path, *limit);
  if (!changes.ok()) return report(changes.status());
  bool regressed = false;
  for (const bench::Change& c : *changes) {
    regressed = regressed || c.regressed;
    if (c.new_ms == 0.0) {
      fmt::print("{:<70} {:>10.4g} ms  gone\n", c.what, c.old_ms);
    } else {
      fmt::print("{:<70} {:>10.4g} → {:>10.4g} ms  {:+.1f} %{}\n", c.what, c.old_ms, c.new_ms,
                 100.0 * (c.new_ms / c.old_ms - 1.0), c.regressed ? "  REGRESSED" : "");
    }
  }
  return regressed ? kFailed : kDone;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* command =
      app.add_subcommand("bench", "time cases, in percent of what this machine can do at most");
  add_device_options(*command, o->common, Devices::present);
  command
      ->add_option("--attention-backend", o->common.attention_backend,
                   "names of the catalog, separated by commas; auto: all that are usable")
      ->check(not_empty())
      ->capture_default_str();
  add_threads_option(*command, o->common);
  command
      ->add_option("--suite", o->suite,
                   "prefill, decode, mla, linear, cascade, sparse, growth or all")
      ->check(not_empty());
  command->add_option(
      "--case", o->cases,
      "cases by name, separated by commas, e.g. gqa/decode/bf16/hd128/gqa4/page16/b1x16384");
  command
      ->add_option("--output", o->outputs,
                   "a file to write, by its ending .json, .csv or .html; repeatable")
      ->take_all();

  auto c = std::make_shared<CompareOptions>();
  CLI::App* compare = command->add_subcommand(
      "compare", "hold a new result against an old one; exits 1 on a regression");
  compare->add_option("OLD", c->old_path, "JSON of an earlier run")->required();
  compare->add_option("NEW", c->new_path, "JSON of a later run")->required();
  compare->add_option("--max-regression", c->max_regression, "how much slower a case may get")
      ->capture_default_str();
  compare->callback([c, &exit_code] { exit_code = run_compare(*c); });
  auto paths = std::make_shared<std::vector<std::string>>();
  CLI::App* growth = command->add_subcommand(
      "growth", "fit how time grows with length, batch, heads and threads, as a markdown table");
  growth->add_option("FILE", *paths, "JSON of runs on one device, e.g. of --suite growth")
      ->required();
  growth->callback([paths, &exit_code] { exit_code = run_growth(*paths); });
  add_examples_and_backends(
      *command, {"attune bench --suite decode --output new.json --output new.html",
                 "attune bench --case gqa/decode/bf16/hd128/gqa4/page16/b1x16384 --threads 1",
                 "attune bench compare old.json new.json --max-regression 5%"});
  command->callback([o, compare, growth, &exit_code] {
    if (!compare->parsed() && !growth->parsed()) exit_code = run_bench(*o);
  });
}

}  // namespace attune::cli
