// The recurrent states of linear-attention layers, one slot a request (layer cache). Unlike keys a
// state cannot be cut back: reuse of a prefix needs a snapshot taken at exactly that token.
//
//   StatePool pool = *StatePool::make(shapes, /*num_slots=*/64);
//   const std::int32_t slot = *pool.allocate();     // every byte zero: a request that starts anew
//   StateSnapshot at_4096 = pool.snapshot(slot);    // after token 4096
//   pool.restore(slot, at_4096);                    // some other slot, some other day
//   pool.release(slot);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "cache/kv_storage.hpp"

namespace attune::cache {

/// One layer's state a slot; heads 0 = no recurrence, channels 0 = no convolution.
struct StateShape {
  std::int64_t heads = 0;
  std::int64_t dim_v = 0;
  std::int64_t dim_k = 0;
  std::int64_t conv_channels = 0;
  std::int64_t conv_history = 0;  ///< taps - 1
  DType conv_dtype = DType::f32;

  [[nodiscard]] std::int64_t recurrent_bytes() const {
    return heads * dim_v * dim_k * static_cast<std::int64_t>(sizeof(float));
  }
  [[nodiscard]] std::int64_t conv_bytes() const {
    return conv_channels * conv_history * static_cast<std::int64_t>(size_of(conv_dtype));
  }
};

/// Every layer's state of one slot, at one token.
struct StateSnapshot {
  std::vector<std::byte> bytes;
};

/// Where the states lie: a device's memory in the order of its stream, or ordinary memory.
struct StateMemory {
  AllocateMemory allocate;
  std::function<void(void* to, std::size_t bytes)> clear;
  std::function<void(void* to, const void* from, std::size_t bytes)> copy;
  std::function<void(void* to, const void* host, std::size_t bytes)> upload;
  /// Waits for the bytes.
  std::function<Status(void* host, const void* from, std::size_t bytes)> download;
};
[[nodiscard]] StateMemory host_state_memory();

class StatePool {
 public:
  static Result<StatePool> make(std::span<const StateShape> layers, std::int32_t num_slots,
                                StateMemory memory = host_state_memory());

  /// A zeroed slot, or out_of_pages: the scheduler waits.
  Result<std::int32_t> allocate();
  /// A slot that is not held is refused.
  Status release(std::int32_t slot);

  Status copy(std::int32_t from, std::int32_t to);
  [[nodiscard]] Result<StateSnapshot> snapshot(std::int32_t slot) const;
  Status restore(std::int32_t slot, const StateSnapshot& snapshot);

  /// As LinearCall::state and conv_state want them; undefined where the layer has none.
  [[nodiscard]] const TensorView& recurrent(std::size_t layer) const {
    return layers_[layer].recurrent;
  }
  [[nodiscard]] const TensorView& conv(std::size_t layer) const { return layers_[layer].conv; }

  [[nodiscard]] std::int32_t num_slots() const { return static_cast<std::int32_t>(held_.size()); }
  [[nodiscard]] std::int32_t num_free() const { return static_cast<std::int32_t>(free_.size()); }
  [[nodiscard]] std::int64_t bytes_per_slot() const { return bytes_per_slot_; }
  [[nodiscard]] std::int64_t num_bytes() const { return bytes_per_slot_ * num_slots(); }

 private:
  struct Layer {
    StateShape shape;
    std::shared_ptr<void> recurrent_memory;
    std::shared_ptr<void> conv_memory;
    TensorView recurrent;
    TensorView conv;

    [[nodiscard]] std::span<std::byte> recurrent_row(std::int32_t slot) const;
    [[nodiscard]] std::span<std::byte> conv_row(std::int32_t slot) const;
  };

  [[nodiscard]] Status check_held(std::int32_t slot) const;
  void zero(std::int32_t slot);

  StateMemory memory_;
  std::vector<Layer> layers_;
  std::vector<bool> held_;
  std::vector<std::int32_t> free_;  ///< a stack
  std::int64_t bytes_per_slot_ = 0;
};

}  // namespace attune::cache
