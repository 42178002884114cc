// attune verify: every usable backend against the fp64 reference, or golden models.
#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <memory>
#include <utility>

#include "cli/command.hpp"
#include "cli/model_options.hpp"
#include "cli/verify_golden.hpp"
#include "conformance/device_memory.hpp"
#include "conformance/suite.hpp"
#include "device/thread_pool.hpp"

namespace attune::cli {
namespace {

using conformance::CaseResult;
using conformance::SuiteReport;
using Json = nlohmann::ordered_json;

struct VerifyOptions {
  CommonOptions common;
  std::string cases = "smoke";
  std::string match = "*";
  std::vector<std::string> golden;
};

/// The backend of --attention-backend, or every one that this device can use.
Result<std::vector<const BackendDescriptor*>> subjects(const VerifyOptions& o,
                                                       const Registry& registry,
                                                       const DeviceInfo& device) {
  std::vector<const BackendDescriptor*> found;
  const bool all = o.common.attention_backend == "auto";
  const BackendDescriptor* wanted = nullptr;
  if (!all) {
    const Result<const BackendDescriptor*> named = registry.find(o.common.attention_backend);
    if (!named.ok()) return named.status();
    wanted = *named;
  }
  for (const BackendStanding& standing : registry.standings(device)) {
    if (wanted != nullptr && standing.descriptor != wanted) continue;
    if (standing.usable) found.push_back(standing.descriptor);
    if (wanted != nullptr && !standing.usable) {
      return unsupported(std::string(wanted->name) + " cannot run on " + device.name,
                         standing.reasons);
    }
  }
  return found;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

void print_report(const SuiteReport& report, const VerifyOptions& o) {
  using conformance::Verdict;
  const int passed = report.count(Verdict::passed);
  const int failed = report.count(Verdict::failed);
  const int skipped = report.count(Verdict::skipped);
  if (o.common.json) {
    Json out = {{"passed", passed}, {"failed", failed}, {"skipped", skipped}};
    out["cases"] = Json::array();
    for (const CaseResult& r : report.cases)
      out["cases"].push_back({{"name", r.name},
                              {"backend", r.backend},
                              {"status", name(r.outcome.verdict)},
                              {"reason", r.outcome.reason},
                              {"max_abs_err", number(r.outcome.max_abs_err)},
                              {"max_rel_err", number(r.outcome.max_rel_err)},
                              {"tolerance", number(r.outcome.tolerance)}});
    fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  for (const CaseResult& r : report.cases) {
    if (r.outcome.verdict == Verdict::passed) continue;
    fmt::print("{:<8} {:<14} {}: {}\n", name(r.outcome.verdict), r.backend, r.name,
               r.outcome.reason);
  }
  fmt::print("{} passed, {} failed, {} skipped\n", passed, failed, skipped);
}

int verify(const VerifyOptions& o) {
  if (!o.golden.empty()) return verify_golden(o.common, o.golden);
  const Result<DeviceInfo> device = device_of(o.common);
  if (!device.ok()) return report(device.status());
  if (device->kind != DeviceKind::cpu) {
    return report(
        unsupported("attune verify --cases runs on cpu; the tests of libattune_cuda.so "
                    "hold its backends to the same suite"));
  }
  const Result<Registry> registry = open_registry(o.common);
  if (!registry.ok()) return report(registry.status());
  const auto backends = subjects(o, *registry, *device);
  if (!backends.ok()) return report(backends.status());
  auto threads = device::ThreadPool::make({.num_threads = thread_count(o.common, *device)});
  if (!threads.ok()) return report(threads.status());
  const auto memory = conformance::host_memory();

  SuiteReport all;
  for (const BackendDescriptor* descriptor : *backends) {
    const auto make_named = [&](std::string_view name) {
      return [&registry, name](const BackendContext& context) {
        return registry->make(name, context);
      };
    };
    const conformance::Subject subject{.descriptor = descriptor,
                                       .make = make_named(descriptor->name),
                                       .oracle = make_named("reference"),
                                       .device = *device,
                                       .executor = threads->get(),
                                       .memory = memory.get()};
    SuiteReport one = conformance::run_suite(
        subject, {.full = o.cases == "full", .match = o.match}, [](const CaseResult& r) {
          if (r.outcome.verdict == conformance::Verdict::failed)
            fmt::print(stderr, "failed {} {}\n", r.backend, r.name);
        });
    all.cases.insert(all.cases.end(), std::make_move_iterator(one.cases.begin()),
                     std::make_move_iterator(one.cases.end()));
  }
  if (all.cases.empty()) return report(invalid_argument("no case matches '" + o.match + "'"));
  print_report(all, o);
  return all.ok() ? kDone : kFailed;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "verify", "every usable backend against the fp64 reference, or golden models");
  auto options = std::make_shared<VerifyOptions>();
  add_common_options(*command, options->common);
  command->add_option("--cases", options->cases, "smoke or full")
      ->check(CLI::IsMember({"smoke", "full"}))
      ->capture_default_str();
  command->add_option("--match", options->match, "of case names: * any text, ? any character")
      ->capture_default_str();
  command->add_option("--golden", options->golden,
                      "folders of checkpoints with golden.safetensors, or of such folders");
  command->callback([options, &exit_code] { exit_code = verify(*options); });
}

}  // namespace attune::cli
