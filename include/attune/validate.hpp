// The invariants of a spec, a batch and a call, each with its text (layer attention). Every backend
// of the tree asks them; a plugin may link libattune and do the same.
//
// A backend calls validate_batch in plan and keeps the facts in its plan; validate_run then costs a
// few comparisons a layer and reads no array, so it works on device pointers too.
#pragma once

#include <cstdint>
#include <span>

#include <attune/backend.hpp>
#include <attune/batch.hpp>
#include <attune/spec.hpp>
#include <attune/status.hpp>

namespace attune::attention {

/// What a checked batch promises to every layer's run.
struct BatchFacts {
  KvSource source = KvSource::paged;
  std::int64_t batch_size = 0;
  std::int64_t num_qo_tokens = 0;
  std::int64_t max_qo_len = 0;
  std::int64_t max_kv_len = 0;
  std::int64_t num_kv_tokens = 0;  ///< ragged: rows of LayerCall::k
  std::int64_t max_page_id = -1;   ///< paged: largest id named; -1 = none
};

/// Dense variants (gqa, mla): head counts, dims, scale, cap, windows and masks that make sense
/// together.
[[nodiscard]] Status validate_spec(const AttentionSpec& spec);

[[nodiscard]] Result<BatchFacts> validate_batch(const BatchView& batch, const AttentionSpec& spec,
                                                std::int32_t page_size);

/// Of a batch whose tables are on the device (BatchView::on_device), for backends that plan there;
/// validate_batch refuses such a batch for all others. Lengths in the facts are the bounds given.
[[nodiscard]] Result<BatchFacts> validate_device_batch(const BatchView& batch,
                                                       const AttentionSpec& spec,
                                                       std::int32_t page_size);

/// The tensors, scales and options of one layer, for run().
[[nodiscard]] Status validate_run(const LayerCall& call, const BatchFacts& facts,
                                  const AttentionSpec& spec, std::int32_t page_size,
                                  KvLayout layout);

/// Likewise for append_kv(), without the contents of slot_mapping.
[[nodiscard]] Status validate_append(const LayerCall& call, const AttentionSpec& spec,
                                     std::int32_t page_size, KvLayout layout);

/// Every slot is negative (not written) or inside the pool.
[[nodiscard]] Status validate_slots(std::span<const std::int64_t> slot_mapping,
                                    std::int64_t num_slots);

/// The tightest bounds this batch fits in; those it gives itself where its lengths are on the
/// device. plan() must accept a workspace of exactly workspace_size(bounds_of(batch)) and refuse
/// one that is smaller.
[[nodiscard]] BatchBounds bounds_of(const BatchView& batch);

}  // namespace attune::attention
