// What every CPU backend of dense attention does around its kernels: strides by layout, the check
// of a workspace, append_kv.
#pragma once

#include <cstddef>
#include <cstdint>

#include <attune/backend.hpp>
#include <attune/spec.hpp>
#include <attune/status.hpp>

#include "attention/paged_kv.hpp"
#include "kernels/dense/params.hpp"

namespace attune::backends::shared {

/// Where no executor was handed in: the calling thread.
class CallerThread final : public Executor {
 public:
  [[nodiscard]] int num_threads() const override { return 1; }
  void run(std::int64_t num_items, void (*body)(void*, std::int64_t, int), void* context) override {
    for (std::int64_t item = 0; item < num_items; ++item) body(context, item, 0);
  }
};

/// Of one cache, in elements.
struct CacheStrides {
  std::int64_t page = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;
};
[[nodiscard]] CacheStrides strides_of(const TensorView& cache, KvLayout layout);

/// The keys a checked call reads; indptr and indices are the plan's. Latent values are the first
/// columns of their keys.
[[nodiscard]] attention::PagedKv paged_keys(const LayerCall& call, KvLayout layout,
                                            std::int32_t page_size);
[[nodiscard]] attention::PagedKv ragged_keys(const LayerCall& call, Variant variant);

/// A strided [token, head, dim] tensor, and the call's lse where it is asked for.
[[nodiscard]] kernels::dense::Rows rows_of(const TensorView& view);
void set_lse(const LayerCall& call, kernels::dense::Params& params);

/// Large enough, there, and aligned as <attune/backend.hpp> promises.
[[nodiscard]] Status check_workspace(const Workspace& workspace, std::size_t wanted);

/// Checks the call and writes its keys and values to their slots.
[[nodiscard]] Status append_kv(const LayerCall& call, const AttentionSpec& spec,
                               std::int32_t page_size, KvLayout layout, Executor& executor);

}  // namespace attune::backends::shared
