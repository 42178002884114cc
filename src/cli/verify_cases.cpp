#include "cli/verify_cases.hpp"

#include <unistd.h>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include <attune/registry.hpp>

#include "cli/selection_options.hpp"
#include "conformance/cuda_memory.hpp"
#include "conformance/suite.hpp"
#include "device/thread_pool.hpp"

namespace attune::cli {
namespace {

using Json = nlohmann::ordered_json;
using conformance::CapabilityResult;
using conformance::CaseResult;
using conformance::SuiteReport;
using conformance::Verdict;

/// JSON has no infinity; an error beyond all bounds is no number there.
Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json to_json(const CaseResult& r) {
  return {{"name", r.name},
          {"backend", r.backend},
          {"status", name(r.outcome.verdict)},
          {"reason", r.outcome.reason},
          {"max_abs_err", number(r.outcome.max_abs_err)},
          {"max_rel_err", number(r.outcome.max_rel_err)},
          {"tolerance", number(r.outcome.tolerance)}};
}

/// One entry for a backend that cannot run here at all.
CaseResult skip_of(const BackendStanding& standing) {
  std::string reason;
  for (const Refusal& r : standing.reasons)
    reason += fmt::format("{}{}: wanted {}, have {}", reason.empty() ? "" : "; ", r.rule, r.wanted,
                          r.have);
  return {.name = "*",
          .backend = std::string(standing.descriptor->name),
          .outcome = conformance::skipped(std::move(reason))};
}

void append(SuiteReport& all, SuiteReport&& more) {
  all.cases.insert(all.cases.end(), std::make_move_iterator(more.cases.begin()),
                   std::make_move_iterator(more.cases.end()));
  all.capabilities.insert(all.capabilities.end(), more.capabilities.begin(),
                          more.capabilities.end());
}

/// On a terminal each case as it is done; elsewhere a line now and then, so that a log of a long
/// run shows that it lives.
class Progress {
 public:
  ~Progress() {
    if (terminal_) fmt::print(stderr, "\r\x1b[K");
  }
  void count(const CaseResult& r) {
    ++num_cases_;
    if (terminal_) {
      fmt::print(stderr, "\r\x1b[K{} {} {}", num_cases_, r.backend, r.name);
      return;
    }
    constexpr std::chrono::seconds kQuiet{10};
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < kQuiet) return;
    last_ = now;
    fmt::print(stderr, "attune: {} cases done, now {} {}\n", num_cases_, r.backend, r.name);
  }
  [[nodiscard]] int num_cases() const { return num_cases_; }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  int num_cases_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

Status no_such_case(const VerifyCasesOptions& which) {
  return invalid_argument(
      fmt::format("--match {}: no case of {} has such a name; names look like "
                  "gqa/decode/bf16/hd128/gqa4/page16/b6x333/pages_permuted",
                  which.match, which.cases));
}

Status nobody_declares(const VerifyCasesOptions& which, const DeviceInfo& device) {
  std::string words;
  for (const Feature f : kAllFeatures)
    if (which.declared.has(f)) words += fmt::format("{}{}", words.empty() ? "" : ", ", name(f));
  return unsupported(
      fmt::format("no backend asked about declares {} on {}: there is nothing to "
                  "verify; `attune backends` lists who does where",
                  words, name(device.kind)));
}

void print_json(const SuiteReport& report) {
  Json out;
  out["passed"] = report.count(Verdict::passed);
  out["failed"] = report.count(Verdict::failed);
  out["skipped"] = report.count(Verdict::skipped);
  out["cases"] = Json::array();
  for (const CaseResult& r : report.cases) out["cases"].push_back(to_json(r));
  out["capabilities"] = Json::array();
  for (const CapabilityResult& c : report.capabilities)
    out["capabilities"].push_back({{"backend", c.backend},
                                   {"capability", c.capability},
                                   {"exercised", c.exercised},
                                   {"skipped", c.skipped},
                                   {"reason", c.reason}});
  fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_text(const SuiteReport& report) {
  for (const CaseResult& r : report.cases) {
    if (r.outcome.verdict == Verdict::passed) continue;
    const std::string what = r.name == "*" ? r.backend : r.backend + " " + r.name;
    fmt::print("{} {}: {}\n", name(r.outcome.verdict), what, r.outcome.reason);
  }
  fmt::print("\n{:<16} {:>7} {:>7} {:>7}   {:>8} {:>9} {:>7}   {:>7}\n", "backend", "passed",
             "failed", "skipped", "declared", "exercised", "skipped", "seconds");
  std::vector<std::string> backends;
  for (const CaseResult& r : report.cases)
    if (r.name != "*" && std::find(backends.begin(), backends.end(), r.backend) == backends.end())
      backends.push_back(r.backend);
  for (const std::string& backend : backends) {
    SuiteReport own;
    double seconds = 0.0;
    for (const CaseResult& r : report.cases) {
      if (r.backend != backend) continue;
      own.cases.push_back(r);
      seconds += r.seconds;
    }
    int declared = 0;
    int exercised = 0;
    int skipped = 0;
    for (const CapabilityResult& c : report.capabilities) {
      if (c.backend != backend) continue;
      ++declared;
      exercised += c.exercised > 0 ? 1 : 0;
      skipped += c.exercised == 0 && c.skipped > 0 ? 1 : 0;
    }
    fmt::print("{:<16} {:>7} {:>7} {:>7}   {:>8} {:>9} {:>7}   {:>7.1f}\n", backend,
               own.count(Verdict::passed), own.count(Verdict::failed), own.count(Verdict::skipped),
               declared, exercised, skipped, seconds);
  }
}

}  // namespace

int verify_cases(const CommonOptions& options, const VerifyCasesOptions& which) {
  const Result<DeviceInfo> device = device_of(options);
  if (!device.ok()) return report(device.status());
  const bool cuda = device->kind == DeviceKind::cuda;
  if ((device->kind != DeviceKind::cpu && !cuda) || !device->present)
    return report(unsupported(fmt::format(
        "verify --cases runs on this machine's CPU or GPU, not on {}: it needs memory it can read "
        "back",
        options.device)));
  auto registry = open_registry(options);
  if (!registry.ok()) return report(registry.status());
  const bool one = options.attention_backend != "auto";
  const BackendDescriptor* wanted = nullptr;
  if (one) {
    const auto found = registry->find(options.attention_backend);
    if (!found.ok()) return report(found.status());
    wanted = *found;
  }
  auto pool = device::ThreadPool::make({.num_threads = thread_count(options)});
  if (!pool.ok()) return report(pool.status());
  auto memory =
      cuda ? conformance::cuda_memory(*device)
           : Result<std::unique_ptr<conformance::DeviceMemory>>(conformance::host_memory());
  if (!memory.ok()) return report(memory.status());
  Progress progress;
  SuiteReport all;
  for (const BackendStanding& standing : registry->standings(*device)) {
    if (one && standing.descriptor != wanted) continue;
    if (!standing.usable) {
      if (one)
        return report(unsupported(
            fmt::format("{} cannot run on {}", standing.descriptor->name, name(device->kind)),
            standing.reasons));
      all.cases.push_back(skip_of(standing));
      continue;
    }
    const std::string_view backend = standing.descriptor->name;
    const conformance::Subject subject{
        .descriptor = standing.descriptor,
        .make = [&, backend](const BackendContext& c) { return registry->make(backend, c); },
        .oracle = [&](const BackendContext& c) { return registry->make("reference", c); },
        .device = *device,
        .executor = pool->get(),
        .memory = memory->get()};
    append(all, conformance::run_suite(subject,
                                       {.full = which.cases == "full",
                                        .match = which.match,
                                        .seed = options.seed,
                                        .declared = which.declared},
                                       [&](const CaseResult& r) { progress.count(r); }));
  }
  if (progress.num_cases() == 0)
    return report(which.declared.bits() != 0 ? nobody_declares(which, *device)
                                             : no_such_case(which));
  if (options.json) {
    print_json(all);
  } else {
    print_text(all);
  }
  return all.ok() ? kDone : kFailed;
}

}  // namespace attune::cli
