// Cosines and sines of a step's positions, made once for all layers that share them (layer model).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <attune/status.hpp>

#include "model/config.hpp"
#include "model/ops.hpp"
#include "model/step_memory.hpp"

namespace attune::model {

/// The position that a token is turned at, from the one it has: min(p mod period + offset, most).
struct PositionMap {
  std::int64_t period = 0;  ///< 0: positions are as they are
  std::int64_t offset = 0;
  std::int64_t most = 0;
  [[nodiscard]] std::int32_t of(std::int32_t position) const {
    return static_cast<std::int32_t>(std::min(position % period + offset, most));
  }
  [[nodiscard]] bool operator==(const PositionMap&) const = default;
};

class RopeTables {
 public:
  /// `context_limit`: the longest sequence this engine will see. Types whose frequencies depend on
  /// the sequence length (dynamic, longrope) take those of the limit, once: keys in the cache must
  /// not be turned by frequencies that change under them.
  RopeTables(std::int64_t context_length, std::int64_t context_limit)
      : context_length_(context_length), context_limit_(context_limit) {}

  /// An index for cos_sin; -1 for RopeType::none.
  int rope_index(const RopeConfig& rope, const PositionMap& map = {});
  /// An index for Llama-4's query temperature or dual chunk attention's; -1 where the config has
  /// none.
  int temperature_index(const AttentionConfig& attention);

  Status upload(Ops& ops);

  /// Takes a step's tables from `memory`; then what the host makes of its positions goes there, and
  /// the device makes the rest of them.
  void take(StepMemory& memory, std::int64_t num_tokens);
  void upload_positions(Ops& ops, std::span<const std::int32_t> positions) const;
  void fill(Ops& ops, const TensorView& device_positions) const;

  [[nodiscard]] std::span<const TensorView> cos_sin() const { return cos_sin_; }
  [[nodiscard]] std::span<const TensorView> query_scale() const { return query_scale_; }

 private:
  struct Rope {
    RopeConfig config;
    PositionMap map;
    std::int64_t pairs = 0;
    float factor = 1.0f;
    Buffer inv_freq;
  };
  struct Temperature {
    double scale = 0;
    double floor = 1;
    std::int64_t original_context = 0;  ///< of dual chunk attention, instead of both
    int head_dim = 0;
    [[nodiscard]] float at(std::int32_t position) const;
    [[nodiscard]] bool operator==(const Temperature&) const = default;
  };
  std::int64_t context_length_;
  std::int64_t context_limit_;
  std::vector<Rope> ropes_;
  std::vector<Temperature> temperatures_;
  std::vector<TensorView> positions_;  ///< of each rope that has a map, else without memory
  std::vector<TensorView> cos_sin_;
  std::vector<TensorView> query_scale_;
};

}  // namespace attune::model
