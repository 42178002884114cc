#include "model/rope_frequencies.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <attune/status.hpp>

namespace attune::model {
namespace {

/// The pair that turns `rotations` times within the original context (YaRN, arXiv 2309.00071).
double correction_pair(const RopeConfig& rope, double rotations) {
  const double context = static_cast<double>(rope.original_context);
  return rope.rotary_dim * std::log(context / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(rope.theta));
}

/// YaRN: fast pairs keep their frequency, slow ones are interpolated, a ramp between them.
void scale_yarn(const RopeConfig& rope, std::vector<double>& frequencies) {
  double low = correction_pair(rope, rope.beta_fast);
  double high = correction_pair(rope, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.rotary_dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= (1.0 - ramp) + ramp / rope.factor;
  }
}

double yarn_temperature(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double yarn_attention_factor(const RopeConfig& rope) {
  if (rope.mscale != 0.0 && rope.mscale_all_dim != 0.0)
    return yarn_temperature(rope.factor, rope.mscale) /
           yarn_temperature(rope.factor, rope.mscale_all_dim);
  return yarn_temperature(rope.factor, 1.0);
}

/// Llama 3.1: by wavelength, with a smooth passage between kept and divided.
void scale_llama3(const RopeConfig& rope, std::vector<double>& frequencies) {
  const double context = static_cast<double>(rope.original_context);
  for (double& f : frequencies) {
    const double turns = context * f / (2.0 * std::numbers::pi);  // within the original context
    const double smooth = std::clamp(
        (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
    f *= smooth + (1.0 - smooth) / rope.factor;
  }
}

/// NTK-aware: a larger base as the sequence outgrows the context.
double dynamic_theta(const RopeConfig& rope, double context, double kv_len) {
  const double growth = rope.factor * std::max(kv_len, context) / context - (rope.factor - 1.0);
  const double dim = rope.rotary_dim;
  return rope.theta * std::pow(growth, dim / (dim - 2.0));
}

double longrope_attention_factor(const RopeConfig& rope, std::int64_t context_length) {
  const double original = static_cast<double>(rope.original_context);
  const double factor =
      rope.factor > 1.0 ? rope.factor : static_cast<double>(context_length) / original;
  return factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(original));
}

}  // namespace

bool depends_on_length(const RopeConfig& rope) {
  return rope.type == RopeType::dynamic || rope.type == RopeType::longrope;
}

RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t context_length,
                                 std::int64_t kv_len) {
  if (rope.type == RopeType::none) return {};
  const double theta =
      rope.type == RopeType::dynamic
          ? dynamic_theta(rope, static_cast<double>(context_length), static_cast<double>(kv_len))
          : rope.theta;
  std::vector<double> frequencies(static_cast<std::size_t>(rope.rotary_dim / 2));
  const double dim = rope.frequency_dim > 0 ? rope.frequency_dim : rope.rotary_dim;
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / dim);

  double attention_factor = 1.0;
  switch (rope.type) {
    case RopeType::none:
    case RopeType::standard:
    case RopeType::dynamic: break;
    case RopeType::linear:
      for (double& f : frequencies) f /= rope.factor;
      break;
    case RopeType::proportional:
      for (std::size_t i = 0; i < frequencies.size(); ++i)
        frequencies[i] =
            static_cast<int>(i) < rope.turning_pairs ? frequencies[i] / rope.factor : 0.0;
      break;
    case RopeType::llama3: scale_llama3(rope, frequencies); break;
    case RopeType::yarn:
      scale_yarn(rope, frequencies);
      attention_factor = yarn_attention_factor(rope);
      break;
    case RopeType::longrope: {
      const std::vector<double>& factors =
          kv_len > rope.original_context ? rope.long_factor : rope.short_factor;
      require(factors.size() == frequencies.size(), "a LongRoPE factor for every pair");
      for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
      attention_factor = longrope_attention_factor(rope, context_length);
      break;
    }
  }

  RopeFrequencies result;
  result.inv_freq.assign(frequencies.begin(), frequencies.end());
  result.attention_factor = static_cast<float>(rope.attention_factor.value_or(attention_factor));
  return result;
}

}  // namespace attune::model
