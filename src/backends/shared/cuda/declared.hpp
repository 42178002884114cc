// What a descriptor's built CUDA rows admit, for names whose kernels could do more than they promise.
#pragma once

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>

namespace attune::backends::shared::cuda {

/// What any of them declares.
[[nodiscard]] FeatureSet declared_features(const BackendDescriptor& descriptor);

/// Refuses a context on a card of compute capability `sm` that none of them admits. Variants are for
/// the caller: some rows' are served as plain gqa.
[[nodiscard]] Status check_declared(const BackendDescriptor& descriptor,
                                    const BackendContext& context, int sm);

}  // namespace attune::backends::shared::cuda
