// BatchView: one step's requests, as index arrays; the only thing an engine hands down once per step
// (layer attention). The names and meanings are FlashInfer's (arXiv:2501.01005).
//
//   Two requests, pages of 4 tokens: 3 new tokens of 5 keys in all, and 1 new token of 9.
//     qo_indptr        {0, 3, 4}        rows of q and o: request i has [qo_indptr[i], qo_indptr[i+1])
//     kv_indptr        {0, 2, 5}        likewise entries of kv_indices
//     kv_indices       {7, 2,  9, 4, 1} page ids, in order of position
//     kv_last_page_len {1, 1}           tokens in each request's last page; 0 without pages
//
// kv_len(i) counts a request's keys including this step's new tokens: append_kv writes those before
// run reads them. Queries are aligned to the end of the keys, so row r of request i is at position
//   kv_offset(i) + kv_len(i) - qo_len(i) + r
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <attune/status.hpp>

namespace attune {

enum class BatchForm : std::uint8_t {
  extend,         ///< any number of query tokens each
  decode,         ///< exactly one query token each
  mixed,          ///< extend and decode requests together
  idle,           ///< nothing to do
  target_verify,  ///< a tree or chain of draft tokens each, custom_mask if a tree
  draft_extend,   ///< catching a draft model up
};

/// A batch-invariant backend gives a prompt the same bits however it is cut into steps of form
/// `extend`, as long as cuts and the first keys of windows lie at multiples of this many tokens.
inline constexpr std::int64_t kPromptGranule = 64;

[[nodiscard]] constexpr std::string_view name(BatchForm f) {
  switch (f) {
    case BatchForm::extend: return "extend";
    case BatchForm::decode: return "decode";
    case BatchForm::mixed: return "mixed";
    case BatchForm::idle: return "idle";
    case BatchForm::target_verify: return "target_verify";
    case BatchForm::draft_extend: return "draft_extend";
  }
  return "?";
}

/// Where run() reads keys and values from.
enum class KvSource : std::uint8_t {
  paged,   ///< kv_indices name pages of LayerCall::k_cache / v_cache
  ragged,  ///< LayerCall::k / v hold them token by token; kv_indptr counts tokens, kv_indices is
           ///< empty
};

/// A group of consecutive requests whose page tables begin with the same pages (read off the prefix
/// tree). A hint: a backend whose row says Feature::cascade may read those pages once for all of
/// the group, others read them for each request; either way results are those of a batch without
/// groups, up to rounding, and to the bit where BackendContext::batch_invariant asks for it. Groups
/// should nest; a backend passes over one that overlaps another in part.
struct PrefixGroup {
  std::int32_t first_request = 0;
  std::int32_t num_requests = 0;
  std::int32_t num_pages = 0;  ///< leading pages shared by all of them; every one full
};

/// dsv4: where a request's compressed keys are (<attune/compressed_call.hpp>). There are as many as
/// its position says: (first_kv_position + kv_len) / compress_ratio.
struct CompressedTables {
  std::span<const std::int32_t> kv_indptr{};  ///< [batch + 1], starts at 0, never falls
  /// Paged: ids of pages of page_size tokens, of another pool than BatchView::kv_indices and from
  /// position 0 on. Ragged: empty, kv_indptr counts the keys.
  std::span<const std::int32_t> kv_indices{};

  [[nodiscard]] bool given() const { return !kv_indptr.empty(); }
};

/// A mask by blocks of kMaskBlock queries by as many keys, from the first of either on
/// (<attune/flex.hpp> makes one). Request i of L queries and S keys has, for each head, a row of
/// ceil(S / kMaskBlock) entries for each of its ceil(L / kMaskBlock) blocks of queries.
inline constexpr std::int64_t kMaskBlock = 128;
inline constexpr std::int32_t kHiddenBlock = -1;  ///< no query sees a key of it
inline constexpr std::int32_t kWholeBlock = -2;   ///< every query sees every key of it
inline constexpr std::int64_t kMaskBlockBytes = kMaskBlock * kMaskBlock / 8;

struct BlockMaskView {
  int num_heads = 0;                       ///< 1: of all heads; or num_qo_heads
  std::span<const std::int64_t> indptr{};  ///< [batch + 1] entries of `blocks`
  std::span<const std::int32_t> blocks{};  ///< kHiddenBlock, kWholeBlock, or n: bits of block n
  /// [n][kMaskBlock queries][kMaskBlock keys], packed, little end first; a set bit = visible. Bits
  /// beyond a request's queries and keys are 0.
  std::span<const std::uint8_t> bits{};

