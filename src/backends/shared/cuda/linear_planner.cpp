#include "backends/shared/cuda/linear_planner.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "backends/shared/linear_checks.hpp"
#include "base/math.hpp"
#include "kernels/linear/sm90/launch.hpp"
#include "plan/workspace.hpp"

namespace attune::backends::shared::cuda {
namespace {

namespace linear = kernels::linear;
namespace sm90 = kernels::linear::sm90;
using linear::kChunk;
using linear::kRecurrentBelow;

/// Whether runs of `columns` elements that begin `row` elements apart start at whole units of
/// `unit` bytes.
bool aligned(const linear::Activations& a, std::int64_t columns, std::size_t element,
             std::size_t unit) {
  return reinterpret_cast<std::uintptr_t>(a.data) % unit == 0 &&
         static_cast<std::size_t>(a.row) * element % unit == 0 &&
         static_cast<std::size_t>(columns) * element % unit == 0;
}

}  // namespace

LinearSizes sizes_of(const LinearSetup& setup, const BatchBounds& bounds) {
  LinearSizes n{.spans = bounds.max_batch, .drafts = bounds.decode_only ? 0 : bounds.max_batch};
  const std::int64_t least = setup.least_prompt();
  if (!setup.has_chunks() || bounds.decode_only || bounds.max_qo_tokens < least) return n;
  n.prompt_tokens = bounds.max_qo_tokens;
  n.sequences = std::min(bounds.max_batch, bounds.max_qo_tokens / least);
  n.chunks = bounds.max_qo_tokens / kChunk + n.sequences;
  return n;
}

int padded_value_columns(const AttentionSpec& spec) {
  return base::round_up(spec.linear_head_dim_v, sm90::kNarrowSlice);
}

int sms_of_scan_beside_scores(const LinearSetup& setup, std::int64_t num_sequences,
                              std::int64_t num_chunks) {
  constexpr int kLeastAnSm = 4;  // chunks of a head: fewer are done before scan is under way
  if (setup.family != linear::Family::gdn ||
      num_chunks * setup.spec.linear_num_v_heads < kLeastAnSm * setup.num_sms)
    return 0;
  const std::int64_t blocks = num_sequences * setup.spec.linear_num_v_heads *
                              (padded_value_columns(setup.spec) / sm90::kNarrowSlice);
  return 2 * blocks <= setup.num_sms ? static_cast<int>(blocks) : 0;
}

int padded_key_heads(const LinearSetup& setup) {
  return setup.family == linear::Family::kda ? setup.spec.linear_num_v_heads
                                             : setup.spec.linear_num_k_heads;
}

int slice_of(const LinearSetup& setup, std::int64_t num_sequences) {
  const AttentionSpec& spec = setup.spec;
  const int columns = padded_value_columns(spec);
  const bool possible = columns % sm90::kWideSlice == 0 &&
                        sm90::key_columns(setup.family, spec.linear_head_dim_k) == 128;
  const std::int64_t narrow =
      num_sequences * spec.linear_num_v_heads * (columns / sm90::kNarrowSlice);
  return possible && narrow > setup.num_sms ? sm90::kWideSlice : sm90::kNarrowSlice;
}

LinearParts lay_out(const LinearSetup& setup, const LinearSizes& n, void* workspace) {
  plan::WorkspaceCutter cut =
      workspace == nullptr ? plan::WorkspaceCutter() : plan::WorkspaceCutter(workspace);
  LinearParts parts;
  parts.spans = cut.take<sm90::Span>(n.spans);
  if (setup.recurs()) {
    parts.short_spans = cut.take<sm90::Span>(n.spans);
    parts.sequences = cut.take<sm90::Sequence>(n.sequences);
    parts.chunks = cut.take<sm90::Chunk>(n.chunks);
  }
  parts.drafts = cut.take<sm90::Span>(n.drafts);
  parts.list_bytes = cut.bytes();
  if (setup.recurs()) {
    const AttentionSpec& s = setup.spec;
    const std::int64_t readers = n.spans * s.linear_num_k_heads * sm90::kTokenWarps;
    const std::int64_t ready = setup.family == linear::Family::gdn && n.sequences > 0
                                   ? (n.chunks + n.sequences) * s.linear_num_v_heads + 1
                                   : 0;
    parts.readers = cut.take<std::int32_t>(readers + ready);
    parts.counter_bytes = static_cast<std::size_t>(readers + ready) * sizeof(std::int32_t);
    if (parts.readers != nullptr && ready > 0) parts.ready = parts.readers + readers;
  }
  if (setup.recurs() && n.sequences > 0) {
    const AttentionSpec& s = setup.spec;
    const std::int64_t heads = s.linear_num_v_heads;
    const std::int64_t columns = sm90::key_columns(setup.family, s.linear_head_dim_k);
    const bool delta = sm90::has_delta_rule(setup.family);
    // With the delta rule chunks are whole tiles.
    const std::int64_t rows = delta ? n.chunks * kChunk : n.prompt_tokens;
    const std::int64_t keys = rows * padded_key_heads(setup) * columns;
    parts.q = cut.take<sm90::Half>(keys);
    parts.k = cut.take<sm90::Half>(keys);
    parts.v = cut.take<sm90::Half>(rows * heads * padded_value_columns(s));
    if (delta) {
      parts.pairs = cut.take<sm90::Pairs>(n.chunks * heads);
    } else {
      parts.gates = cut.take<float>(n.chunks * heads * sm90::kNumGates * kChunk);
    }
    if (setup.family == linear::Family::kda) parts.k_until = cut.take<sm90::Half>(keys);
  }
  parts.bytes = cut.bytes();
  return parts;
}

Status make_lists(const LinearSetup& setup, const BatchView& batch, LinearLists& lists) {
  if (Status s = validate_linear_batch(setup.spec, batch); !s.ok()) return s;
  const bool verify = batch.form == BatchForm::target_verify;
  const std::int64_t least_prompt =
      batch.form == BatchForm::extend ? setup.least_prompt() : kRecurrentBelow;
  lists = {};
  lists.num_tokens = batch.num_qo_tokens();
  std::vector<sm90::Span> prompts;
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int32_t num_drafts = batch.draft_len.empty() ? 0 : batch.draft_len[at];
    const sm90::Span span{.first_token = batch.qo_indptr[at],
                          .num_tokens = static_cast<std::int32_t>(batch.qo_len(i)) - num_drafts,
                          .slot = batch.state_indices[at]};
    lists.spans.push_back(span);
    const std::int32_t worked_on = std::min(span.num_tokens, span.slot < 0 ? 1 : span.num_tokens);
    lists.most_tokens = std::max({lists.most_tokens, worked_on, num_drafts});
    lists.max_slot = std::max<std::int64_t>(lists.max_slot, span.slot);
    if (verify) {
      lists.drafts.push_back({.first_token = span.first_token + span.num_tokens,
                              .num_tokens = num_drafts,
                              .slot = batch.draft_states.empty() ? -1 : batch.draft_states[at]});
      lists.max_slot = std::max<std::int64_t>(lists.max_slot, lists.drafts.back().slot);
    }
    if (!setup.recurs()) continue;
    // Padding stays among the short ones, so that a captured launch may meet it again as a request.
    const bool prompt =
        setup.has_chunks() && !verify && span.slot >= 0 && span.num_tokens >= least_prompt;
    (prompt ? prompts : lists.short_spans).push_back(span);
  }
  // Few lengths: verifications of more drafts than before seldom ask for a new plan.
  if (verify && lists.most_tokens > 0)
    lists.most_tokens = std::bit_ceil(static_cast<std::uint32_t>(lists.most_tokens));
  std::stable_sort(prompts.begin(), prompts.end(), [](const sm90::Span& a, const sm90::Span& b) {
    return a.num_tokens > b.num_tokens;
  });
  for (const sm90::Span& span : prompts) {
    const auto first = static_cast<std::int32_t>(lists.chunks.size());
    for (std::int32_t before = 0; before < span.num_tokens; before += kChunk)
      lists.chunks.push_back({.first_token = span.first_token + before,
                              .before = before,
                              .count = std::min(kChunk, span.num_tokens - before),
                              .slot = span.slot,
                              .index = static_cast<std::int32_t>(lists.chunks.size())});
    lists.sequences.push_back({.first_token = span.first_token,
                               .num_tokens = span.num_tokens,
                               .first_chunk = first,
                               .num_chunks = static_cast<std::int32_t>(lists.chunks.size()) - first,
                               .slot = span.slot});
  }
  std::stable_sort(lists.chunks.begin(), lists.chunks.end(),
                   [](const sm90::Chunk& a, const sm90::Chunk& b) { return a.before < b.before; });
  return {};
}

