// One step, as the layers see it: how many tokens, where they sit, and who attends (layer model).
#pragma once

#include <cstdint>
#include <span>

#include <attune/backend.hpp>
#include <attune/tensor.hpp>

#include "cache/kv_storage.hpp"
#include "cache/state_pool.hpp"
#include "model/ops.hpp"
#include "model/step_memory.hpp"
#include "model/window_pool.hpp"

namespace attune::model {

/// Ragged attention of consecutive rows to keys and values that their layer makes from cached
/// latents (latent_expansion.hpp).
struct ExpandedPart {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  TensorView slots{};  ///< i32 [keys], device: page * page_size + place
  Backend* backend = nullptr;
  const Plan* plan = nullptr;
};

/// Consecutive rows of a step that one backend serves under one plan.
struct AttentionPart {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  Backend* backend = nullptr;
  const Plan* plan = nullptr;
  /// Latent layers: what these attend to instead of `plan`, joined by their lse. The first covers
  /// all of the part's rows.
  std::span<const ExpandedPart> expanded{};
};

/// What a step does for one group of layers (attention_groups.hpp): parts cover all rows, in order.
struct GroupStep {
  std::span<const AttentionPart> parts;
  std::span<const std::int64_t> slot_mapping;  ///< [num_tokens]; empty for linear groups
  /// [num_tokens], CompressedCall::slot_mapping; empty where nothing is compressed.
  std::span<const std::int64_t> compressed_slots{};
};

/// Factors of one layer's stored keys and values, [num_kv_heads] each, device memory; nullptr = 1.
struct LayerKvScales {
  const float* k = nullptr;
  const float* v = nullptr;
};

/// What an engine hands to Model::forward.
struct StepInput {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> positions;     ///< [tokens]
  std::span<const std::int32_t> logit_rows;    ///< rows whose logits are wanted, ascending
  std::span<const Choice> choices{};           ///< how each of them gives a token, or none does
  std::span<const GroupStep> groups;           ///< one each of Model::groups()
  std::span<const LayerKvScales> kv_scales{};  ///< one entry a layer, or empty
  const cache::KvStorage* kv = nullptr;        ///< one entry a layer
  const cache::StatePool* states = nullptr;    ///< likewise; nullptr where no layer keeps states
  std::span<const RequestRows> requests{};     ///< all rows, in order; for layers that keep states
};

/// What a layer gets besides its input.
struct Step {
  const StepInput& input;
  Ops& ops;
  StepMemory& memory;
  std::int64_t num_tokens = 0;
  TensorView tokens;                        ///< i32 [num_tokens], device
  TensorView positions;                     ///< i32 [num_tokens], device
  std::span<const TensorView> cos_sin;      ///< by rope index (rope_tables.hpp)
  std::span<const TensorView> query_scale;  ///< likewise, Llama-4's temperature
  TensorView shortcut{};        ///< LongCat: experts' output on its way to the next layer
  TensorView router_states{};   ///< ZAYA: what a layer's router leaves for the next one's
  TensorView topk_indices{};    ///< i32 [tokens, topk], the last indexer's lists
  TensorView window_tokens{};   ///< bytes of WindowToken [tokens], where compressors keep rings
  TensorView per_layer_inputs;  ///< Gemma-4: [tokens, layers * size]
};

}  // namespace attune::model