  [[nodiscard]] bool given() const { return !indptr.empty(); }
};

/// A decode batch whose lengths only the device knows, because the step before wrote them there
/// (Feature::device_planning, docs/decisions/0009-device-planning.md). Given in place of kv_indptr,
/// kv_indices and kv_last_page_len, with the same meaning, in the device's memory: no length comes
/// to the host. plan() decides what the bounds decide (grid, workspace) and puts a small kernel on
/// the stream that lists the work; refresh() puts that kernel alone. Both copy nothing from or to
/// the host, so refresh() may be recorded in front of the layers' runs: each replay then plans
/// anew, from what the arrays hold at that time, without the host.
///
///   engine.bounds = {.max_batch = 64, ..., .decode_only = true};   // once; workspaces
///   batch.on_device = {.kv_indptr = ..., .kv_indices = ..., .kv_last_page_len = ...,
///                      .max_kv_entries = 4096, .max_kv_len = 8192};
///   plan = backend.plan(batch, workspace, stream);                 // once a batch size
///   record { write lengths; append_kv; refresh(plan, batch); run, run, ... run }  // then replay
///
/// A batch padded to a graph's size has rows without pages: their o is 0, their lse -infinity. A
/// request whose entries break a bound or the order of kv_indptr gets the same; none of its keys is
/// read.
struct DeviceTables {
  const std::int32_t* kv_indptr = nullptr;         ///< [batch + 1]; need not start at 0
  const std::int32_t* kv_indices = nullptr;        ///< [max_kv_entries], read in place by every run
  const std::int32_t* kv_last_page_len = nullptr;  ///< [batch]
  std::int64_t max_kv_entries = 0;                 ///< of kv_indices, over the batch
  std::int64_t max_kv_len = 0;                     ///< of one request

  [[nodiscard]] bool given() const { return kv_indptr != nullptr; }
};

/// Views of arrays in the host's memory (on_device excepted), owned by the caller and needed until
/// plan() or refresh() returns. attention::validate_batch lists what makes one invalid.
struct BatchView {
  BatchForm form = BatchForm::idle;
  KvSource source = KvSource::paged;
  std::int32_t page_size = 1;  ///< tokens; the one that the backend was made for

  std::span<const std::int32_t> qo_indptr{};         ///< [batch + 1], starts at 0, never falls
  std::span<const std::int32_t> kv_indptr{};         ///< [batch + 1], starts at 0, never falls
  std::span<const std::int32_t> kv_indices{};        ///< [kv_indptr[batch]] page ids
  std::span<const std::int32_t> kv_last_page_len{};  ///< [batch], 1 … page_size; 0 without pages
  /// The three above in the device's memory, in their place. kv_len() must not be called then.
  DeviceTables on_device{};
  /// [batch] or empty: position of the first key of the page table, where a pool of windowed layers
  /// has taken earlier pages back.
  std::span<const std::int64_t> kv_offset{};

  /// dsv4 with a compress_ratio; empty elsewhere.
  CompressedTables compressed{};

  /// Packed bits, little end first: whether row r of request i sees its key c is bit
  /// r * kv_len(i) + c, counted from byte custom_mask_indptr[i]. Every request begins on a byte of
  /// its own. A set bit = visible. The mask replaces the causal rule; windows still apply.
  std::span<const std::uint8_t> custom_mask{};
  std::span<const std::int64_t> custom_mask_indptr{};  ///< [batch + 1], bytes

  /// In place of the causal rule, as custom_mask is; windows still apply.
  BlockMaskView block_mask{};

  /// Linear variants: [batch] slots of the states; -1 = a padding row. They read qo_indptr and these
  /// three arrays only.
  std::span<const std::int32_t> state_indices{};
  /// target_verify over linear variants: the last draft_len[i] query tokens of request i are
  /// drafts. The state in slot state_indices[i] passes the tokens before them and no further; the
  /// state behind all of them goes to slot draft_states[i] (-1 where there are none), and the engine
  /// keeps it or forgets it.
  std::span<const std::int32_t> draft_len{};     ///< [batch] or empty
  std::span<const std::int32_t> draft_states{};  ///< [batch] or empty

  /// Level by level, outermost first; empty = nothing shared.
  std::span<const PrefixGroup> prefix_groups{};

  [[nodiscard]] std::int64_t batch_size() const {
    return qo_indptr.empty() ? 0 : static_cast<std::int64_t>(qo_indptr.size()) - 1;
  }
  [[nodiscard]] std::int64_t num_qo_tokens() const {
    return qo_indptr.empty() ? 0 : qo_indptr.back();
  }
  [[nodiscard]] std::int64_t qo_len(std::int64_t i) const {
    const auto n = static_cast<std::size_t>(i);
    return qo_indptr[n + 1] - qo_indptr[n];
  }
  [[nodiscard]] std::int64_t kv_len(std::int64_t i) const {
    const auto n = static_cast<std::size_t>(i);
    const std::int64_t entries = kv_indptr[n + 1] - kv_indptr[n];
    if (source == KvSource::ragged) return entries;
    return entries == 0 ? 0 : (entries - 1) * page_size + kv_last_page_len[n];
  }
  [[nodiscard]] std::int64_t first_kv_position(std::int64_t i) const {
    return kv_offset.empty() ? 0 : kv_offset[static_cast<std::size_t>(i)];
  }
};

/// The largest batch an engine will ever plan, in tokens and entries: workspaces are sized from it,
/// once. attention::bounds_of (<attune/validate.hpp>) gives those of one batch.
struct BatchBounds {
  std::int64_t max_batch = 0;
  std::int64_t max_qo_tokens = 0;
  std::int64_t max_kv_entries = 0;  ///< of kv_indices, over the batch
  std::int64_t max_kv_len = 0;      ///< of one request
  /// dsv4: tokens of one request, those whose keys a window's pool took back included; else 0.
  std::int64_t max_positions = 0;
  std::int32_t page_size = 1;
  bool decode_only = false;  ///< one query token a request: no prefill workspace is counted
};

}  // namespace attune