void write_image(const LinearParts& parts, const LinearLists& lists, void* workspace,
                 plan::WorkspaceImage& image) {
  image.clear();
  image.cover(workspace, static_cast<std::byte*>(workspace) + parts.list_bytes);
  image.put(parts.spans, lists.spans);
  image.put(parts.short_spans, lists.short_spans);
  image.put(parts.sequences, lists.sequences);
  image.put(parts.chunks, lists.chunks);
  image.put(parts.drafts, lists.drafts);
}

PromptLaunch prompt_launch(const LinearSetup& setup, const LinearLists& lists,
                           const LinearParts& parts, const linear::Params& p) {
  const std::size_t element = p.bf16 ? 2 : 4;
  const int key_heads = padded_key_heads(setup);
  const int key_columns = sm90::key_columns(setup.family, p.dk);
  const int value_columns = padded_value_columns(setup.spec);
  const auto rows = [](sm90::Half* data, std::int64_t heads, std::int64_t columns) {
    return sm90::RowsOf{data, heads * columns, columns};
  };
  const auto num_chunks = static_cast<std::int32_t>(lists.chunks.size());
  const auto num_sequences = static_cast<std::int32_t>(lists.sequences.size());
  const int of_scan = sms_of_scan_beside_scores(setup, num_sequences, num_chunks);
  PromptLaunch launch{.params = {.p = p,
                                 .chunks = parts.chunks,
                                 .sequences = parts.sequences,
                                 .num_chunks = num_chunks,
                                 .num_sequences = num_sequences,
                                 .num_sms = setup.num_sms,
                                 .key_heads = key_heads,
                                 .key_columns = key_columns,
                                 .value_columns = value_columns,
                                 .q = rows(parts.q, key_heads, key_columns),
                                 .k = rows(parts.k, key_heads, key_columns),
                                 .v = rows(parts.v, p.num_v_heads, value_columns),
                                 .k_until = rows(parts.k_until, key_heads, key_columns),
                                 .gates = parts.gates,
                                 .pairs = parts.pairs,
                                 .ready = parts.ready,
                                 .beside = of_scan > 0 ? setup.num_sms : 0,
                                 .leaving = of_scan},
                      .slice = slice_of(setup, num_sequences)};
  sm90::PromptParams& d = launch.params;
  if (parts.ready != nullptr) {
    d.passed = d.ready + std::int64_t{num_chunks} * p.num_v_heads;
    d.next = d.passed + std::int64_t{num_sequences} * p.num_v_heads;
  }
  const bool convolves = p.conv_kernel > 0;
  const linear::Activations& q = convolves ? p.conv_input : p.q;
  const linear::Activations& k = convolves ? p.conv_input : p.k;
  const linear::Activations& v = convolves ? p.conv_input : p.v;
  d.wide_rows = aligned(q, p.dk, element, 16) && aligned(k, p.dk, element, 16) &&
                aligned(v, p.dv, element, 16);
  d.wide_weight = reinterpret_cast<std::uintptr_t>(p.conv_weight) % 16 == 0;
  d.wide_gate = aligned(p.gate, p.dk, element, 2 * element);
  d.whole_gates = aligned(p.gate, p.dk, element, 16);
  d.wide_o = aligned({p.o, p.o_row}, p.dv, element, 8 * element);
  // Tensors that are as the products want them are read where they lie.
  launch.copy_rows = sm90::has_delta_rule(p.family) || convolves || !p.bf16 || !d.wide_rows ||
                     p.dk != key_columns || p.dv != value_columns;
  if (launch.copy_rows) return launch;
  const auto own = [](const linear::Activations& a, std::int64_t columns) {
    return sm90::RowsOf{const_cast<sm90::Half*>(static_cast<const sm90::Half*>(a.data)), a.row,
                        columns};
  };
  d.q = own(p.q, p.dk);
  d.k = own(p.k, p.dk);
  d.v = own(p.v, p.dv);
  return launch;
}

