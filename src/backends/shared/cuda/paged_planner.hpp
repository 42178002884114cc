// From a checked batch to work lists in the workspace: everything a run of paged_attention.hpp
// needs and no layer changes.
//
// The workspace begins with parts whose size depends on the backend alone, so that a plan may be
// refreshed at the same addresses: counters, partial results, states. The lists follow, then page
// ids and mask bits; they are written by one copy from the plan's host image.
// A plan whose lengths are on the device has its decode list made there, at the same place, and
// page ids stay where the caller has them (docs/decisions/0009-device-planning.md).
//
// A batch with levels of shared prefixes (docs/decisions/0004-cascade.md) runs in three steps: the
// levels, each request's own keys, both writing states; and the merge that writes o.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <attune/backend.hpp>
#include <attune/batch.hpp>
#include <attune/descriptor.hpp>
#include <attune/spec.hpp>
#include <attune/validate.hpp>

#include "attention/mask.hpp"
#include "backends/shared/cuda/prefill_choice.hpp"
#include "device/cuda/usable_sms.hpp"
#include "kernels/decode_plan/sm80/launch.hpp"
#include "kernels/paged_decode/sm80/launch.hpp"
#include "kernels/ragged_prefill/sm80/launch.hpp"
#include "kernels/ragged_prefill/sm90/launch.hpp"
#include "plan/cascade.hpp"
#include "plan/decode_work.hpp"
#include "plan/level_work.hpp"
#include "plan/prefill_work.hpp"
#include "plan/workspace_image.hpp"

namespace attune::backends::shared::paged {

/// What was settled when the backend was made.
struct Setup {
  const BackendDescriptor* descriptor = nullptr;
  AttentionSpec spec;
  std::int32_t page_size = 1;
  const kernels::paged_decode::sm80::Instance* decode = nullptr;
  const kernels::ragged_prefill::sm80::Instance* prefill = nullptr;
  int decode_grid = 0;
  kernels::paged_decode::sm80::Block decode_block = {};
  bool overlap = false;  ///< the card has programmatic dependent launch
  int num_sms = 0;
  int prefill_grid = 0;
  PrefillKernels prefill_kernels{};
  bool plans_on_device = false;  ///< the name declares Feature::device_planning
  attention::MaskRule rule;      ///< not causal where masks take over
  plan::CascadeMode cascade = plan::CascadeMode::off;
  bool mails = true;  ///< PagedOptions::mails
  /// The Hopper kernel of levels that all their rows see whole; none on other cards, for other
  /// head dims, options and page sizes: then levels are items of the general prefill kernel.
  std::optional<kernels::ragged_prefill::sm90::Instance> level{};
  kernels::tensor_map::Encoder encoder = nullptr;

