// What every CUDA backend of softmax attention does around its kernels: the checks of a workspace
// and of a refresh, append_kv.
#pragma once

#include <cstddef>

#include <attune/backend.hpp>
#include <attune/validate.hpp>

namespace attune::backends::shared::cuda {

/// Large enough, there, and aligned as <attune/backend.hpp> promises.
[[nodiscard]] Status check_workspace(const Workspace& workspace, std::size_t wanted);

/// A captured run launches what the plan had, on tensors of the plan's shape.
[[nodiscard]] Status check_refresh(const attention::BatchFacts& plan,
                                   const attention::BatchFacts& batch);

/// Checks the call and writes its keys and values to their slots, for caches in nhd and hnd.
[[nodiscard]] Status append_kv(const LayerCall& call, const BackendContext& context, Stream stream);

}  // namespace attune::backends::shared::cuda
