// Golden models: a checkpoint whose logits an independent implementation computed, run through
// prefill, chunked prefill and paged decode (layer conformance).
//
// golden.safetensors holds, for prompts i = 0, 1, …: prompt{i}, tokens{i} (the prompt and its
// greedy continuation) and all_logits{i} (one uncached pass over tokens{i}). Right means: every
// logit within 2e-4 + 2e-4 |x| of the golden value with fp32 weights, activations and cache, and
// the greedy token wherever the two best golden logits are more than 1e-3 apart.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "model/attention_groups.hpp"
#include "model/config.hpp"
#include "model/ops.hpp"
#include "runtime/backend_set.hpp"

namespace attune::conformance {

struct GoldenPrompt {
  std::int64_t prompt_len = 0;
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;  ///< [tokens, vocab]
};

/// The prompts of `folder`/golden.safetensors.
Result<std::vector<GoldenPrompt>> load_golden(const std::string& folder, std::int64_t vocab_size);

/// A logit x may be off by absolute + relative |x|; `margin` is what a clear winner leads by.
struct GoldenTolerance {
  double absolute = 0;
  double relative = 0;
  float margin = 0;
};

/// 2e-4, and a lead of 1e-3, where attention reads and keeps fp32. Where queries, keys and values
/// are rounded to fp16, the sixteen dense models were seen to move by 3.3e-3 at most; thrice that
/// is allowed, and eight times as much for bf16 with its three bits fewer.
[[nodiscard]] GoldenTolerance golden_tolerance(DType attention_dtype);

struct GoldenOutcome {
  double max_abs_err = 0;
  double max_excess = 0;  ///< largest error as a multiple of its tolerance; ≤ 1 passes
  bool tokens_match = true;
  std::int64_t num_logits = 0;
  std::string worst;    ///< where max_excess is: run, prompt, position
  std::string not_run;  ///< why some page sizes were refused; empty = all ran

  [[nodiscard]] bool passed() const { return max_excess <= 1.0 && tokens_match; }
};

/// Makes the backends under test for a page size.
using MakeBackends = std::function<Result<runtime::BackendSet>(const model::ModelConfig& config,
                                                               std::int32_t page_size)>;

struct GoldenRun {
  std::string folder;
  const model::LinearFamilies* families = nullptr;  ///< from outside
  MakeBackends make_backends;
  model::Ops* ops = nullptr;  ///< with fp32 weights; of the backends' device
  GoldenTolerance tolerance;
  std::vector<std::int32_t> page_sizes{1, 16, 64};
};

/// Every page size with whole prompts, with chunks, and with decode from the first token on. A page
/// size that the backends refuse is left out; if all are, the refusal is the result.
Result<GoldenOutcome> check_golden(const GoldenRun& run);

}  // namespace attune::conformance
