// What the Hopper kernels of linear attention see (docs/architecture.md, "What a line of kernel
// code may touch"; docs/decisions/0007-linear-on-hopper.md says which kernel does what).
#pragma once

#include <cstdint>

#include "kernels/linear/params.hpp"
#include "kernels/linear/policy.hpp"

namespace attune::kernels::linear::sm90 {

constexpr bool has_delta_rule(Family f) { return f == Family::gdn || f == Family::kda; }

/// bf16 as stored.
using Half = std::uint16_t;

/// First chunks of a request whose state is copied for scan, each a share.
inline constexpr int kCopyShares = 16;

/// Up to kChunk tokens of one request.
struct Chunk {
  std::int64_t first_token = 0;
  std::int64_t before = 0;  ///< tokens of the request in this batch that precede it
  std::int32_t count = 0;
  std::int32_t slot = -1;
  std::int32_t copy = -1;  ///< >= 0: scores leaves its share of the state before the request there
};

/// The chunks of one request, in order: chunk c has the tokens from kChunk c on. Where requests are
/// few, one is walked twice at once, since the state's chain is faster than what makes the output:
/// one walk makes the output of its first chunks, another runs ahead without it to make the rest.
struct Sequence {
  std::int64_t first_token = 0;
  std::int32_t num_tokens = 0;
  std::int32_t first_chunk = 0;
  std::int32_t num_chunks = 0;
  std::int32_t slot = -1;
  std::int32_t silent_chunks = 0;  ///< at the begin, without output
  std::int32_t copy = -1;          ///< >= 0: begins with this copy and does not keep its state
};

/// One request's whole span, for the kernels that take a request at once.
struct alignas(16) Span {
  std::int64_t first_token = 0;
  std::int32_t num_tokens = 0;
  std::int32_t slot = -1;  ///< -1: padding; nothing is read or written
};

/// Per chunk and value head, kChunk floats each; with the delta rule scan needs the first two.
enum Gate : int { kSince, kUntil, kLogDecay, kBeta, kNumGates };

/// bf16 rows [tokens, heads, columns]: what prepare leaves, or lightning's own tensors.
struct RowsOf {
  Half* data = nullptr;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

/// For prepare, gates, scores and scan.
struct PromptParams {
  Params p;
  const Chunk* chunks = nullptr;
  const Sequence* sequences = nullptr;
  std::int32_t num_chunks = 0;
  std::int32_t num_sequences = 0;

  std::int32_t key_heads = 0;  ///< of the rows below: kda has one a value head
  std::int32_t key_columns = 0;
  std::int32_t value_columns = 0;  ///< a multiple of the scan's slice
  RowsOf q;  ///< kda: scores multiplies q and k by their decay since the chunk's begin
  RowsOf k;
  RowsOf v;
  RowsOf k_until;  ///< kda: k times its decay until the chunk's end

  float* gates = nullptr;      ///< [chunks, v heads, kNumGates, kChunk]
  float* end_decay = nullptr;  ///< kda: [chunks, v heads, key_columns], e^G at the chunk's end
  Half* solve = nullptr;       ///< T: [chunks, v heads, kChunk, kChunk], the lower blocks
  Half* scores = nullptr;      ///< P: likewise
  float* copies = nullptr;     ///< of states: [copies, v heads, dv, dk]
  bool wide_rows = false;      ///< activations can be read 8 at a time
  bool wide_weight = false;    ///< weights of the convolution can be read 4 at a time
  bool wide_gate = false;      ///< kda's raw gates can be read 2 at a time
  bool wide_o = false;         ///< o can be written 8 at a time
};

/// For recurrent.
struct DecodeParams {
  Params p;
  const Span* spans = nullptr;
  std::int32_t num_spans = 0;
  bool wide_state = false;       ///< rows of the state are whole 16 bytes
  std::int32_t heads_a_key = 1;  ///< value heads of a key head
  std::int32_t tiles = 1;        ///< of 32 rows of the state, a block; 1, 2 or 4
};

/// For short_conv and the advance of every convolution's state.
struct ConvolutionParams {
  bool bf16 = false;
  bool silu = false;
  int kernel = 0;
  int channels = 0;
  Activations input{};
  const float* weight = nullptr;
  const float* bias = nullptr;
  void* state = nullptr;
  std::int64_t state_slot = 0;
  void* o = nullptr;
  std::int64_t o_row = 0;
  const Span* spans = nullptr;
  std::int32_t num_spans = 0;
  std::int32_t most_tokens = 0;  ///< of a span
  bool wide_advance = false;     ///< bf16, four taps, eight channels are whole 16 bytes everywhere
};

/// For the states of draft tokens.
struct ForkParams {
  const Span* known = nullptr;   ///< [num_spans]: the tokens before the drafts, and their state
  const Span* drafts = nullptr;  ///< [num_spans]: slot -1: no drafts
  std::int32_t num_spans = 0;
  ConvolutionParams convolution;  ///< its spans are not read
  float* state = nullptr;
  std::int64_t state_slot = 0;
  std::int64_t elements = 0;  ///< of a state
  bool wide_state = false;    ///< a state is whole 16 bytes
};

}  // namespace attune::kernels::linear::sm90
