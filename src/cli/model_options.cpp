#include "cli/model_options.hpp"

#include <fmt/core.h>

#include <utility>

#include "cli/selection_options.hpp"

namespace attune::cli {
namespace {

/// Everything the options say about how to open a model.
struct Opening {
  Registry registry;
  runtime::BackendRequest request;
  runtime::SessionOptions session;

  /// Valid as long as this object is.
  [[nodiscard]] runtime::MakeBackends make_backends() const {
    return [this](const model::ModelConfig& config, Executor& executor,
                  std::optional<DType> kv_dtype) {
      runtime::BackendRequest asked = request;
      if (kv_dtype) asked.selection.kv_dtype = kv_dtype;
      if (config.checkpoint_kv_dtype) asked.dtypes.kv = *config.checkpoint_kv_dtype;
      return runtime::make_backends(registry, config, asked, executor);
    };
  }
};

Result<Opening> read_opening(const CommonOptions& options, const std::string& weights_word,
                             bool batch_invariant) {
  const Result<DeviceInfo> device = device_of(options);
  if (!device.ok()) return device.status();
  const Result<SelectionOptions> selection = selection_options(options);
  if (!selection.ok()) return selection.status();
  const Result<model::CpuWeights> weights = parse_weights(weights_word);
  if (!weights.ok()) return weights.status();
  if (weights_word == "as_stored" && device->kind == DeviceKind::cuda)
    return invalid_argument(
        "--weights as_stored is for CPUs: a GPU keeps weights in bf16 (auto, whatever the file's "
        "type) or fp32");
  Result<Registry> registry = open_registry(options);
  if (!registry.ok()) return registry.status();
  Opening opening{.registry = std::move(*registry), .request = {}, .session = {}};
  // Keys are as wide as the weights. Attention reads bf16 queries where it multiplies bf16 pairs (a
  // GPU, a CPU with AVX512_BF16); where every bit is wanted, and on other CPUs, fp32. A cache of
  // finer keys than bf16 would hold bf16 numbers if they were computed as such.
  const bool on_cpu = device->kind == DeviceKind::cpu;
  const bool exact = on_cpu && *weights == model::CpuWeights::f32;
  const bool fine_keys =
      on_cpu && (selection->kv_dtype == DType::f32 || selection->kv_dtype == DType::f16);
  const bool pairs = !on_cpu || (device->isa >= CpuIsa::avx512_bf16 && !fine_keys);
  opening.request = {.device = *device,
                     .selection = *selection,
                     .dtypes = {.compute = pairs && !exact ? DType::bf16 : DType::f32,
                                .kv = exact ? DType::f32 : DType::bf16,
                                .linear = on_cpu ? DType::f32 : DType::bf16},
                     .batch_invariant = batch_invariant};
  opening.session.device = *device;
  opening.session.num_threads = thread_count(options);
  opening.session.weights = *weights;
  opening.session.batch_invariant = batch_invariant;
  return opening;
}

void print_warnings(const Selection& selection) {
  for (const std::string& warning : selection.warnings) fmt::print(stderr, "attune: {}\n", warning);
}

}  // namespace

Result<model::CpuWeights> parse_weights(const std::string& word) {
  if (word == "auto" || word == "as_stored") return model::CpuWeights::as_stored;
  if (word == "bf16") return model::CpuWeights::bf16;
  if (word == "fp32") return model::CpuWeights::f32;
  return invalid_argument("--weights is '" + word + "', wanted auto, as_stored, bf16 or fp32");
}

std::vector<std::int32_t> calibration_tokens(const CommonOptions& options,
                                             const text::Tokenizer* tokenizer) {
  if (options.kv_cache_dtype != "int8" || tokenizer == nullptr) return {};
  const Result<std::vector<text::TokenId>> tokens = tokenizer->encode(runtime::kCalibrationText);
  return tokens.ok() ? *tokens : std::vector<std::int32_t>{};
}

Result<std::unique_ptr<runtime::Session>> open_session(const CommonOptions& options,
                                                       const ModelRun& run,
                                                       model::Checkpoint checkpoint) {
  Result<Opening> opening = read_opening(options, run.weights, run.batch_invariant);
  if (!opening.ok()) return opening.status();
  opening->request.selection.prefix_cache = run.prefix_cache;
  if (run.engine.speculation.enabled()) opening->request.selection.speculative_topk = 1;
  runtime::SessionOptions session = opening->session;
  session.engine = run.engine;
  session.converted_weights = run.weights_cache;
  session.calibration = run.calibration;
  auto opened = runtime::Session::open(std::move(checkpoint), opening->make_backends(), session);
  if (!opened.ok()) return opened.status();
  print_warnings((*opened)->selection());
  return opened;
}

Result<std::unique_ptr<runtime::Embedder>> open_embedder(const CommonOptions& options,
                                                         const std::string& weights,
                                                         const model::PoolingConfig& pooling,
                                                         model::Checkpoint checkpoint) {
  const Result<Opening> opening = read_opening(options, weights, false);
  if (!opening.ok()) return opening.status();
  auto opened = runtime::Embedder::open(std::move(checkpoint), pooling, opening->make_backends(),
                                        opening->session);
  if (!opened.ok()) return opened.status();
  print_warnings((*opened)->selection());
  return opened;
}

void print_selection(const Selection& selection) {
  for (const GroupSelection& group : selection.groups) {
    for (const PhaseSelection& phase : group.phases) {
      fmt::print(stderr, "layers {:<12} {:<8} {:<8} {:<14} {}\n", layer_ranges(group.group.layers),
                 group.group.kind, name(phase.phase), phase.backend, phase.why);
    }
  }
}

}  // namespace attune::cli
