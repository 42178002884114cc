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

/// Up to kChunk tokens of one request.
struct Chunk {
  std::int64_t first_token = 0;
  std::int64_t before = 0;  ///< tokens of the request in this batch that precede it
  std::int32_t count = 0;
  std::int32_t slot = -1;
  std::int32_t index = 0;  ///< where its results are: after the request's earlier ones
};

/// The chunks of one request, in order: chunk c has the tokens from kChunk c on.
struct Sequence {
  std::int64_t first_token = 0;
  std::int32_t num_tokens = 0;
  std::int32_t first_chunk = 0;
  std::int32_t num_chunks = 0;
  std::int32_t slot = -1;
};

/// One request's whole span, for the kernels that take a request at once.
struct alignas(16) Span {
  std::int64_t first_token = 0;
  std::int32_t num_tokens = 0;
  std::int32_t slot = -1;  ///< -1: padding; nothing is read or written
};

/// Per chunk and value head, kChunk floats each.
enum Gate : int { kSince, kUntil, kLogDecay, kBeta, kNumGates };

/// Elements of the blocks of 16 x 16 on and below the diagonal of a chunk's matrix.
inline constexpr int kTriangle = kChunk * (kChunk + kBlock) / 2;

/// What scores leaves to scan for a chunk of a value head. A matrix goes by panels of 16 columns,
/// of each the rows from its diagonal block on: what a product over 16 tokens reads.
struct alignas(256) Pairs {
  Half solve[kTriangle];   ///< T
  Half scores[kTriangle];  ///< P
  /// Of tokens: kSince, then kUntil. By channel (kda): e^G at the chunk's end.
  float decay[2 * kChunk];
};
static_assert(sizeof(Pairs) == 2 * kTriangle * sizeof(Half) + 2 * kChunk * sizeof(float));

/// bf16 rows [tokens, heads, columns]: what prepare leaves, or lightning's own tensors. With the
/// delta rule chunks of it, as tiles of 64 columns that the copy engine takes as they are
/// ([chunks, heads, columns / 64, kChunk, 64], pieces turned as in tiles.cuh; strides as of rows),
/// zeros beyond a chunk's tokens.
struct RowsOf {
  Half* data = nullptr;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;

  /// The first tile of a chunk's head.
  [[nodiscard]] constexpr Half* tiles(std::int32_t chunk, int head) const {
    return data + kChunk * (chunk * token_stride + head * head_stride);
  }
};

/// For prepare, gates, scores and scan.
struct PromptParams {
  Params p;
  const Chunk* chunks = nullptr;  ///< first those that begin requests
  const Sequence* sequences = nullptr;
  std::int32_t num_chunks = 0;
  std::int32_t num_sequences = 0;
  std::int32_t num_sms = 0;

  std::int32_t key_heads = 0;  ///< of the rows below: kda has one a value head
  std::int32_t key_columns = 0;
  std::int32_t value_columns = 0;  ///< a multiple of the scan's slice
  RowsOf q;  ///< kda: scores multiplies q and k by their decay since the chunk's begin
  RowsOf k;
  RowsOf v;
  RowsOf k_until;  ///< kda: k times its decay until the chunk's end

  float* gates = nullptr;  ///< without delta rule: [chunks, v heads, kNumGates, kChunk]
  Pairs* pairs = nullptr;  ///< with it: [chunks, v heads]

  /// Few requests leave SMs idle in scan: scores then runs beside it, and scan waits for what it
  /// needs next. All zeros before a launch and after it.
  std::int32_t* ready = nullptr;   ///< [v heads, chunks]: 1: scores has been there; may be null
  std::int32_t* passed = nullptr;  ///< [sequences, v heads]: blocks of scan that wait no more
  std::int32_t* next = nullptr;    ///< the chunk and key head that scores takes next
  std::int32_t beside = 0;         ///< blocks of scores, an SM each; 0: scan follows scores
  std::int32_t leaving = 0;        ///< of them the last, which make way for scan

  bool wide_rows = false;    ///< activations can be read 8 at a time
  bool wide_weight = false;  ///< weights of the convolution can be read 4 at a time
  bool wide_gate = false;    ///< kda's raw gates can be read 2 at a time
  bool whole_gates = false;  ///< and those of a head are whole 16 bytes
  bool wide_o = false;       ///< o can be written 8 at a time
};

/// Make a token for recurrent together.
inline constexpr int kTokenWarps = 4;

/// For recurrent.
struct DecodeParams {
  Params p;
  const Span* spans = nullptr;
  std::int32_t num_spans = 0;
  bool wide_state = false;       ///< rows of the state are whole 16 bytes
  std::int32_t heads_a_key = 1;  ///< value heads of a key head
  std::int32_t tiles = 1;        ///< of 32 rows of the state, a block; 1, 2 or 4
  /// Blocks that stay, an SM each, where every span is a token and its states whole tiles; or 0.
  std::int32_t staying = 0;
  /// The convolution's state, to be moved past the spans; null: it is read only.
  void* conv_state = nullptr;
  /// [spans, k heads, kTokenWarps]: how many have read a warp's channels of q and k. All zeros
  /// before a launch and after it.
  std::int32_t* readers = nullptr;
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
