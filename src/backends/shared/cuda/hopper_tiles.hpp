// Requests as tiles of query rows for the Hopper prefill kernels: which kernel and packing, the
// list of tiles, the launch. What fa3, fa4 and flashinfer have in common.
//
// Where that is faster, a pass in front copies the batch's keys and values, fp8 ones widened, to
// contiguous rows in the plan's workspace, and the kernel for ragged 16-bit keys runs over those
// (docs/performance/cuda-prefill.md).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <attune/backend.hpp>
#include <attune/validate.hpp>

#include "attention/paged_kv.hpp"
#include "kernels/ragged_prefill/sm90/launch.hpp"
#include "plan/prefill_schedule.hpp"

namespace attune::backends::shared::hopper {

/// The option or type that keeps a spec from these kernels; empty: none does. Head dims and pages
/// are for Tiler::make to find.
[[nodiscard]] std::string_view unserved(const AttentionSpec& spec);

/// Where kernels find keys. Only by_cost is for use: the others are so that a test can reach either
/// way, and a measurement ask whether the choice is right.
enum class Keys : unsigned char { by_cost, as_stored, copied };

/// A kernel ready on the device, and how many neighbouring heads of one KV head a tile holds.
struct Choice {
  kernels::ragged_prefill::sm90::Instance kernel;
  int blocks = 0;
  int pack_shift = 0;
  std::int64_t cycles = 0;    ///< expected, of one multiprocessor
  bool copies_first = false;  ///< keys and values to rows, over which the kernel runs
};

class Tiler {
 public:
  /// Makes every kernel of the spec's types and head dims ready. `decodes_too`: requests of one
  /// query token are tiles as well. The context's device is the current one.
  [[nodiscard]] static Result<Tiler> make(const BackendContext& context,
                                          kernels::ragged_prefill::sm90::Strategy strategy,
                                          bool decodes_too, Keys keys = Keys::by_cost);

  /// Whether some kernel takes every batch with keys from this source, as they are stored.
  [[nodiscard]] bool serves(KvSource source) const;
  /// Whether some batch may have a kernel, if only over keys that are copied first.
  [[nodiscard]] bool serves_some() const { return !ready_.empty() || !over_rows_.empty(); }

  /// Listed of any batch within bounds, whatever kernel and packing it will take.
  [[nodiscard]] std::int64_t max_tiles(std::int64_t batch, std::int64_t tokens) const;

  /// Rows of keys and values that a batch within bounds may have copied, and bytes of each; no
  /// batch with more is.
  [[nodiscard]] std::int64_t max_rows(const BatchBounds& bounds) const;
  [[nodiscard]] std::int64_t row_bytes() const;
  /// Those of one batch; pages count whole.
  [[nodiscard]] std::int64_t rows_of(const BatchView& batch) const;

  /// The fastest for this batch. Null kernel: none takes its keys as they are stored, nor are they
  /// copied.
  [[nodiscard]] Choice choose(const BatchView& batch) const;

  /// Fills the schedule; the answer is what the device's list begins with.
  kernels::ragged_prefill::sm90::WorkList schedule(const Choice& choice, const BatchView& batch,
                                                   plan::PrefillSchedule& schedule) const;

  /// Where a run finds its plan on the device.
  struct Lists {
    kernels::ragged_prefill::sm90::WorkList* list = nullptr;
    const attention::PrefillTile* items = nullptr;
    const std::int32_t* kv_indices = nullptr;
    std::byte* rows = nullptr;  ///< where the choice copies first: room for max_rows …
    std::int64_t max_rows = 0;
    const std::uint32_t* num_rows = nullptr;  ///< … and how many the batch has
  };
  [[nodiscard]] Status launch(const Choice& choice, const attention::BatchFacts& facts,
                              const Lists& lists, const LayerCall& call, Stream stream) const;

 private:
  struct Ready {
    kernels::ragged_prefill::sm90::Instance kernel;
    int blocks = 0;
  };
  Tiler() = default;
  [[nodiscard]] bool takes(const Ready& ready, KvSource source) const;
  [[nodiscard]] bool can_pack(int shift) const;
  [[nodiscard]] plan::PrefillRules rules(const kernels::ragged_prefill::sm90::Instance& kernel,
                                         int pack_shift) const;
  [[nodiscard]] std::int64_t cycles(const Ready& ready, int pack_shift, KvSource source,
                                    const plan::PrefillCount& one_head) const;
  [[nodiscard]] std::int64_t copy_cycles(std::int64_t rows) const;
  void consider(const Ready& ready, const BatchView& batch, std::int64_t longest_query,
                std::int64_t copy, Choice& best) const;
  [[nodiscard]] attention::PagedKv stored_keys(const attention::BatchFacts& facts,
                                               const LayerCall& call) const;
  [[nodiscard]] std::byte* copied_values(const Lists& lists) const;
  [[nodiscard]] attention::PagedKv copied_keys(const Lists& lists) const;
  [[nodiscard]] Status copy_rows(const Choice& choice, const attention::BatchFacts& facts,
                                 const Lists& lists, const LayerCall& call, Stream stream) const;

  AttentionSpec spec_;
  std::int32_t page_size_ = 1;
  KvLayout kv_layout_ = KvLayout::nhd;
  bool batch_invariant_ = false;
  bool decodes_too_ = true;
  Keys keys_ = Keys::by_cost;
  std::vector<Ready> ready_;
  std::vector<Ready> over_rows_;  ///< for keys that were copied first
  kernels::tensor_map::Encoder encoder_ = nullptr;
};

}  // namespace attune::backends::shared::hopper
