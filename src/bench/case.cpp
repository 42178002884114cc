#include "bench/case.hpp"

#include <charconv>
#include <cmath>
#include <vector>

#include "base/join.hpp"

namespace attune::bench {
namespace {

using base::join;

constexpr int kKvHeads = 8;           // unless a name says otherwise: 32/8 at gqa4, as Llama-3 8B
constexpr int kLatentRank = 512;      // of mla cases, DeepSeek's
constexpr int kDualChunk = 16384;     // positions of a chunk: several of them in seconds
constexpr int kMostChosenRatio = 16;  // keys that stand for more tokens are all kept

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
  const bool of_queries_too = part[2].starts_with("q_");
  const auto dtype = parse_dtype(part[2].substr(of_queries_too ? 2 : 0));
  if (!dtype) return malformed(name, join("no dtype is called '", part[2], "'"));
  AttentionSpec& s = c.spec;
  s.kv_dtype = *dtype;
  s.q_dtype = s.o_dtype = *dtype == DType::f32 ? DType::f32 : DType::bf16;
  if (of_queries_too) {
    if (s.variant != Variant::mla || *dtype != DType::fp8_e4m3)
      return malformed(name, "only queries of mla are in their keys' dtype, fp8_e4m3");
    s.q_dtype = *dtype;
  }
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

}  // namespace attune::bench
