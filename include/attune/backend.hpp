// Backend: the five verbs of an attention backend (layer attention). All are pure virtual, so that a
// plugin needs no symbol from the core.
//
//   workspace_size  once per engine: bytes that any plan within the given bounds needs
//   plan            once per batch, on the host: decides everything, may allocate host memory
//   append_kv       once per layer: writes this step's keys and values to their slots
//   run             once per layer: allocates nothing, waits for nothing, prints nothing
//   refresh         new lengths at the same addresses, for graph replay; refuses a batch that the
//                   plan no longer fits
//
// A step of an engine, for every layer of one group; examples/embed is a whole program:
//
//   Result<PlanHandle> plan = backend->plan(batch, workspace, stream);
//   for (LayerCall& call : layers) {
//     if (Status s = backend->append_kv(call, stream); !s.ok()) return s;
//     if (Status s = backend->run(**plan, call, stream); !s.ok()) return s;
//   }
//
// On a GPU append_kv and run put work on `stream` and return; errors of that work show at the
// stream's next call. On a CPU they return when the work is done, and `stream` is ignored.
//
// Errors: invalid_argument for a batch, call or workspace that does not fit what the backend was
// made for, unsupported for what its descriptor does not promise, device_error for the driver's own
// failures. After any of them neither the caches nor `o` may be relied on; the backend may.
//
// A plan is used by one thread at a time; two plans with two workspaces may run at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <attune/batch.hpp>
#include <attune/device.hpp>
#include <attune/score_mod.hpp>
#include <attune/spec.hpp>
#include <attune/status.hpp>
#include <attune/tensor.hpp>

namespace attune {

struct BackendDescriptor;
struct CompressedCall;
struct LinearCall;
struct SparseCall;

/// Bytes a backend asks for.
struct WorkspaceSize {
  std::size_t device_bytes = 0;  ///< in the device's memory (ordinary memory for CPU backends)
  std::size_t host_bytes = 0;    ///< page-locked where the device wants it
};

/// Memory for plans: the caller's, aligned to 256 bytes, alive as long as a plan that was made in it.
/// Its contents need not be set. A workspace one byte short is refused, never overrun. Decode plans
/// of one backend may take turns in one workspace (an engine keeps one plan a batch size): refresh()
/// makes a plan whole again, whatever the others left there. Runs leave things there for the next:
/// until the last of its plans is gone nothing but this backend may write to it, and after a run that
/// failed or was cut off a new plan is wanted, not a refresh.
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

/// One layer's tensors: views of the caller's memory, which is device memory on a GPU. Members that
/// the spec does not ask for stay empty, and are refused where they are not.
struct LayerCall {
  int layer = 0;  ///< the model's own number of it, for messages

  TensorView q{};    ///< [num_qo_tokens, num_qo_heads, q_columns()]
  TensorView o{};    ///< [num_qo_tokens, num_qo_heads, head_dim_vo]
  TensorView lse{};  ///< optional, fp32 [num_qo_tokens, num_qo_heads], natural log

  // append_kv: this step's keys and values, fp32, bf16 or fp16, converted to the cache's dtype.
  // run, where the batch's source is ragged: all keys and values, in kv_dtype.
  TensorView k{};  ///< [tokens, num_kv_heads, head_dim_qk]
  TensorView v{};  ///< [tokens, num_kv_heads, head_dim_vo]; mla: empty
  /// append_kv: where each token of k goes, page * page_size + place in page; negative = nowhere.
  /// In the device's memory on a GPU.
  std::span<const std::int64_t> slot_mapping{};

  // The paged cache in AttentionSpec::kv_dtype. Its shape follows BackendContext::kv_layout:
  //   nhd             [pages, page_size, num_kv_heads, head_dim]
  //   hnd             [pages, num_kv_heads, page_size, head_dim]
  //   mla_latent      [pages, page_size, kv_lora_rank + qk_rope_head_dim], k_cache alone
  //   mla_latent_fp8  [pages, page_size, 656] bytes (u8), k_cache alone
  TensorView k_cache{};  ///< head_dim = head_dim_qk
  TensorView v_cache{};  ///< head_dim = head_dim_vo

  float q_scale = 1.0f;  ///< a factor of the logits
  float k_scale = 1.0f;  ///< a stored key times k_scale is the key; mla: equals v_scale
  float v_scale = 1.0f;  ///< likewise values
  const float* k_scale_per_head = nullptr;  ///< [num_kv_heads], instead of k_scale
  const float* v_scale_per_head = nullptr;  ///< [num_kv_heads], instead of v_scale

  const float* sinks = nullptr;         ///< [num_qo_heads], logits
  const float* alibi_slopes = nullptr;  ///< [num_qo_heads]
  ScoreMod score_mod{};                 ///< run: on logits, after all else (<attune/flex.hpp>)

  const LinearCall* linear = nullptr;          ///< linear variants (<attune/linear_state.hpp>)
  const SparseCall* sparse = nullptr;          ///< specs with an indexer (<attune/sparse_call.hpp>)
  const CompressedCall* compressed = nullptr;  ///< dsv4 (<attune/compressed_call.hpp>)
};

/// Made by a BackendFactory for one spec, page size and layout; serves every layer that shares them.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Lives as long as the process.
  [[nodiscard]] virtual const BackendDescriptor& descriptor() const = 0;

  /// What plan() needs for any batch within `bounds`. Exactly this many bytes are enough.
  [[nodiscard]] virtual WorkspaceSize workspace_size(const BatchBounds& bounds) const = 0;

  /// Checks the batch and decides who computes what. The batch's arrays may be gone afterwards, but
  /// for BatchView::on_device, which every run reads in place.
  virtual Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace,
                                  Stream stream) = 0;

  /// Writes call.k and call.v to the slots of call.slot_mapping, in the cache's dtype and layout.
  /// Must come before the run() that reads those keys. Does nothing for linear variants.
  virtual Status append_kv(const LayerCall& call, Stream stream) = 0;

  /// Computes call.o, and call.lse where it is given. Linear variants also advance their states.
  virtual Status run(const Plan& plan, const LayerCall& call, Stream stream) = 0;

  /// Makes `plan` that of another batch of the same size without moving anything it points to, so
  /// that a recorded graph of its runs may be replayed.
  virtual Status refresh(Plan& plan, const BatchView& batch, Stream stream) = 0;
};

/// Everything a factory gets; no engine object.
struct BackendContext {
  AttentionSpec spec{};
  DeviceInfo device{};
  std::int32_t page_size = 1;          ///< tokens; Selection::page_size, ignored by linear variants
  KvLayout kv_layout = KvLayout::nhd;  ///< GroupSelection::kv_layout
  Executor* executor = nullptr;        ///< CPU backends' threads; outlives the backend
  bool batch_invariant = false;        ///< a request's bits must not depend on its neighbours
};

/// Makes a backend, or refuses with reasons. The caller owns the result and destroys it before the
/// executor.
using BackendFactory = Result<std::unique_ptr<Backend>> (*)(const BackendContext& context);

}  // namespace attune