sm90::DecodeParams decode_params(const LinearSetup& setup, const LinearLists& lists,
                                 const LinearParts& parts, const linear::Params& p,
                                 void* conv_state) {
  const auto state = reinterpret_cast<std::uintptr_t>(p.state);
  const auto num_spans = static_cast<std::int32_t>(lists.short_spans.size());
  // Blocks of several tiles prepare their token once for all of them, where enough blocks are left.
  const int heads = num_spans * p.num_v_heads;
  const bool wide_state = p.dk % 4 == 0 && p.state_slot % 4 == 0 && state % 16 == 0;
  constexpr std::int64_t kLeastAnSm = 240;  ///< rows of states: fewer are done before blocks pay
  const bool stays = wide_state && lists.most_tokens <= 1 && p.dk == 128 && p.dv % 32 == 0 &&
                     p.conv_kernel > 0 && p.conv_kernel <= 4 &&
                     std::int64_t{heads} * p.dv >= kLeastAnSm * setup.num_sms;
  return {.p = p,
          .spans = parts.short_spans,
          .num_spans = num_spans,
          .wide_state = wide_state,
          .heads_a_key = p.num_v_heads / p.num_k_heads,
          .tiles = heads >= 1024  ? 4
                   : heads >= 512 ? 2
                                  : 1,
          .staying = stays ? setup.num_sms : 0,
          .conv_state = recurrent_moves_history(setup, lists) ? conv_state : nullptr,
          .readers = parts.readers};
}

