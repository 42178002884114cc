// Backend: the five verbs (layer attention). All pure, so that a plugin needs no symbol from the
// core.
//
//   workspace_size  once per engine
//   plan            once per batch, on the host: decides everything, may allocate host memory
//   append_kv       once per layer: writes this step's keys and values to their slots
//   run             once per layer: allocates nothing, waits for nothing, prints nothing
//   refresh         new lengths at the same addresses, for graph replay; refuses when the old plan
//   no longer fits
//
// A plan is used by one thread at a time; two plans with two workspaces may run at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <attune/batch.hpp>
#include <attune/device.hpp>
#include <attune/spec.hpp>
#include <attune/status.hpp>
#include <attune/tensor.hpp>

namespace attune {

struct BackendDescriptor;
struct LinearCall;
struct SparseCall;

struct WorkspaceSize {
  std::size_t device_bytes = 0;  ///< in the device's memory (ordinary memory for CPU backends)
  std::size_t host_bytes = 0;    ///< page-locked where the device wants it
};

/// Memory for plans, owned by the caller, aligned to 256 bytes. A workspace one byte short is
/// refused, never overrun.
struct Workspace {
  void* device = nullptr;
  std::size_t device_bytes = 0;
  void* host = nullptr;
  std::size_t host_bytes = 0;
};

/// What plan() decided. Opaque outside its backend; valid while its workspace is.
class Plan {
 public:
  virtual ~Plan() = default;
};
using PlanHandle = std::unique_ptr<Plan>;

/// One layer's tensors. Pointers are device pointers on a GPU. Unused members stay empty.
struct LayerCall {
  int layer = 0;

  TensorView q{};    ///< [num_qo_tokens, num_qo_heads, head_dim_qk]
  TensorView o{};    ///< [num_qo_tokens, num_qo_heads, head_dim_vo]
  TensorView lse{};  ///< optional, fp32 [num_qo_tokens, num_qo_heads], natural log

  TensorView k{};  ///< new (append_kv) or ragged (run) keys: [tokens, num_kv_heads, head_dim_qk]
  TensorView v{};  ///< likewise values: [tokens, num_kv_heads, head_dim_vo]
  /// [tokens of k], page * page_size + place in page; negative = do not write. append_kv only.
  std::span<const std::int64_t> slot_mapping{};

  TensorView k_cache{};  ///< nhd: [pages, page_size, num_kv_heads, head_dim_qk]; hnd: [pages,
                         ///< num_kv_heads, page_size, head_dim_qk]
  TensorView
      v_cache{};  ///< likewise with head_dim_vo; mla: the first kv_lora_rank columns of k_cache

  float q_scale = 1.0f;  ///< multiply the logits
  float k_scale = 1.0f;  ///< a stored key times k_scale is the key
  float v_scale = 1.0f;
  const float* k_scale_per_head = nullptr;  ///< [num_kv_heads], instead of k_scale
  const float* v_scale_per_head = nullptr;

  const float* sinks = nullptr;         ///< [num_qo_heads], logits
  const float* alibi_slopes = nullptr;  ///< [num_qo_heads]

  const LinearCall* linear = nullptr;  ///< linear variants (attention/linear_state.hpp)
  const SparseCall* sparse = nullptr;  ///< sparse_mla (sparse_call.hpp)
};

class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual const BackendDescriptor& descriptor() const = 0;
  [[nodiscard]] virtual WorkspaceSize workspace_size(const BatchBounds& bounds) const = 0;
  virtual Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                                  Stream stream) = 0;
  virtual Status append_kv(const LayerCall& call, Stream stream) = 0;
  virtual Status run(const Plan& plan, const LayerCall& call, Stream stream) = 0;
  virtual Status refresh(Plan& plan, const BatchView& batch, Stream stream) = 0;
};

/// Everything a factory gets; no engine object.
struct BackendContext {
  AttentionSpec spec{};
  DeviceInfo device{};
  std::int32_t page_size = 1;
  KvLayout kv_layout = KvLayout::nhd;
  Executor* executor = nullptr;  ///< CPU backends; outlives the backend
  bool batch_invariant = false;  ///< a request's bits must not depend on its neighbours
};

/// Makes a backend, or refuses with reasons. The caller owns the result and destroys it before the
/// executor.
using BackendFactory = Result<std::unique_ptr<Backend>> (*)(const BackendContext& context);

}  // namespace attune
