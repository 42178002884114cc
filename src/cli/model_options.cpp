#include "cli/model_options.hpp"

#include <fmt/core.h>

#include <charconv>
#include <utility>

namespace attune::cli {
namespace {

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// "0-3,7=reference" → two overrides.
Status parse_override(const std::string& text, std::vector<LayerOverride>& out) {
  const Status bad = invalid_argument("--layer-attention-backend: '" + text +
                                      "' is not RANGE=NAME, e.g. 0-3,7=reference");
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 == text.size()) return bad;
  const std::string_view ranges = std::string_view(text).substr(0, equals);
  const std::string name = text.substr(equals + 1);
  std::size_t begin = 0;
  while (begin <= ranges.size()) {
    const std::size_t comma = std::min(ranges.find(',', begin), ranges.size());
    const std::string_view range = ranges.substr(begin, comma - begin);
    const std::size_t dash = range.find('-');
    LayerOverride override{.backend = name};
    if (!parse_number(range.substr(0, dash), override.first)) return bad;
    override.last = override.first;
    if (dash != std::string_view::npos && !parse_number(range.substr(dash + 1), override.last))
      return bad;
    if (override.last < override.first) return bad;
    out.push_back(std::move(override));
    begin = comma + 1;
  }
  return {};
}

/// Everything the options say about how to open a model.
struct Opening {
  Registry registry;
  runtime::BackendRequest request;
  runtime::SessionOptions session;

  /// Valid as long as this object is.
  [[nodiscard]] runtime::MakeBackends make_backends() const {
    return [this](const model::ModelConfig& config, Executor& executor) {
      runtime::BackendRequest asked = request;
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
  Result<Registry> registry = open_registry(options);
  if (!registry.ok()) return registry.status();
  Opening opening{.registry = std::move(*registry), .request = {}, .session = {}};
  // Activations are fp32 on a CPU; keys are kept as wide as the weights.
  opening.request = {
      .device = *device,
      .selection = *selection,
      .dtypes = {.compute = DType::f32,
                 .kv = *weights == model::CpuWeights::f32 ? DType::f32 : DType::bf16},
      .batch_invariant = batch_invariant};
  opening.session.device = *device;
  opening.session.num_threads = thread_count(options, *device);
  opening.session.weights = *weights;
  opening.session.batch_invariant = batch_invariant;
  return opening;
}

void print_warnings(const Selection& selection) {
  for (const std::string& warning : selection.warnings) fmt::print(stderr, "attune: {}\n", warning);
}

std::string layer_ranges(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(layers[i]);
    if (end > i) text += '-' + std::to_string(layers[end]);
    i = end + 1;
  }
  return text;
}

}  // namespace

Result<SelectionOptions> selection_options(const CommonOptions& o) {
  SelectionOptions s;
  const auto or_default = [&](const std::string& phase) {
    return phase.empty() ? o.attention_backend : phase;
  };
  s.prefill = or_default(o.prefill_attention_backend);
  s.decode = or_default(o.decode_attention_backend);
  for (const std::string& text : o.layer_attention_backend)
    if (Status bad = parse_override(text, s.layers); !bad.ok()) return bad;
  if (o.page_size != "auto" && (!parse_number(std::string_view(o.page_size), s.page_size) ||
                                s.page_size < 1 || s.page_size > 256)) {
    return invalid_argument("--page-size is '" + o.page_size + "', wanted auto or 1 to 256");
  }
  if (o.kv_cache_dtype != "auto") {
    s.kv_dtype = parse_dtype(o.kv_cache_dtype);
    if (!s.kv_dtype) {
      return invalid_argument("--kv-cache-dtype is '" + o.kv_cache_dtype +
                              "', wanted auto, fp32, bf16, fp16, fp8_e4m3, fp8_e5m2 or int8");
    }
  }
  s.fallback = o.fallback == "allow"    ? FallbackPolicy::allow
               : o.fallback == "forbid" ? FallbackPolicy::forbid
                                        : FallbackPolicy::warn;
  return s;
}

Result<Registry> open_registry(const CommonOptions& options) {
  return Registry::open({.plugins = options.plugins});
}

Result<model::CpuWeights> parse_weights(const std::string& word) {
  if (word == "auto" || word == "as_stored") return model::CpuWeights::as_stored;
  if (word == "bf16") return model::CpuWeights::bf16;
  if (word == "fp32") return model::CpuWeights::f32;
  return invalid_argument("--weights is '" + word + "', wanted auto, as_stored, bf16 or fp32");
}

Result<std::unique_ptr<runtime::Session>> open_session(const CommonOptions& options,
                                                       const ModelRun& run,
                                                       model::Checkpoint checkpoint) {
  const Result<Opening> opening = read_opening(options, run.weights, run.batch_invariant);
  if (!opening.ok()) return opening.status();
  runtime::SessionOptions session = opening->session;
  session.engine = run.engine;
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
