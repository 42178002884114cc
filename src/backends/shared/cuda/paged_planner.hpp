// From a checked batch to work lists in the workspace: everything a run of paged_attention.hpp
// needs and no layer changes.
//
// The workspace begins with parts whose size depends on the backend alone, so that a plan may be
// refreshed at the same addresses: counters, partial results. The lists follow, then page ids and
// mask bits; they are written by one copy from the plan's host image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/spec.hpp>
#include <attune/validate.hpp>

#include "attention/mask.hpp"
#include "kernels/paged_decode/sm80/launch.hpp"
#include "kernels/ragged_prefill/sm80/launch.hpp"
#include "plan/decode_work.hpp"
#include "plan/prefill_work.hpp"

namespace attune::backends::shared::paged {

/// What was settled when the backend was made.
struct Setup {
  const BackendDescriptor* descriptor = nullptr;
  AttentionSpec spec;
  const kernels::paged_decode::sm80::Instance* decode = nullptr;
  const kernels::ragged_prefill::sm80::Instance* prefill = nullptr;
  int decode_grid = 0;
  int decode_shared_bytes = 0;
  bool overlap = false;  ///< the card has programmatic dependent launch
  int prefill_grid = 0;
  attention::MaskRule rule;  ///< not causal where custom masks take over
};

/// Pointers into the workspace.
struct Parts {
  std::int32_t* counters = nullptr;  ///< decode: claims, arrivals; prefill: arrivals
  std::int64_t num_counters = 0;
  std::int32_t* prefill_arrivals = nullptr;
  float* decode_o = nullptr;
  float2* decode_state = nullptr;
  float* prefill_o = nullptr;
  float2* prefill_state = nullptr;
  // Written by the host.
  attention::DecodeWork* decode_work = nullptr;
  attention::DecodeChunk* chunks = nullptr;
  attention::PrefillWork* prefill_work = nullptr;
  attention::PrefillItem* items = nullptr;
  std::uint8_t* mask = nullptr;
  std::int32_t* kv_indices = nullptr;
};

/// How many of everything.
struct Sizes {
  plan::DecodeShape shape;
  std::int32_t decode_parts = 0;  ///< places, in chunks
  std::int32_t max_chunks = 0;
  std::int32_t prefill_parts = 0;
  std::int64_t max_items = 0;
  std::int64_t mask_bytes = 0;
  std::int64_t kv_entries = 0;
};

class PagedPlan final : public Plan {
 public:
  attention::BatchFacts facts;
  Workspace workspace;
  Sizes sizes;
  Parts parts;
  plan::DecodeList decode;
  plan::PrefillList prefill;
  bool decodes = false;
  bool prefills = false;
  std::vector<std::byte> image;  ///< of the lists, copied to the workspace
};

/// Sizes that any batch within `bounds` fits in; monotone in every bound.
[[nodiscard]] Sizes sizes_of(const Setup& setup, const BatchBounds& bounds);
[[nodiscard]] std::size_t workspace_bytes(const Setup& setup, const Sizes& sizes);

/// Fills the plan's lists and host image from a checked batch; sizes and workspace are set.
[[nodiscard]] Status make_lists(const Setup& setup, const BatchView& batch, PagedPlan& plan);

/// Where the lists begin in the workspace.
[[nodiscard]] Parts parts_of(const Setup& setup, const Sizes& sizes, void* memory);

}  // namespace attune::backends::shared::paged