  /// Masks are for the kernel of several query tokens.
  [[nodiscard]] bool may_decode() const { return !spec.custom_mask && !spec.block_mask; }
};

/// Pointers into the workspace.
struct Parts {
  std::int32_t* counters = nullptr;  ///< decode: claims, arrivals; prefill: arrivals
  std::int64_t num_counters = 0;
  std::int32_t* prefill_arrivals = nullptr;
  float* decode_o = nullptr;
  float2* decode_state = nullptr;
  float4* decode_mail_o = nullptr;  ///< every bit set between runs, and so …
  float2* decode_mail_state = nullptr;
  std::int64_t num_mail = 0;  ///< places of both
  float* prefill_o = nullptr;
  float2* prefill_state = nullptr;
  float* state_o = nullptr;    ///< [state_rows, num_qo_heads, head_dim_vo]
  float* state_lse = nullptr;  ///< [state_rows, num_qo_heads]
  kernels::decode_plan::sm80::Row* plan_rows = nullptr;  ///< of plans made on the device
  std::byte* rows = nullptr;       ///< of keys and values that are copied before tiles read them
  std::int32_t* blocks = nullptr;  ///< of a mask by blocks, sent by copies of their own
  std::uint8_t* block_bits = nullptr;
  // Written by the host: the first five where there are levels, the next two where there are
  // requests of several query tokens, the rest always.
  attention::TokenRule* rules = nullptr;
  std::int32_t* state_first = nullptr;
  std::int32_t* states = nullptr;
  kernels::ragged_prefill::sm90::WorkList* level_work = nullptr;
  attention::PrefillTile* level_items = nullptr;
  attention::PrefillWork* prefill_work = nullptr;
  attention::PrefillItem* items = nullptr;
  // In the place of these two where the plan's choice is tiled.
  kernels::ragged_prefill::sm90::WorkList* tile_work = nullptr;
  std::uint32_t* num_rows = nullptr;
  attention::PrefillTile* tiles = nullptr;
  attention::DecodeWork* decode_work = nullptr;
  attention::DecodeChunk* chunks = nullptr;
  std::uint8_t* mask = nullptr;
  std::int32_t* kv_indices = nullptr;
};

/// How many of everything.
struct Sizes {
  plan::DecodeShape shape;
  std::int32_t decode_parts = 0;  ///< places, in chunks
  std::int32_t max_chunks = 0;
  bool mails = false;  ///< so few requests that each block may have one part of one
  std::int64_t plan_rows = 0;
  std::int32_t prefill_parts = 0;
  std::int64_t max_items = 0;
  std::int64_t max_tiles = 0;
  std::int64_t max_rows = 0;  ///< copied; row_bytes each
  std::int64_t row_bytes = 0;
  std::int64_t mask_bytes = 0;
  std::int64_t blocks = 0;        ///< of a mask by blocks …
  std::int64_t mixed_blocks = 0;  ///< … and those that have bits
  std::int64_t kv_entries = 0;
  std::int64_t state_tokens = 0;  ///< query tokens that may have levels; 0: no levels
  std::int64_t state_rows = 0;
  std::int64_t max_level_tiles = 0;
};

class PagedPlan final : public Plan {
 public:
  attention::BatchFacts facts;
  Workspace workspace;
  Sizes sizes;
  Parts parts;
  plan::DecodeList decode;
  plan::PrefillList prefill;
  plan::PrefillSchedule schedule;  ///< instead, where prefill_choice is tiled
  plan::StateList states;
  std::vector<attention::PrefillTile> level_tiles;
  // Settled by plan(), because a captured run launches what it launches.
  bool cascades = false;  ///< everything writes states
  bool tiled = false;     ///< levels are tiles of Setup::level
  int level_grid = 0;
  bool beside = false;  ///< decodes run beside the levels
  PrefillChoice prefill_choice;
  bool decodes = false;
  bool prefills = false;
  std::int32_t block_heads = 0;    ///< of the mask by blocks, that have their own
  device::cuda::UsableSms usable;  ///< by plan()'s stream
  DeviceTables tables;             ///< given: lists are made on the device, from these
  plan::WorkspaceImage image;      ///< of the lists that this plan reads
  plan::WorkspaceImage blocks;
  plan::WorkspaceImage block_bits;
};

/// The general prefill kernel, as its planner sees it.
[[nodiscard]] plan::PrefillShape prefill_shape(const Setup& setup, const Sizes& sizes);

/// Sizes that any batch within `bounds` fits in; monotone in every bound.
[[nodiscard]] Sizes sizes_of(const Setup& setup, const BatchBounds& bounds);
[[nodiscard]] std::size_t workspace_bytes(const Setup& setup, const Sizes& sizes);

/// Fills the plan's lists and host image from a checked batch; sizes and workspace are set. A
/// `fresh` plan settles what later batches must keep to.
[[nodiscard]] Status make_lists(const Setup& setup, const BatchView& batch, bool fresh,
                                PagedPlan& plan);

/// Puts the kernel on the stream that makes a plan's lists from `tables`; sizes and workspace are
/// set. The plan keeps the tables: a run reads page ids where they are.
[[nodiscard]] Status list_on_device(const Setup& setup, std::int64_t num_requests,
                                    const DeviceTables& tables, PagedPlan& plan, Stream stream);

/// Where everything lies in the workspace.
[[nodiscard]] Parts parts_of(const Setup& setup, const Sizes& sizes, void* memory);

}  // namespace attune::backends::shared::paged