sm90::ConvolutionParams convolution_launch(const LinearLists& lists, const LinearParts& parts,
                                           const linear::ConvolutionParams& p) {
  return {.bf16 = p.bf16,
          .silu = p.silu,
          .kernel = p.kernel,
          .channels = p.channels,
          .input = p.input,
          .weight = p.weight,
          .bias = p.bias,
          .state = p.state,
          .state_slot = p.state_slot,
          .o = p.o,
          .o_row = p.o_row,
          .spans = parts.spans,
          .num_spans = static_cast<std::int32_t>(lists.spans.size()),
          .most_tokens = lists.most_tokens,
          .wide_advance = p.bf16 && p.kernel == 4 && p.channels % 8 == 0 && p.state_slot % 8 == 0 &&
                          reinterpret_cast<std::uintptr_t>(p.state) % 16 == 0 &&
                          aligned(p.input, p.channels, 2, 16)};
}

sm90::ForkParams fork_launch(const LinearLists& lists, const LinearParts& parts,
                             const sm90::ConvolutionParams& convolution, const linear::Params* p) {
  sm90::ForkParams d{.known = parts.spans,
                     .drafts = parts.drafts,
                     .num_spans = static_cast<std::int32_t>(lists.drafts.size()),
                     .convolution = convolution};
  if (p == nullptr) return d;
  d.state = p->state;
  d.state_slot = p->state_slot;
  d.elements = std::int64_t{p->num_v_heads} * p->dv * p->dk;
  d.wide_state = d.elements % 4 == 0 && d.state_slot % 4 == 0 &&
                 reinterpret_cast<std::uintptr_t>(p->state) % 16 == 0;
  return d;
}

}  // namespace attune::backends::shared::cuda
