// What tests of linear families from outside open: folders of tiny models, with the plugin that brings
// such a family; and the arithmetic of their layers in double precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/linear_families.hpp"
#include "runtime/session.hpp"

namespace attune::runtime {

inline constexpr int kVocab = 40;
inline constexpr int kHidden = 12;
inline constexpr int kHeads = 3;
inline constexpr int kHeadDim = 4;

inline std::string average_plugin() {
  return std::string(ATTUNE_BINARY_DIR) + "/lib/test_plugin_average.so";
}

/// Any text of so many tokens.
inline std::vector<std::int32_t> prompt(std::int32_t length) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < length; ++i) tokens.push_back((7 * length + i * 11) % kVocab);
  return tokens;
}

/// The model of `folder` in fp32, its logits kept.
inline Result<std::unique_ptr<Session>> open_tiny(const std::string& folder,
                                                  const model::LinearFamilies& families,
                                                  std::int64_t chunk_size) {
  auto checkpoint = model::open_checkpoint(folder, &families);
  if (!checkpoint.ok()) return checkpoint.status();
  auto registry = Registry::open({.plugins = {average_plugin()}});
  if (!registry.ok()) return registry.status();
  SessionOptions options;
  options.device = cpu_device();
  options.num_threads = 2;
  options.weights = model::CpuWeights::f32;
  options.engine = {.context_limit = 100,
                    .scheduler = {.chunk_size = chunk_size, .max_batch = 3},
                    .keep_logits = true};
  const auto make = [&](const model::ModelConfig& config, Executor& executor,
                        std::optional<DType>) {
    BackendRequest request;
    request.device = options.device;
    request.dtypes = {.compute = DType::f32, .kv = DType::f32};
    return make_backends(*registry, config, request, executor);
  };
  return Session::open(std::move(*checkpoint), make, options);
}

inline std::vector<double> product(const std::vector<float>& w, const std::vector<double>& x) {
  std::vector<double> y(w.size() / x.size(), 0.0);
  for (std::size_t r = 0; r < y.size(); ++r)
    for (std::size_t c = 0; c < x.size(); ++c) y[r] += w[r * x.size() + c] * x[c];
  return y;
}

inline std::vector<double> normed(std::vector<double> x) {
  double squares = 0;
  for (double v : x) squares += v * v;
  for (double& v : x) v /= std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
  return x;
}

}  // namespace attune::runtime
