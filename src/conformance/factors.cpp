#include "conformance/factors.hpp"

#include <algorithm>
#include <cmath>

#include "base/math.hpp"
#include "conformance/problem.hpp"
#include "conformance/properties.hpp"

namespace attune::conformance {
namespace {

/// The order of the factors in a FactorRow.
enum Factor : std::size_t {
  kForm,
  kQDtype,
  kKvDtype,
  kDims,
  kGroup,
  kPageSize,
  kLayout,
  kPlace,
  kKind,
  kWindow,
  kMask,
  kScales,
  kLengths,
  kCap,
  kSinks,
  kAlibi,
  kXai,
  kChunk,
  kLse,
  kOffset,
  kStrided,
  kSharing,
  kLists,
  kCompression,
  kBlocks,
  kScoreMod,
  kNumFactors,
};

std::vector<int> sizes_of(const Factors& f) {
  std::vector<int> sizes(kNumFactors);
  const auto set = [&](Factor at, const auto& values) {
    sizes[at] = static_cast<int>(values.size());
  };
  set(kForm, f.form);
  set(kQDtype, f.q_dtype);
  set(kKvDtype, f.kv_dtype);
  set(kDims, f.dims);
  set(kGroup, f.group);
  set(kPageSize, f.page_size);
  set(kLayout, f.layout);
  set(kPlace, f.place);
  set(kKind, f.kind);
  set(kWindow, f.window);
  set(kMask, f.mask);
  set(kScales, f.scales);
  set(kLengths, f.lengths);
  set(kCap, f.cap);
  set(kSinks, f.sinks);
  set(kAlibi, f.alibi);
  set(kXai, f.xai);
  set(kChunk, f.chunk);
  set(kLse, f.lse);
  set(kOffset, f.offset);
  set(kStrided, f.strided);
  set(kSharing, f.sharing);
  set(kLists, f.given_lists);
  set(kCompression, f.compression);
  set(kBlocks, f.blocks);
  set(kScoreMod, f.score_mod);
  return sizes;
}

template <class T, std::size_t N>
std::vector<T> values_or(const FixedList<T, N>& declared, std::vector<T> otherwise) {
  if (declared.empty()) return otherwise;
  return {declared.begin(), declared.end()};
}

std::vector<HeadDims> dims_of(const Capability& row, Variant variant) {
  if (!row.head_dims.empty()) return {row.head_dims.begin(), row.head_dims.end()};
  if (variant == Variant::dsv4) return {{512, 512}, {64, 64}};
  if (is_latent(variant)) return {{576, 512}, {96, 64}};
  std::vector<HeadDims> dims;
  for (const int d : {64, 128, 80, 96, 256, 192, 40, 33, 8, 512, 320})
    if ((row.max_head_dim == 0 || d <= row.max_head_dim) && d % row.head_dim_multiple == 0)
      dims.push_back({d, d});
  if (row.features.has(Feature::unequal_head_dims)) {
    dims.push_back({192, 128});
    dims.push_back({48, 80});
  }
  return dims;
}

/// Combinations that mean something. Unset factors are taken to fit.
bool makes_sense(const Factors& f, const FactorRow& row) {
  const auto is = [&](Factor at, const auto& values, auto wanted) {
    return row[at] != kUnset && values[static_cast<std::size_t>(row[at])] == wanted;
  };
  const auto on = [&](Factor at) { return row[at] > 0; };
  const bool decode = is(kForm, f.form, BatchForm::decode);
  const bool decoder = is(kKind, f.kind, AttentionKind::decoder);
  const bool other_kind = row[kKind] != kUnset && !decoder;
  const bool encoder = is(kKind, f.kind, AttentionKind::encoder_only);
  const bool ragged = is(kPlace, f.place, Place::ragged);
  const bool paged = is(kPlace, f.place, Place::paged);
  const bool tree = is(kMask, f.mask, MaskKind::tree);
  const bool drafts =
      is(kForm, f.form, BatchForm::target_verify) || is(kForm, f.form, BatchForm::draft_extend);
  if (encoder && (decode || paged || drafts)) return false;
  if (ragged && decode) return false;
  // Without pages, their layout and size are nothing to vary.
  if (ragged && (on(kLayout) || on(kPageSize) || on(kSharing))) return false;
  if (is(kWindow, f.window, Window::both) && decoder) return false;
  if (other_kind && (on(kMask) || on(kXai) || on(kChunk) || drafts)) return false;
  if (tree && row[kForm] != kUnset && !is(kForm, f.form, BatchForm::target_verify)) return false;
  if (is(kMask, f.mask, MaskKind::random) && drafts) return false;
  if (on(kBlocks) && on(kMask)) return false;
  // Lists name what an indexer would choose among.
  const bool plain = row[kCompression] != kUnset && f.compression.size() > 1 &&
                     !is(kCompression, f.compression, Compression::indexed);
  if (plain && on(kLists)) return false;
  if (is(kKvDtype, f.kv_dtype, DType::i8) && is(kScales, f.scales, Scales::none)) return false;
  return true;
}

bool has_indexer(Variant v) {
  return v == Variant::sparse_mla || v == Variant::dsv4 || v == Variant::minimax_sparse;
}

int kv_heads_for(int group, Variant variant) {
  if (is_latent(variant) || group > 16) return 1;
  return group == 1 ? 3 : 2;
}

std::vector<RequestShape> lengths_of(Lengths pattern, std::int32_t page, BatchForm form,
                                     Random& random) {
  std::vector<RequestShape> shapes;
  const std::int32_t some_pages = std::clamp(4 * page + 3, 67, 300);
  switch (pattern) {
    case Lengths::edges:
      shapes = {{2, 0}, {3, 1}, {1, std::max(page - 1, 2)}, {5, page}, {4, page + 1}};
      break;
    case Lengths::one_long: shapes = {{7, 7}, {9, some_pages}, {1, 1}, {0, 13}}; break;
    case Lengths::full_pages:
      shapes = {{std::min(2 * page, 33), 2 * page}, {4, std::min(3 * page, 512)}};
      break;
    case Lengths::many:
      for (int i = 0; i < 17; ++i) {
        const auto kv = static_cast<std::int32_t>(1 + random.below(std::min(3 * page, 50)));
        shapes.push_back({static_cast<std::int32_t>(random.below(std::min(kv, 8) + 1)), kv});
      }
      break;
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    RequestShape& r = shapes[i];
    if (form == BatchForm::decode) r.qo_len = 1;
    if (form == BatchForm::mixed && i % 2 == 0) r.qo_len = 1;
    if (form == BatchForm::target_verify || form == BatchForm::draft_extend) {
      r.qo_len = form == BatchForm::target_verify ? 4 : 3;
      r.kv_len = std::max(r.kv_len, r.qo_len);
    }
  }
  return shapes;
}

}  // namespace

Factors factors_of(const Capability& row, Variant variant) {
  const auto has = [&](Feature f) { return row.features.has(f); };
  Factors f;
  for (const Phase phase : row.phases) {
    if (phase == Phase::decode) {
      f.form.push_back(BatchForm::decode);
      continue;
    }
    f.form.push_back(BatchForm::extend);
    if (has(Feature::mixed_batch)) f.form.push_back(BatchForm::mixed);
    if (has(Feature::target_verify)) f.form.push_back(BatchForm::target_verify);
    if (has(Feature::draft_extend)) f.form.push_back(BatchForm::draft_extend);
  }
  f.q_dtype = values_or(row.q_dtypes, {DType::bf16});
  f.kv_dtype = values_or(row.kv_dtypes, {DType::bf16});
  if (!has(Feature::kv_scales)) std::erase(f.kv_dtype, DType::i8);
  f.dims = dims_of(row, variant);
  f.group =
      values_or(row.gqa_group_sizes, is_latent(variant) ? std::vector<int>{16, 1, 3}
                                                        : std::vector<int>{4, 1, 2, 3, 8, 9, 71});
  f.page_size =
      values_or(row.page_sizes, variant == Variant::dsv4
                                    ? std::vector<std::int32_t>{16, 12, 4, 8, 64, 256}
                                    : std::vector<std::int32_t>{16, 1, 2, 3, 5, 32, 64, 128, 256});
  f.layout = values_or(row.kv_layouts, {KvLayout::nhd});
  f.place = {Place::paged};
  f.kind = {AttentionKind::decoder};
  f.window = {Window::none};
  f.mask = {MaskKind::none};
  f.scales = {Scales::none};
  f.blocks = {Blocks::none};
  f.cap = f.sinks = f.alibi = f.xai = f.chunk = f.score_mod = {0};
  f.lse = {0};
  if (has(Feature::ragged_kv)) f.place.push_back(Place::ragged);
  if (has(Feature::cross_attention)) f.kind.push_back(AttentionKind::cross);
  if (has(Feature::encoder_only)) f.kind.push_back(AttentionKind::encoder_only);
  if (has(Feature::sliding_window)) {
    f.window.push_back(Window::left);
    if (f.kind.size() > 1) f.window.push_back(Window::both);
  }
  if (has(Feature::custom_mask)) f.mask.push_back(MaskKind::random);
  if (has(Feature::tree_verify) && has(Feature::target_verify)) f.mask.push_back(MaskKind::tree);
  if (has(Feature::block_mask)) f.blocks = {Blocks::none, Blocks::shared, Blocks::by_head};
  if (has(Feature::score_mod)) f.score_mod.push_back(1);
  if (has(Feature::kv_scales)) f.scales.push_back(Scales::whole);
  if (has(Feature::per_head_scales) && !is_latent(variant)) f.scales.push_back(Scales::per_head);
  if (has(Feature::soft_cap)) f.cap.push_back(1);
  if (has(Feature::sinks)) f.sinks.push_back(1);
  if (has(Feature::alibi)) f.alibi.push_back(1);
  if (has(Feature::xai_temperature)) f.xai.push_back(1);
  if (has(Feature::attention_chunk)) f.chunk.push_back(1);
  if (has(Feature::lse)) f.lse.push_back(1);
  f.given_lists = {0};
  // These have all keys from the first on.
  if (variant == Variant::dual_chunk || variant == Variant::minimax_sparse) f.offset = {0};
  if (has_indexer(variant)) f.given_lists.push_back(1);
  if (variant == Variant::dsv4) {
    f.window = {Window::left};
    f.compression = {Compression::indexed, Compression::whole, Compression::none};
  }
  // Shared prefixes are a hint: whoever reads pages must take it.
  f.sharing = {Sharing::none, Sharing::all, Sharing::tree};
  return f;
}

std::vector<FactorRow> factor_rows(const Factors& factors, std::uint64_t seed) {
  return pairwise(
      sizes_of(factors), [&](const FactorRow& row) { return makes_sense(factors, row); }, seed);
}

AttentionSpec base_spec(Variant variant, HeadDims dims, int group, DType q, DType kv) {
  const int kv_heads = kv_heads_for(group, variant);
  AttentionSpec spec{.variant = variant,
                     .num_qo_heads = group * kv_heads,
                     .num_kv_heads = kv_heads,
                     .head_dim_qk = dims.qk,
                     .head_dim_vo = dims.vo,
                     // Sharper than 1/sqrt(d), so that single keys matter.
                     .sm_scale = 1.5f / std::sqrt(static_cast<float>(dims.qk)),
                     .q_dtype = q,
                     .o_dtype = q == DType::fp8_e4m3 ? DType::bf16 : q,
                     .kv_dtype = kv};
  if (variant == Variant::dsv4) {
    spec.window_left = 37;
    spec.compress_ratio = 4;
  } else if (is_latent(variant)) {
    spec.kv_lora_rank = dims.vo;
    spec.qk_rope_head_dim = dims.qk - dims.vo;
  }
  if (has_indexer(variant)) {
    // As many keys as a tile at full width, few and an odd number elsewhere.
    const bool wide = dims.vo == 512;
    spec.index_num_heads = wide ? 16 : 3;
    spec.index_head_dim = wide ? 128 : 28;
    spec.index_topk = wide ? 64 : 7;
    spec.index_dtype = size_of(kv) == 1 ? (q == DType::f32 ? DType::bf16 : q) : kv;
  }
  if (variant == Variant::minimax_sparse) {
    // MiniMax-M3's proportions with small blocks; elsewhere what divides no page.
    const bool usual = dims.vo == 128;
    spec.index_num_heads = kv_heads;
    spec.index_head_dim = usual ? 128 : 28;
    spec.index_topk = usual ? 4 : 3;
    spec.index_block_size = usual ? 16 : 7;
    spec.index_init_blocks = usual ? 0 : 1;
    spec.index_local_blocks = 1;
  }
  if (variant == Variant::dual_chunk) spec.dual_chunk_len = 24;
  spec.kv_scales = kv == DType::i8;
  return spec;
}

void set_compression(Case& one, Compression compression) {
  AttentionSpec& s = one.spec;
  if (compression == Compression::indexed) return;
  s.index_num_heads = s.index_head_dim = s.index_topk = 0;
  s.index_dtype = AttentionSpec{}.index_dtype;
  // Two keys a long page, as published pages of 256 have, one a short page.
  if (compression == Compression::none)
    s.compress_ratio = 0;
  else
    s.compress_ratio = one.page_size > 16 ? one.page_size / 2 : one.page_size;
}

Case case_of(const Factors& f, const FactorRow& row, Variant variant, std::uint64_t seed) {
  Random random(seed);
  const auto at = [&](Factor factor) { return static_cast<std::size_t>(row[factor]); };
  Case one{.form = f.form[at(kForm)],
           .source = f.place[at(kPlace)] == Place::ragged ? KvSource::ragged : KvSource::paged,
           .layout = f.layout[at(kLayout)],
           .page_size = f.page_size[at(kPageSize)],
           .mask = f.mask[at(kMask)],
           .want_lse = f.lse[at(kLse)] != 0,
           .strided = f.strided[at(kStrided)] != 0,
           .given_lists = f.given_lists[at(kLists)] != 0,
           .property = &kMatchesReference,
           .seed = seed};
  one.spec = base_spec(variant, f.dims[at(kDims)], f.group[at(kGroup)], f.q_dtype[at(kQDtype)],
                       f.kv_dtype[at(kKvDtype)]);
  AttentionSpec& s = one.spec;
  s.kind = f.kind[at(kKind)];
  s.causal = s.kind == AttentionKind::decoder;
  s.custom_mask = one.mask != MaskKind::none;
  s.block_mask = f.blocks[at(kBlocks)] != Blocks::none;
  one.mask_by_head = f.blocks[at(kBlocks)] == Blocks::by_head;
  s.score_mod = f.score_mod[at(kScoreMod)] != 0;
  constexpr std::int64_t kWindows[] = {0, 3, 15, 40};
  const Window window = f.window[at(kWindow)];
  if (window != Window::none) s.window_left = kWindows[random.below(4)];
  if (window == Window::both) s.window_right = kWindows[random.below(4)];
  set_compression(one, f.compression[at(kCompression)]);
  if (f.cap[at(kCap)] != 0) s.logits_soft_cap = 3.0f;
  s.sinks = f.sinks[at(kSinks)] != 0;
  s.alibi = f.alibi[at(kAlibi)] != 0;
  if (f.xai[at(kXai)] != 0) s.xai_temperature_len = 16;
  if (f.chunk[at(kChunk)] != 0) s.attention_chunk = 8;
  s.kv_scales = f.scales[at(kScales)] != Scales::none;
  s.per_head_scales = f.scales[at(kScales)] == Scales::per_head;
  one.requests = lengths_of(f.lengths[at(kLengths)], one.page_size, one.form, random);
  if (f.offset[at(kOffset)] != 0)
    for (std::size_t i = 0; i < one.requests.size(); i += 2)
      one.requests[i].kv_offset = std::int64_t{3} * one.page_size;
  share_prefixes(one, f.sharing[at(kSharing)], 70);
  return one;
}

void share_prefixes(Case& one, Sharing sharing, std::int32_t keys) {
  const auto n = static_cast<std::int32_t>(one.requests.size());
  if (sharing == Sharing::none || n == 0) return;
  const std::int32_t pages = base::ceil_div(keys, one.page_size);
  const auto share = [&](std::int32_t first, std::int32_t count, std::int32_t level) {
    if (count < 1) return;
    one.sharing.push_back(
        {.first_request = first, .num_requests = count, .num_pages = level * pages});
  };
  const std::int32_t half = (n + 1) / 2;
  share(0, n, 1);
  if (sharing == Sharing::tree) {
    share(0, half, 2);
    // A group of one, and one that ends in the middle of its outer one.
    share(half, 1, 2);
    share(0, half / 2, 3);
  }
  std::vector<std::int32_t> levels(one.requests.size(), 0);
  for (const PrefixGroup& g : one.sharing)
    for (std::int32_t i = 0; i < g.num_requests; ++i)
      levels[static_cast<std::size_t>(g.first_request + i)] = g.num_pages;
  for (std::size_t i = 0; i < one.requests.size(); ++i) {
    one.requests[i].kv_len += levels[i] * one.page_size;
    one.requests[i].kv_offset = one.requests[0].kv_offset;
  }
}

}  // namespace attune::conformance
