#include "cli/verify_golden.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "cli/model_options.hpp"
#include "cli/selection_options.hpp"
#include "conformance/golden.hpp"
#include "device/thread_pool.hpp"
#include "model/described_family.hpp"
#include "model/device_ops.hpp"

namespace attune::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// One way to serve every model: a backend, or what the options ask.
struct Candidate {
  std::string label;
  SelectionOptions selection;
};

struct ModelVerdict {
  std::string model;
  std::string backend;
  std::string status{};  ///< passed, failed, skipped
  std::string reason{};
  double max_abs_err = 0;
  bool tokens_match = false;
};

Result<std::vector<std::string>> model_folders(const std::vector<std::string>& given) {
  std::vector<std::string> found;
  std::error_code error;
  for (const std::string& folder : given) {
    if (!fs::is_directory(folder, error)) return invalid_argument("no folder " + folder);
    if (fs::exists(fs::path(folder) / "golden.safetensors", error)) {
      found.push_back(folder);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (fs::exists(entry.path() / "golden.safetensors", error))
        inside.push_back(entry.path().string());
    if (inside.empty())
      return invalid_argument(folder + " holds no golden.safetensors, nor do its folders");
    std::sort(inside.begin(), inside.end());
    found.insert(found.end(), inside.begin(), inside.end());
  }
  return found;
}

/// Serves softmax attention of some kind. A linear backend alone serves no model of two kinds;
/// `auto` and the names of the softmax side run it.
bool serves_softmax(const BackendDescriptor& d) {
  for (const Capability& row : d.capabilities)
    for (Variant v : row.variants)
      if (!is_linear(v)) return true;
  return false;
}

/// A word that no model could be run by is a mistake, not a model that failed.
Status check_names(const SelectionOptions& asked, const Registry& registry) {
  std::vector<std::string_view> names{asked.prefill, asked.decode};
  for (const LayerOverride& layers : asked.layers) names.emplace_back(layers.backend);
  for (const std::string_view name : names)
    if (name != "auto")
      if (const auto found = registry.find(name); !found.ok()) return found.status();
  return {};
}

/// Without a named backend: what would be chosen, then every usable one in turn.
Result<std::vector<Candidate>> candidates(const CommonOptions& options, const Registry& registry,
                                          const DeviceInfo& device) {
  Result<SelectionOptions> asked = selection_options(options);
  if (!asked.ok()) return asked.status();
  if (asked->kv_dtype == DType::i8) {
    return invalid_argument(
        "verify --golden takes no int8 cache, whose factors only generate calibrates");
  }
  // The finest type that the device's kernels keep.
  if (!asked->kv_dtype) asked->kv_dtype = device.kind == DeviceKind::cpu ? DType::f32 : DType::f16;
  if (Status s = check_names(*asked, registry); !s.ok()) return s;
  const bool named = asked->prefill != "auto" || asked->decode != "auto" || !asked->layers.empty();
  if (named) {
    const std::string label =
        asked->prefill == asked->decode ? asked->prefill : asked->prefill + "+" + asked->decode;
    return std::vector<Candidate>{{label, *asked}};
  }
  std::vector<Candidate> all{{"auto", *asked}};
  for (const BackendStanding& standing : registry.standings(device)) {
    if (!standing.usable || !serves_softmax(*standing.descriptor)) continue;
    Candidate one{std::string(standing.descriptor->name), *asked};
    one.selection.prefill = one.selection.decode = one.label;
    all.push_back(std::move(one));
  }
  return all;
}

ModelVerdict verdict_of(const std::string& folder, const std::string& backend,
                        const Result<conformance::GoldenOutcome>& outcome) {
  ModelVerdict v{.model = fs::path(folder).filename().string(), .backend = backend};
  if (v.model.empty()) v.model = fs::path(folder).parent_path().filename().string();
  if (!outcome.ok()) {
    const Status status = outcome.status();
    v.status = status.code() == StatusCode::unsupported ? "skipped" : "failed";
    v.reason = status.text();
    if (!status.refusals().empty()) {
      const Refusal& first = status.refusals().front();
      v.reason = first.rule + ": wanted " + first.wanted + ", have " + first.have;
    }
    return v;
  }
  v.status = outcome->passed() ? "passed" : "failed";
  v.max_abs_err = outcome->max_abs_err;
  v.tokens_match = outcome->tokens_match;
  if (!outcome->passed()) {
    v.reason = outcome->max_excess > 1 ? fmt::format("{:.1f} tolerances away in {}",
                                                     outcome->max_excess, outcome->worst)
                                       : "a greedy token differs";
  } else {
    v.reason = outcome->not_run;
  }
  return v;
}

void print_table(const std::vector<ModelVerdict>& verdicts) {
  std::size_t width = 0;
  for (const ModelVerdict& v : verdicts) width = std::max(width, v.model.size());
  for (const ModelVerdict& v : verdicts) {
    fmt::print("{:<8} {:<{}} {:<14} ", v.status, v.model, width, v.backend);
    if (v.status != "skipped") fmt::print("max error {:.1e} ", v.max_abs_err);
    fmt::print("{}\n", v.reason);
  }
}

void print_json(const std::vector<ModelVerdict>& verdicts, int passed, int failed, int skipped) {
  Json out = {{"passed", passed}, {"failed", failed}, {"skipped", skipped}};
  out["models"] = Json::array();
  for (const ModelVerdict& v : verdicts) {
    Json row = {{"name", v.model}, {"backend", v.backend}, {"status", v.status}};
    row["reason"] = v.reason;
    // JSON has no NaN; a model whose logits are none reports null.
    row["max_abs_err"] = std::isfinite(v.max_abs_err) ? Json(v.max_abs_err) : Json(nullptr);
    row["tokens_match"] = v.tokens_match;
    out["models"].push_back(std::move(row));
  }
  fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

int verify_golden(const CommonOptions& options, const std::vector<std::string>& folders) {
  const Result<std::vector<std::string>> models = model_folders(folders);
  if (!models.ok()) return report(models.status());
  CommonOptions on_cpu = options;
  if (on_cpu.device == "auto") on_cpu.device = "cpu";
  const Result<DeviceInfo> device = device_of(on_cpu);
  if (!device.ok()) return report(device.status());
  const Result<Registry> registry = open_registry(options);
  if (!registry.ok()) return report(registry.status());
  const Result<std::vector<Candidate>> backends = candidates(options, *registry, *device);
  if (!backends.ok()) return report(backends.status());
  auto threads = device::ThreadPool::make({.num_threads = thread_count(options)});
  if (!threads.ok()) return report(threads.status());
  auto ops = model::make_device_ops(*device, **threads,
                                    {.weights = model::CpuWeights::f32, .isa = device->isa});
  if (!ops.ok()) return report(ops.status());

  const auto families = model::families_of_plugins(options.plugins);
  if (!families.ok()) return report(families.status());
  std::vector<ModelVerdict> verdicts;
  for (const std::string& folder : *models) {
    for (const Candidate& candidate : *backends) {
      conformance::GoldenRun run;
      run.folder = folder;
      run.families = families->get();
      run.ops = ops->get();
      run.tolerance = conformance::golden_tolerance(*candidate.selection.kv_dtype);
      if (candidate.selection.page_size > 0) run.page_sizes = {candidate.selection.page_size};
      run.make_backends = [&](const model::ModelConfig& config, std::int32_t page_size) {
        runtime::BackendRequest request;
        request.device = *device;
        request.selection = candidate.selection;
        request.selection.page_size = page_size;
        const DType kv = *candidate.selection.kv_dtype;
        request.dtypes = {.compute = device->kind == DeviceKind::cpu ? DType::f32
                                     : kv == DType::bf16             ? DType::bf16
                                                                     : DType::f16,
                          .kv = kv,
                          .linear = kv == DType::bf16 ? DType::bf16 : DType::f32};
        return runtime::make_backends(*registry, config, request, **threads);
      };
      verdicts.push_back(verdict_of(folder, candidate.label, conformance::check_golden(run)));
    }
  }

  const auto count = [&](std::string_view status) {
    return static_cast<int>(
        std::count_if(verdicts.begin(), verdicts.end(),
                      [&](const ModelVerdict& v) { return v.status == status; }));
  };
  const int passed = count("passed");
  const int failed = count("failed");
  const int skipped = count("skipped");
  if (options.json) {
    print_json(verdicts, passed, failed, skipped);
  } else {
    print_table(verdicts);
    fmt::print("{} passed, {} failed, {} skipped\n", passed, failed, skipped);
  }
  if (failed > 0) return kFailed;
  return passed > 0 ? kDone : kNoBackend;
}

}  // namespace attune::cli
