// The backend behind flashinfer, triton, trtllm_mha, hpc_ops and flex_attention on CUDA: a host plan
// of work lists, the general decode and prefill kernels, any page size
// (backends/flashinfer/README.md). The names differ in their options, and in what their descriptors
// declare: nothing else is served.
#pragma once

#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

#include "backends/shared/cuda/hopper_tiles.hpp"
#include "plan/cascade.hpp"

namespace attune::backends::shared {

struct PagedOptions {
  plan::CascadeMode cascade = plan::CascadeMode::off;  ///< how levels of shared prefixes are chosen
  bool hopper = false;  ///< requests of several query tokens may take Hopper's tiles …
  hopper::Keys keys = hopper::Keys::by_cost;  ///< … over these keys
  /// Blocks of a decode may hand over parts through the workspace, which then keeps something from
  /// run to run: not where other backends' plans take turns there.
  bool mails = true;
  bool lists = false;  ///< decode reads a list of pages for each KV head
};

/// Makes it on the context's device, or refuses with the reason; options that no row of
/// `descriptor` declares are refused.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_paged_attention(
    const BackendContext& context, const BackendDescriptor& descriptor,
    const PagedOptions& options = {});

}  // namespace attune::backends::shared
