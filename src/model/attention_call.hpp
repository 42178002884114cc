// What attention reads and writes, in its backend's dtype (layer model). On a CPU that is the
// activations' own and nothing is copied; on a GPU activations are fp32 and attention reads 16-bit
// floats.
#pragma once

#include <cstdint>

#include <attune/tensor.hpp>

#include "model/ops.hpp"
#include "model/step.hpp"
#include "model/step_memory.hpp"

namespace attune::model {

/// Room for [tokens, heads * dim] numbers of `dtype`, none where activations (fp32) are that
/// already.
[[nodiscard]] inline TensorView take_narrow(StepMemory& memory, DType dtype, std::int64_t tokens,
                                            std::int64_t width) {
  return dtype == DType::f32 ? TensorView{} : memory.take(dtype, {tokens, width});
}

/// x [tokens, heads, dim] as attention reads it: converted into `room`, or itself.
[[nodiscard]] inline TensorView narrowed(Ops& ops, const TensorView& x, const TensorView& room) {
  if (room.rank == 0) return x;
  const TensorView out = heads(room, x.shape[2]);
  ops.convert(x, out);
  return out;
}

/// Where attention writes what belongs into o [tokens, heads, dim].
[[nodiscard]] inline TensorView narrow_output(const TensorView& o, const TensorView& room) {
  return room.rank == 0 ? o : heads(room, o.shape[2]);
}
inline void widen_output(Ops& ops, const TensorView& o, const TensorView& room) {
  if (room.rank != 0) ops.convert(heads(room, o.shape[2]), o);
}

/// q, k, v and o of one layer, all rows, as attention reads and writes them.
struct AttentionTensors {
  TensorView q, k, v;  ///< no k and v: an earlier layer has written the cache
  TensorView o;
  const float* sinks = nullptr;
  int layer = 0;
  int kv_layer = 0;  ///< whose cache is read
  int group = 0;
  bool cached = true;                  ///< false: keys are the step's own
  const SparseCall* sparse = nullptr;  ///< of all rows, where an indexer chooses; without its cache
};

/// Appends the step's keys where there are any and attends, part by part.
Status attend(const Step& step, const AttentionTensors& tensors);

}  // namespace attune::model
