// What makes a spec, a batch or a call valid, with a text for each way in which one is not (layer
// attention). Every backend in tree calls these functions; a plugin may link libattune and do the
// same. All failures are invalid_argument unless a comment says otherwise.
//
// A backend calls validate_batch in plan() and keeps the facts in its plan; validate_run then costs a
// few comparisons a layer and reads no array, so it works on device pointers too. Three conventions
// are settled here, since libraries differ about them: lse is a natural logarithm; a row that sees no
// key has o = 0 and lse = -infinity; a request without pages has kv_last_page_len 0.
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
  std::int64_t num_kv_tokens = 0;   ///< ragged: rows of LayerCall::k
  std::int64_t max_page_id = -1;    ///< paged, on the host: largest id named; -1 = none
  std::int64_t max_positions = 0;   ///< dsv4 with compressed keys, as BatchBounds has it
  std::int64_t num_compressed = 0;  ///< ragged: rows of CompressedCall::k
  std::int64_t max_compressed_page_id = -1;
};

/// Of the dense variants (gqa, mla): head counts, dims, scale, cap, windows and masks that make sense
/// together.
[[nodiscard]] Status validate_spec(const AttentionSpec& spec);

/// Of a batch in the host's memory, for a backend made for `spec` and `page_size`. Reads every array
/// once. A batch whose tables are on the device is unsupported.
[[nodiscard]] Result<BatchFacts> validate_batch(const BatchView& batch, const AttentionSpec& spec,
                                                std::int32_t page_size);

/// Of a batch whose tables are on the device (BatchView::on_device), for backends that plan there.
/// The lengths in the facts are the bounds given. What only a host can plan is unsupported.
[[nodiscard]] Result<BatchFacts> validate_device_batch(const BatchView& batch,
                                                       const AttentionSpec& spec,
                                                       std::int32_t page_size);

/// The tensors, scales and options of one layer, for run(): shapes, dtypes, innermost strides, and
/// that page ids lie inside the cache.
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
