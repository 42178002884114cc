// Ops on the CPU (layer model): memory, shapes and threads here, arithmetic in kernels/ops.
#pragma once

#include <memory>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "model/ops.hpp"

namespace attune::model {

class ConvertedWeights;

enum class CpuWeights : std::uint8_t {
  as_stored,  ///< straight from the file's blocks; activations are quantised to 8 bits where that
              ///< is fastest
  bf16,       ///< dequantised to bf16 once; activations rounded to bf16
  f32,        ///< dequantised to fp32 once; nothing else is rounded: for exact comparisons
};

struct CpuOpsOptions {
  CpuWeights weights = CpuWeights::as_stored;
  CpuIsa isa = CpuIsa::scalar;  ///< the highest level to use: DeviceInfo::isa
  /// A row's bits must not depend on how many rows are multiplied with it: large products run as
  /// small ones, which is slower.
  bool batch_invariant = false;
  /// Reads and keeps what weights are converted to; used until the model is loaded. nullptr = none.
  ConvertedWeights* converted = nullptr;
};

/// Activations are fp32. `executor` outlives the result; its threads run the work.
Result<std::unique_ptr<Ops>> make_cpu_ops(Executor& executor, const CpuOpsOptions& options);

}  // namespace attune::model
