#include "bench/case.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "base/join.hpp"
#include "tensor/kv_layout.hpp"

namespace attune::bench {
namespace {

using base::join;

constexpr int kKvHeads = 8;           // unless a name says otherwise: 32/8 at gqa4, as Llama-3 8B
constexpr int kLatentRank = 512;      // of mla cases, DeepSeek's
constexpr int kDualChunk = 16384;     // positions of a chunk: several of them in seconds
constexpr int kMostChosenRatio = 16;  // keys that stand for more tokens are all kept
constexpr int kLinearChunk = 64;      // tokens of the parallel form whose flops are counted

struct SuiteRow {
  std::string_view suite;
  std::string_view name;
};

// Shapes of models in use; bench/README.md says which targets they stand for.
constexpr SuiteRow kHostRows[] = {
    {"prefill", "gqa/prefill/bf16/hd128/gqa4/page16/b1x512"},
    {"prefill", "gqa/prefill/bf16/hd128/gqa4/page16/b1x2048"},
    {"prefill", "gqa/prefill/bf16/hd128/gqa4/page16/b1x4096"},
    {"prefill", "gqa/prefill/bf16/hd64/gqa4/page16/b1x2048"},
    {"prefill", "gqa/prefill/fp32/hd128/gqa4/page16/b1x2048"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page16/b1x4096"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page16/b1x16384"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page16/b1x32768"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page16/b8x4096"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page1/b1x16384"},
    {"decode", "gqa/decode/fp8_e4m3/hd128/gqa4/page16/b1x16384"},
    {"decode", "gqa/decode/int8/hd128/gqa4/page16/b1x16384"},
    {"mla", "mla/decode/bf16/hd576/gqa16/page64/b1x8192"},
    {"mla", "mla/decode/bf16/hd576/gqa128/page64/b1x8192"},
    {"mla", "mla/decode/fp8_e4m3/hd576/gqa128/page64/b1x8192"},
    {"mla", "gqa/prefill/bf16/hd192-128/gqa1/page64/b1x2048"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page16/b4x256+2048"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page16/b4x256+2048/flat"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page16/b16x1024+8192"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page16/b16x1024+8192/flat"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page16/b64x1024+32768"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page16/b64x1024+32768/flat"},
    {"sparse", "sparse_mla/decode/bf16/hd576/gqa128/page64/b1x8192"},
    {"sparse", "sparse_mla/decode/bf16/hd576/gqa128/page64/b1x65536"},
    {"sparse", "sparse_mla/decode/fp8_e4m3/hd576/gqa128/page64/b1x65536"},
    {"sparse", "sparse_mla/prefill/bf16/hd576/gqa16/page64/b1x4096"},
    {"sparse", "minimax_sparse/decode/bf16/hd128/gqa16x4/page16/b1x16384"},
    {"sparse", "gqa/decode/bf16/hd128/gqa16x4/page16/b1x16384"},
    {"sparse", "minimax_sparse/decode/bf16/hd128/gqa16x4/page16/b1x65536"},
    {"sparse", "gqa/decode/bf16/hd128/gqa16x4/page16/b1x65536"},
    {"sparse", "minimax_sparse/prefill/bf16/hd128/gqa16x4/page16/b1x4096"},
    {"sparse", "gqa/prefill/bf16/hd128/gqa16x4/page16/b1x4096"},
    {"sparse", "dsv4/decode/bf16/hd512/gqa64/page256/m4/b1x65536"},
    {"sparse", "dsv4/decode/bf16/hd512/gqa64/page256/m128/b1x65536"},
    {"sparse", "dsv4/prefill/bf16/hd512/gqa64/page256/m4/b1x2048"},
    {"linear", "gdn/prefill/bf16/hd128/h32/b1x4096"},
    {"linear", "gdn/prefill/bf16/hd128/h32/b1x16384"},
    {"linear", "kda/prefill/bf16/hd128/h32/b1x4096"},
    {"linear", "mamba2/prefill/bf16/hd128-64/h64/b1x4096"},
    {"linear", "lightning/prefill/bf16/hd128/h32/b1x4096"},
    {"linear", "gdn/decode/bf16/hd128/h32/b16x1"},
    {"linear", "kda/decode/bf16/hd128/h32/b16x1"},
    {"linear", "mamba2/decode/bf16/hd128-64/h64/b16x1"},
    // Every number of a case by itself, for `attune bench growth`.
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b1x512"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b1x1024"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b1x2048"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b1x4096"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b1x8192"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b2x512"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b4x512"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b8x512"},
    {"growth", "gqa/prefill/bf16/hd128/gqa1/page16/b1x2048"},
    {"growth", "gqa/prefill/bf16/hd128/gqa2/page16/b1x2048"},
    {"growth", "gqa/prefill/bf16/hd128/gqa8/page16/b1x2048"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b1x2048"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b1x4096"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b1x8192"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b1x16384"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b1x32768"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b2x4096"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b4x4096"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b8x4096"},
    {"growth", "gqa/decode/bf16/hd128/gqa1/page16/b1x16384"},
    {"growth", "gqa/decode/bf16/hd128/gqa2/page16/b1x16384"},
    {"growth", "gqa/decode/bf16/hd128/gqa8/page16/b1x16384"},
    {"growth", "mla/decode/bf16/hd576/gqa16/page64/b1x2048"},
    {"growth", "mla/decode/bf16/hd576/gqa16/page64/b1x4096"},
    {"growth", "mla/decode/bf16/hd576/gqa16/page64/b1x8192"},
    {"growth", "mla/decode/bf16/hd576/gqa16/page64/b1x16384"},
    {"growth", "mla/decode/bf16/hd576/gqa32/page64/b1x8192"},
    {"growth", "mla/decode/bf16/hd576/gqa64/page64/b1x8192"},
    {"growth", "mla/decode/bf16/hd576/gqa128/page64/b1x8192"},
    {"growth", "gdn/prefill/bf16/hd128/h32/b1x1024"},
    {"growth", "gdn/prefill/bf16/hd128/h32/b1x2048"},
    {"growth", "gdn/prefill/bf16/hd128/h32/b1x4096"},
    {"growth", "gdn/prefill/bf16/hd128/h32/b1x8192"},
    {"growth", "gdn/prefill/bf16/hd128/h32/b2x1024"},
    {"growth", "gdn/prefill/bf16/hd128/h32/b4x1024"},
    {"growth", "gdn/prefill/bf16/hd128/h8/b1x4096"},
    {"growth", "gdn/prefill/bf16/hd128/h16/b1x4096"},
};

// The same models as a GPU serves them: the shapes of docs/performance/cuda-*.md.
constexpr SuiteRow kGpuRows[] = {
    {"prefill", "gqa/prefill/bf16/hd128/gqa4/page64/b16x1024"},
    {"prefill", "gqa/prefill/bf16/hd128/gqa4/page64/b4x4096"},
    {"prefill", "gqa/prefill/bf16/hd128/gqa4/page64/b1x16384"},
    {"prefill", "gqa/prefill/bf16/hd64/gqa4/page64/b1x16384"},
    {"prefill", "gqa/prefill/bf16/hd256/gqa1/page64/b1x16384"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page1/b64x8192"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page16/b64x8192"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page64/b64x8192"},
    {"decode", "gqa/decode/bf16/hd128/gqa8/page64/b16x32768"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page64/b256x1024"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page64/b1x32768"},
    {"decode", "gqa/decode/fp8_e4m3/hd128/gqa8/page64/b128x2048"},
    {"mla", "mla/decode/bf16/hd576/gqa128/page64/b128x4096"},
    {"mla", "mla/decode/bf16/hd576/gqa16/page64/b128x8192"},
    {"mla", "mla/decode/bf16/hd576/gqa16/page64/b64x16384"},
    {"mla", "mla/decode/bf16/hd576/gqa128/page64/b1x65536"},
    {"mla", "mla/decode/bf16/hd576/gqa16/page64/b1x4096"},
    {"mla", "mla/decode/fp8_e4m3/hd576/gqa128/page64/b128x4096"},
    {"mla", "mla/decode/fp8_e4m3/hd576/gqa16/page64/b128x8192"},
    {"mla", "gqa/prefill/bf16/hd192-128/gqa16/page64/b2x8192"},
    {"sparse", "sparse_mla/decode/bf16/hd576/gqa128/page64/b1x65536"},
    {"sparse", "sparse_mla/decode/bf16/hd576/gqa128/page64/b64x16384"},
    {"sparse", "sparse_mla/prefill/bf16/hd576/gqa128/page64/b1x4096"},
    {"sparse", "sparse_mla/decode/fp8_e4m3/hd576/gqa128/page64/b1x65536"},
    {"sparse", "sparse_mla/decode/fp8_e4m3/hd576/gqa128/page64/b64x16384"},
    {"sparse", "sparse_mla/prefill/fp8_e4m3/hd576/gqa128/page64/b1x4096"},
    {"sparse", "dsv4/decode/bf16/hd512/gqa64/page256/m4/b1x65536"},
    {"sparse", "dsv4/decode/bf16/hd512/gqa64/page256/m4/b64x16384"},
    {"sparse", "dsv4/decode/bf16/hd512/gqa64/page256/m128/b1x65536"},
    {"sparse", "dsv4/decode/bf16/hd512/gqa64/page256/m128/b64x16384"},
    {"sparse", "dsv4/prefill/bf16/hd512/gqa64/page256/m4/b1x8192"},
    {"sparse", "dsv4/prefill/bf16/hd512/gqa64/page256/m128/b1x8192"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page64/b64x1024+32768"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page64/b64x1024+32768/flat"},
    {"linear", "gdn/prefill/bf16/hd128/h32/b1x8192"},
    {"linear", "gdn/prefill/bf16/hd128/h32/b8x4096"},
    {"linear", "kda/prefill/bf16/hd128/h32/b1x8192"},
    {"linear", "kda/prefill/bf16/hd128/h32/b8x4096"},
    {"linear", "mamba2/prefill/bf16/hd128-64/h128/b1x8192"},
    {"linear", "lightning/prefill/bf16/hd128/h64/b1x8192"},
    {"linear", "gdn/decode/bf16/hd128/h32/b64x1"},
    {"linear", "kda/decode/bf16/hd128/h32/b64x1"},
    {"linear", "mamba2/decode/bf16/hd128-64/h128/b64x1"},
};

Status malformed(std::string_view name, std::string_view what) {
  return invalid_argument(
      join("case '", name, "': ", what, "; wanted OPERATION/PHASE/DTYPE/hdN/gqaN/pageN/bNxL, e.g. ",
           "gqa/decode/bf16/hd128/gqa4/page16/b1x16384, or for linear operations ",
           "gdn/prefill/bf16/hd128/h32/b1x4096, or with what compressed keys stand for ",
           "dsv4/decode/bf16/hd512/gqa64/page256/m4/b1x65536"));
}

/// The number after `prefix` at the front of `text`, which it is taken off.
bool take_number(std::string_view& text, std::string_view prefix, std::int64_t& number) {
  if (!text.starts_with(prefix)) return false;
  const char* begin = text.data() + prefix.size();
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  if (error != std::errc{} || end == begin || number < 1) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool whole_number(std::string_view text, std::string_view prefix, int& out) {
  std::int64_t n = 0;
  if (!take_number(text, prefix, n) || !text.empty() || n > 1 << 20) return false;
  out = static_cast<int>(n);
  return true;
}

std::vector<std::string_view> split(std::string_view name) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t slash = name.find('/');
    parts.push_back(name.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    name.remove_prefix(slash + 1);
  }
}

void make_linear(Case& c, int heads) {
  AttentionSpec& s = c.spec;
  s.linear_head_dim_k = s.head_dim_qk;
  s.linear_head_dim_v = s.head_dim_vo;
  s.linear_num_v_heads = heads;
  // Qwen3-Next has two value heads a key head, Mamba-2 models 8 groups; the others one to one.
  s.linear_num_k_heads = s.variant == Variant::gdn && heads % 2 == 0      ? heads / 2
                         : s.variant == Variant::mamba2 && heads % 8 == 0 ? 8
                                                                          : heads;
  s.conv_kernel = s.variant == Variant::lightning ? 0 : 4;
  s.conv_dim = 2 * s.linear_num_k_heads * s.head_dim_qk + heads * s.head_dim_vo;
  s.num_qo_heads = heads;
  s.num_kv_heads = s.linear_num_k_heads;
  s.sm_scale = 1.0f;
}

/// Queries of a request that see `seen` keys each leave some out: pairs scored, and kept.
struct SparsePairs {
  double scored = 0.0;
  double kept = 0.0;
};

/// Keys that a query keeps at most, and how many it keeps of those it sees: lists of blocks have one
/// that is not full, of the query's own. Without an indexer all are kept.
std::int64_t most_kept(const AttentionSpec& s) {
  if (s.index_topk == 0) return std::numeric_limits<std::int64_t>::max();
  return std::int64_t{s.index_topk} * std::max(1, s.index_block_size);
}
std::int64_t kept_of(const AttentionSpec& s, std::int64_t seen) {
  if (s.index_block_size == 0 || seen <= most_kept(s)) return std::min(seen, most_kept(s));
  return most_kept(s) - (s.index_block_size - 1 - (seen - 1) % s.index_block_size);
}

/// Of `tokens`, the keys that an indexer chooses among, and those of a window beside them (dsv4).
std::int64_t chosen_among(const AttentionSpec& s, std::int64_t tokens) {
  return s.variant == Variant::dsv4 ? tokens / s.compress_ratio : tokens;
}
std::int64_t of_window(const AttentionSpec& s, std::int64_t tokens) {
  return s.variant == Variant::dsv4 ? std::min<std::int64_t>(tokens, s.window_left + 1) : 0;
}

/// Of queries that have first_tokens, first_tokens + 1 … tokens up to and with themselves.
SparsePairs sparse_pairs(const AttentionSpec& s, std::int64_t first_tokens, std::int64_t queries) {
  SparsePairs pairs;
  for (std::int64_t tokens = first_tokens; tokens < first_tokens + queries; ++tokens) {
    const std::int64_t seen = chosen_among(s, tokens);
    if (seen > most_kept(s)) pairs.scored += static_cast<double>(seen);
    pairs.kept += static_cast<double>(kept_of(s, seen) + of_window(s, tokens));
  }
  return pairs;
}

/// DeepSeek-V4-Flash's layers, or those of -Pro where heads are as many.
void make_compressed(AttentionSpec& s) {
  s.window_left = 127;
  s.sinks = true;
  s.kv_scales = false;
  if (s.compress_ratio > kMostChosenRatio) return;
  s.index_num_heads = 64;
  s.index_head_dim = 128;
  s.index_topk = s.num_qo_heads >= 128 ? 1024 : 512;
  s.index_dtype = s.q_dtype;
}

double linear_flops(const AttentionSpec& s, double tokens, bool chunked) {
  const double dk = s.linear_head_dim_k;
  const double dv = s.linear_head_dim_v;
  const bool delta = s.variant == Variant::gdn || s.variant == Variant::kda;
  const double state = (delta ? 6.0 : 4.0) * dk * dv;  // erase, write, read
  if (!chunked) return tokens * s.linear_num_v_heads * state;
  const double triangle = kLinearChunk * (delta ? 2.0 : 1.0) * dv;
  const double scores = kLinearChunk * (delta ? 2.0 : 1.0) * dk;
  const double keys = s.variant == Variant::kda ? s.linear_num_v_heads : s.linear_num_k_heads;
  return tokens * (s.linear_num_v_heads * (state + triangle) + keys * scores);
}

/// Heads and pages of softmax attention, and what its variant adds.
Status read_softmax(const std::vector<std::string_view>& part, Case& c) {
  AttentionSpec& s = c.spec;
  int heads = 0;
  int kv_heads = kKvHeads;
  const std::size_t times = part[4].find('x');
  const bool says_kv_heads = times != std::string_view::npos;
  if (!whole_number(part[4].substr(0, times), "gqa", heads) ||
      (says_kv_heads &&
       (is_latent(s.variant) || !whole_number(part[4].substr(times + 1), "", kv_heads))))
    return malformed(c.name, join("the group size is '", part[4], "'"));
  if (!whole_number(part[5], "page", c.page_size))
    return malformed(c.name, join("the page is '", part[5], "'"));
  if (c.shared % c.page_size != 0)
    return malformed(c.name, join(c.shared, " shared keys do not fill pages of ", c.page_size));
  const bool compresses = s.variant == Variant::dsv4;
  const bool latent = is_latent(s.variant) && !compresses;
  s.num_kv_heads = is_latent(s.variant) ? 1 : kv_heads;
  s.num_qo_heads = heads * s.num_kv_heads;
  double scale_dim = s.head_dim_qk;
  if (latent) {
    if (s.head_dim_qk <= kLatentRank)
      return malformed(c.name, join("a latent key is wider than ", kLatentRank));
    s.kv_lora_rank = s.head_dim_vo = kLatentRank;
    s.qk_rope_head_dim = s.head_dim_qk - kLatentRank;
    scale_dim = 192;  // of the expanded form
  }
  if (s.variant == Variant::dual_chunk) {
    if (c.shared > 0) return malformed(c.name, "chunks are read request by request");
    s.dual_chunk_len = kDualChunk;
  }
  if (compresses) {
    if (c.shared > 0) return malformed(c.name, "compressed keys are read request by request");
    if (!whole_number(part[6], "m", s.compress_ratio) || c.page_size % s.compress_ratio != 0)
      return malformed(c.name, join("a compressed key stands for '", part[6], "'"));
    make_compressed(s);
  }
  if (s.variant == Variant::sparse_mla) {
    if (c.shared > 0) return malformed(c.name, "sparse lists have no keys in common");
    s.index_num_heads = 64;  // DeepSeek-V3.2's
    s.index_head_dim = 128;
    s.index_topk = 2048;
    s.index_dtype = s.q_dtype;
  }
  if (s.variant == Variant::minimax_sparse) {
    if (c.shared > 0) return malformed(c.name, "sparse lists have no blocks in common");
    s.index_num_heads = s.num_kv_heads;  // MiniMax-M3's
    s.index_head_dim = 128;
    s.index_topk = 16;
    s.index_block_size = 128;
    s.index_local_blocks = 1;
    s.index_dtype = s.q_dtype;
  }
  s.sm_scale = static_cast<float>(1.0 / std::sqrt(scale_dim));
  return {};
}

/// Heads of linear attention.
Status read_linear(const std::vector<std::string_view>& part, Case& c) {
  int heads = 0;
  if (!whole_number(part[4], "h", heads))
    return malformed(c.name, join("the heads are '", part[4], "'"));
  c.spec.q_dtype = c.spec.o_dtype = c.spec.kv_dtype;
  c.spec.kv_dtype = DType::f32;  // of the state
  c.spec.kv_scales = false;
  make_linear(c, heads);
  return {};
}

}  // namespace

double Case::flops() const {
  if (is_linear(spec.variant))
    return linear_flops(spec, static_cast<double>(num_tokens()), phase == Phase::prefill);
  const double l = static_cast<double>(length);
  const double before = static_cast<double>(shared) * (phase == Phase::prefill ? l : 1.0);
  if (spec.index_topk > 0 || spec.variant == Variant::dsv4) {
    const SparsePairs sparse = sparse_pairs(spec, length - qo_len() + 1, qo_len());
    return 2.0 * static_cast<double>(batch) *
           (sparse.scored * spec.index_num_heads * spec.index_head_dim +
            sparse.kept * spec.num_qo_heads * (spec.head_dim_qk + spec.head_dim_vo));
  }
  const double pairs = before + (phase == Phase::prefill ? l * (l + 1) / 2 : l);
  return 2.0 * static_cast<double>(batch) * pairs * spec.num_qo_heads *
         (spec.head_dim_qk + spec.head_dim_vo);
}

double Case::bytes() const {
  const auto tokens = static_cast<double>(num_tokens());
  const auto activation = static_cast<double>(size_of(spec.q_dtype));
  if (is_linear(spec.variant)) {
    const double width =
        (spec.variant == Variant::lightning ? spec.linear_num_k_heads * spec.linear_head_dim_k * 2 +
                                                  spec.linear_num_v_heads * spec.linear_head_dim_v
                                            : spec.conv_dim) +
        spec.linear_num_v_heads * spec.linear_head_dim_v;
    const double state =
        2.0 * 4.0 * spec.linear_num_v_heads * spec.linear_head_dim_k * spec.linear_head_dim_v;
    return tokens * width * activation + static_cast<double>(batch) * state;
  }
  // DeepSeek's latents in e4m3 have scales and 16-bit rope columns beside them.
  const bool packed =
      is_latent(spec.variant) && spec.kv_dtype == DType::fp8_e4m3 && spec.head_dim_qk == 576;
  const std::int64_t key_width = is_latent(spec.variant)
                                     ? spec.head_dim_qk
                                     : spec.num_kv_heads * (spec.head_dim_qk + spec.head_dim_vo);
  const std::int64_t key_bytes =
      packed ? tensor::kMlaLatentFp8TokenBytes
             : key_width * static_cast<std::int64_t>(size_of(spec.kv_dtype));
  // A decode reads the keys it keeps, and every index key; in dsv4 those of its window, and
  // compressed ones. A prefill reads all there are.
  const bool decode = phase == Phase::decode;
  const std::int64_t among = chosen_among(spec, length);
  const bool chooses = among > most_kept(spec);
  std::int64_t own = decode ? kept_of(spec, among) : among;
  if (spec.variant == Variant::dsv4) own += decode ? of_window(spec, length) : length;
  const std::int64_t read = batch * own + (flat ? batch : 1) * shared;
  const double index = chooses ? static_cast<double>(batch * among) * spec.index_head_dim *
                                     static_cast<double>(size_of(spec.index_dtype))
                               : 0.0;
  const double keys = static_cast<double>(read) * static_cast<double>(key_bytes);
  return keys + index +
         tokens * spec.num_qo_heads * (spec.q_columns() + spec.head_dim_vo) * activation;
}

Result<Case> parse_case(std::string_view name) {
  std::vector<std::string_view> part = split(name);
  Case c;
  c.name = std::string(name);
  c.flat = part.back() == "flat";
  if (c.flat) part.pop_back();
  bool known = false;
  for (int v = 0; v <= static_cast<int>(Variant::short_conv); ++v) {
    if (attune::name(static_cast<Variant>(v)) != part[0]) continue;
    c.spec.variant = static_cast<Variant>(v);
    known = true;
  }
  if (!known) return malformed(name, join("no operation is called '", part[0], "'"));
  const bool linear = is_linear(c.spec.variant);
  const bool compresses = c.spec.variant == Variant::dsv4;
  if (part.size() != (linear ? 6u : compresses ? 8u : 7u))
    return malformed(name, join("has ", part.size(), " parts"));
  if (part[1] != "prefill" && part[1] != "decode")
    return malformed(name, join("the phase is '", part[1], "'"));
  c.phase = part[1] == "prefill" ? Phase::prefill : Phase::decode;
  const auto dtype = parse_dtype(part[2]);
  if (!dtype) return malformed(name, join("no dtype is called '", part[2], "'"));
  AttentionSpec& s = c.spec;
  s.kv_dtype = *dtype;
  s.q_dtype = s.o_dtype = *dtype == DType::f32 ? DType::f32 : DType::bf16;
  s.kv_scales = size_of(*dtype) == 1;

  const std::size_t dash = part[3].find('-');
  if (!whole_number(part[3].substr(0, dash), "hd", s.head_dim_qk))
    return malformed(name, join("the head dim is '", part[3], "'"));
  s.head_dim_vo = s.head_dim_qk;
  if (dash != std::string_view::npos && !whole_number(part[3].substr(dash + 1), "", s.head_dim_vo))
    return malformed(name, join("the head dim is '", part[3], "'"));

  std::string_view shape = part.back();
  if (!take_number(shape, "b", c.batch) || !take_number(shape, "x", c.length) ||
      (!shape.empty() && !take_number(shape, "+", c.shared)) || !shape.empty() ||
      c.batch * (c.length + c.shared) > std::int64_t{1} << 32)
    return malformed(name, join("the batch is '", part.back(), "'"));
  if (c.flat && c.shared == 0) return malformed(name, "nothing is shared that could be read flat");
  if (linear && c.shared > 0) return malformed(name, "linear operations have no keys to share");

  if (Status bad = linear ? read_linear(part, c) : read_softmax(part, c); !bad.ok()) return bad;
  return c;
}

Result<std::vector<Case>> suite(std::string_view wanted, DeviceKind device) {
  constexpr std::string_view kSuites[] = {"prefill", "decode", "mla",    "linear",
                                          "cascade", "sparse", "growth", "all"};
  bool known = false;
  for (std::string_view s : kSuites) known = known || s == wanted;
  if (!known)
    return invalid_argument(
        join("no suite is called '", wanted,
             "'; wanted prefill, decode, mla, linear, cascade, sparse, growth or all"));
  std::vector<Case> cases;
  const std::span<const SuiteRow> rows =
      device == DeviceKind::cpu ? std::span<const SuiteRow>(kHostRows) : kGpuRows;
  for (const SuiteRow& row : rows) {
    // The growth suite is no part of all: it takes minutes, on cases that mostly are there already.
    if (row.suite != wanted && (wanted != "all" || row.suite == "growth")) continue;
    Result<Case> c = parse_case(row.name);
    if (!c.ok()) return c.status();
    cases.push_back(std::move(*c));
  }
  if (cases.empty())
    return unsupported(join("suite ", wanted, ": no backend of this build serves it"),
                       {{"all", "variant", std::string(wanted),
                         "gqa, mla, sparse_mla, minimax_sparse and the linear variants"}});
  return cases;
}

}  // namespace attune::bench
