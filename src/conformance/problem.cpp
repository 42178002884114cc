#include "conformance/problem.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <attune/compressed_call.hpp>
#include <attune/sparse_call.hpp>
#include <attune/validate.hpp>

#include "base/join.hpp"
#include "conformance/flex_functions.hpp"
#include "conformance/sparse_problem.hpp"
#include "tensor/element.hpp"

namespace attune::conformance {
namespace {

/// Normal values as the dtype stores them; int8 fills its range.
std::vector<char> random_rows(Random& random, std::int64_t elements, DType dtype,
                              double factor = 1.0) {
  std::vector<char> rows(static_cast<std::size_t>(elements) * size_of(dtype));
  const double gain = dtype == DType::i8 ? 36.0 : factor;
  for (std::int64_t i = 0; i < elements; ++i)
    tensor::store_element(rows.data(), dtype, i, random.normal() * gain);
  return rows;
}

/// Published ALiBi slopes: a geometric ramp for the next lower power of two, then every other one
/// of the ramp for twice that.
std::vector<float> alibi_slopes(int heads) {
  const int n = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  std::vector<float> slopes;
  for (int h = 0; h < heads; ++h) {
    const double exponent = h < n ? 8.0 * (h + 1) / n : 4.0 * (2 * (h - n) + 1) / n;
    slopes.push_back(static_cast<float>(std::exp2(-exponent)));
  }
  return slopes;
}

std::vector<bool> random_mask(Random& random, const RequestShape& r) {
  std::vector<bool> bits(static_cast<std::size_t>(r.qo_len) * static_cast<std::size_t>(r.kv_len));
  for (std::int32_t row = 0; row < r.qo_len; ++row) {
    const bool blind = random.below(4) == 0;
    for (std::int32_t c = 0; c < r.kv_len; ++c)
      bits[static_cast<std::size_t>(row) * static_cast<std::size_t>(r.kv_len) +
           static_cast<std::size_t>(c)] = !blind && random.below(2) == 0;
  }
  return bits;
}

/// Draft token t hangs from a random earlier one and sees the prefix, its ancestors and itself.
std::vector<bool> tree_mask(Random& random, const RequestShape& r) {
  const auto columns = static_cast<std::size_t>(r.kv_len);
  const auto drafts = static_cast<std::size_t>(r.qo_len);
  const std::size_t prefix = columns - drafts;
  std::vector<bool> bits(drafts * columns);
  for (std::size_t t = 0; t < drafts; ++t) {
    if (t > 0) {
      const auto parent = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(t)));
      for (std::size_t c = prefix; c < columns; ++c)
        bits[t * columns + c] = bits[parent * columns + c];
    }
    for (std::size_t c = 0; c < prefix; ++c) bits[t * columns + c] = true;
    bits[t * columns + prefix + t] = true;
  }
  return bits;
}

double largest_value(const Problem& p) {
  const bool slice = p.v.empty();
  double largest = 0.0;
  for (const std::vector<char>* rows : {slice ? &p.k : &p.v, &p.compressed.k}) {
    const auto elements = static_cast<std::int64_t>(rows->size() / size_of(p.spec.kv_dtype));
    for (std::int64_t i = 0; i < elements; ++i)
      largest =
          std::max(largest, std::fabs(tensor::load_element(rows->data(), p.spec.kv_dtype, i)));
  }
  double scale = p.v_scale;
  for (const float s : p.v_scales) scale = std::max<double>(scale, s);
  return largest * scale;
}

struct Worst {
  double excess = -1.0;  ///< error over bound
  std::string text;
};

/// Shared pages hold the keys of the first request that has them.
void share_rows(const Case& one, const Problem& p, std::vector<char>& rows) {
  if (rows.empty()) return;
  const auto row = rows.size() / static_cast<std::size_t>(p.num_keys());
  const auto at = [&](std::int32_t request) {
    return rows.data() +
           static_cast<std::size_t>(p.first_key[static_cast<std::size_t>(request)]) * row;
  };
  for (const PrefixGroup& g : one.sharing)
    for (std::int32_t i = 1; i < g.num_requests; ++i)
      std::memcpy(at(g.first_request + i), at(g.first_request),
                  static_cast<std::size_t>(std::int64_t{g.num_pages} * one.page_size) * row);
}

}  // namespace

Problem make_problem(const Case& one, std::uint64_t layer) {
  Random random(one.seed * 1000003 + layer);
  const AttentionSpec& spec = one.spec;
  Problem p{.spec = spec, .requests = one.requests};
  p.mask_by_head = one.mask_by_head;
  p.first_query = {0};
  p.first_key = {0};
  for (const RequestShape& r : one.requests) {
    p.first_query.push_back(p.first_query.back() + r.qo_len);
    p.first_key.push_back(p.first_key.back() + r.kv_len);
    if (one.mask == MaskKind::random) p.mask.push_back(random_mask(random, r));
    if (one.mask == MaskKind::tree) p.mask.push_back(tree_mask(random, r));
  }
  p.q = random_rows(random, p.num_queries() * spec.num_qo_heads * spec.q_columns(), spec.q_dtype,
                    one.gain);
  p.k = random_rows(random, p.num_keys() * spec.num_kv_heads * spec.head_dim_qk, spec.kv_dtype,
                    one.gain);
  if (!is_latent(spec.variant))
    p.v = random_rows(random, p.num_keys() * spec.num_kv_heads * spec.head_dim_vo, spec.kv_dtype);
  share_rows(one, p, p.k);
  share_rows(one, p, p.v);
  if (spec.compress_ratio > 0) {
    p.compressed.first = {0};
    for (const RequestShape& r : one.requests)
      p.compressed.first.push_back(p.compressed.first.back() +
                                   compressed_before(spec, r.kv_offset + r.kv_len));
    p.compressed.k =
        random_rows(random, p.compressed.first.back() * spec.head_dim_qk, spec.kv_dtype, one.gain);
  }
  if (spec.index_topk > 0) {
    make_sparse_problem(one, random, p);
    if (spec.compress_ratio == 0) share_rows(one, p, p.sparse.k);
  }
  for (int h = 0; h < spec.num_qo_heads && spec.sinks; ++h)
    p.sinks.push_back(static_cast<float>(random.uniform() * 4.0 - 1.0));
  if (spec.alibi) p.slopes = alibi_slopes(spec.num_qo_heads);

  const float unit = spec.kv_dtype == DType::i8 ? 1.0f / 36.0f : 1.0f;
  if (spec.kv_scales) {
    p.k_scale = unit * 0.75f;
    p.v_scale = is_latent(spec.variant) ? p.k_scale : unit * 1.5f;
  }
  for (int h = 0; h < spec.num_kv_heads && spec.per_head_scales; ++h) {
    p.k_scales.push_back(unit * static_cast<float>(0.5 + random.uniform()));
    p.v_scales.push_back(unit * static_cast<float>(0.5 + random.uniform()));
  }
  p.value_magnitude = largest_value(p);
  return p;
}

namespace {

/// Every type that is stored is exact in fp32, which the oracle reads many times faster.
std::vector<float> widened(const std::vector<char>& rows, DType dtype) {
  std::vector<float> wide(rows.size() / size_of(dtype));
  for (std::size_t i = 0; i < wide.size(); ++i)
    wide[i] =
        static_cast<float>(tensor::load_element(rows.data(), dtype, static_cast<std::int64_t>(i)));
  return wide;
}

}  // namespace

Result<Answer> solve(const Problem& p, const Subject& subject) {
  AttentionSpec spec = p.spec;
  spec.q_dtype = spec.kv_dtype = spec.o_dtype = spec.index_dtype = DType::f32;
  const std::vector<float> q = widened(p.q, p.spec.q_dtype);
  const std::vector<float> k = widened(p.k, p.spec.kv_dtype);
  const std::vector<float> v = widened(p.v, p.spec.kv_dtype);
  const KvLayout layout = is_latent(spec.variant) ? KvLayout::mla_latent : KvLayout::nhd;
  auto backend = subject.oracle({.spec = spec,
                                 .page_size = std::max(1, spec.compress_ratio),
                                 .kv_layout = layout,
                                 .executor = subject.executor});
  if (!backend.ok()) return backend.status();

  std::vector<std::int32_t> qo_indptr(p.first_query.begin(), p.first_query.end());
  std::vector<std::int32_t> kv_indptr(p.first_key.begin(), p.first_key.end());
  std::vector<std::int64_t> kv_offset;
  for (const RequestShape& r : p.requests) kv_offset.push_back(r.kv_offset);
  std::vector<std::uint8_t> bytes;
  std::vector<std::int64_t> bytes_indptr;
  if (!p.mask.empty()) {
    bytes_indptr.push_back(0);
    for (const std::vector<bool>& bits : p.mask) {
      const std::size_t begin = bytes.size();
      bytes.resize(begin + (bits.size() + 7) / 8);
      for (std::size_t b = 0; b < bits.size(); ++b)
        if (bits[b]) bytes[begin + b / 8] |= static_cast<std::uint8_t>(1u << (b % 8));
      bytes_indptr.push_back(static_cast<std::int64_t>(bytes.size()));
    }
  }
  const std::vector<std::int32_t> compressed_indptr(p.compressed.first.begin(),
                                                    p.compressed.first.end());
  BatchView batch{.form = BatchForm::extend,
                  .source = KvSource::ragged,
                  .qo_indptr = qo_indptr,
                  .kv_indptr = kv_indptr,
                  .kv_offset = kv_offset,
                  .compressed = {.kv_indptr = compressed_indptr},
                  .custom_mask = bytes,
                  .custom_mask_indptr = bytes_indptr};
  FlexFunctions flex;
  for (std::size_t i = 0; i < p.requests.size(); ++i)
    flex.requests.push_back(static_cast<std::int64_t>(i));
  const auto blocks = flex.blocks(spec, p.mask_by_head, batch);
  if (!blocks.ok()) return blocks.status();
  batch.block_mask = blocks->view();

  const std::int64_t rows = p.num_queries() * spec.num_qo_heads;
  std::vector<float> o(static_cast<std::size_t>(rows * spec.head_dim_vo));
  std::vector<float> lse(static_cast<std::size_t>(rows));
  const auto view = [](const auto& memory, DType dtype, std::int64_t tokens, int heads, int dim) {
    return TensorView::dense(const_cast<void*>(static_cast<const void*>(memory.data())), dtype,
                             {tokens, heads, dim});
  };
  LayerCall call{
      .q = view(q, spec.q_dtype, p.num_queries(), spec.num_qo_heads, spec.q_columns()),
      .o = view(o, DType::f32, p.num_queries(), spec.num_qo_heads, spec.head_dim_vo),
      .lse = TensorView::dense(lse.data(), DType::f32, {p.num_queries(), spec.num_qo_heads}),
      .k = view(k, spec.kv_dtype, p.num_keys(), spec.num_kv_heads, spec.head_dim_qk),
      .v = view(v, spec.kv_dtype, p.num_keys(), spec.num_kv_heads, spec.head_dim_vo),
      .q_scale = p.q_scale,
      .k_scale = p.k_scale,
      .v_scale = p.v_scale,
      .k_scale_per_head = p.k_scales.empty() ? nullptr : p.k_scales.data(),
      .v_scale_per_head = p.v_scales.empty() ? nullptr : p.v_scales.data(),
      .sinks = p.sinks.empty() ? nullptr : p.sinks.data(),
      .alibi_slopes = p.slopes.empty() ? nullptr : p.slopes.data()};

  if (spec.score_mod) call.score_mod = flex.score();

  const std::vector<float> index_q = widened(p.sparse.q, p.spec.q_dtype);
  const std::vector<float> index_k = widened(p.sparse.k, p.spec.index_dtype);
  const auto flat = [](const auto& memory, DType dtype, std::int64_t lines, std::int64_t columns) {
    return TensorView::dense(const_cast<void*>(static_cast<const void*>(memory.data())), dtype,
                             {lines, columns});
  };
  const std::vector<float> compressed_k = widened(p.compressed.k, p.spec.kv_dtype);
  CompressedCall compressed;
  if (spec.compress_ratio > 0) {
    compressed.k = flat(compressed_k, DType::f32, p.compressed.first.back(), spec.head_dim_qk);
    call.compressed = &compressed;
  }
  std::vector<std::int32_t> lists = p.sparse.lists;
  SparseCall sparse;
  if (spec.index_topk > 0) {
    lists.resize(static_cast<std::size_t>(p.num_queries() * p.list_width()));
    sparse.topk_indices =
        spec.index_block_size > 0
            ? view(lists, DType::i32, p.num_queries(), spec.index_lists(), spec.index_topk)
            : flat(lists, DType::i32, p.num_queries(), spec.index_topk);
    if (!p.sparse.q.empty())
      sparse.index_q =
          view(index_q, DType::f32, p.num_queries(), spec.index_num_heads, spec.index_head_dim);
    if (spec.index_block_size == 0)
      sparse.index_weights =
          flat(p.sparse.weights, DType::f32, p.num_queries(), spec.index_num_heads);
    sparse.index_k = flat(index_k, DType::f32, p.num_indexed(), spec.index_head_dim);
    call.sparse = &sparse;
  }

  const auto memory = host_memory();
  const WorkspaceSize size = (*backend)->workspace_size(attention::bounds_of(batch));
  auto workspace = GuardedMemory::make(*memory, size.device_bytes, 0);
  if (!workspace.ok()) return workspace.status();
  auto plan =
      (*backend)->plan(batch, {.device = workspace->data(), .device_bytes = size.device_bytes}, {});
  if (!plan.ok()) return plan.status();
  if (Status s = (*backend)->run(**plan, call, {}); !s.ok()) return s;
  return Answer{.o = {o.begin(), o.end()}, .lse = {lse.begin(), lse.end()}, .lists = lists};
}

// The one table of tolerances. o: kernels may round queries, keys and probabilities to o's dtype
// (the query's, bf16 beside e4m3) and store o in it; sums are fp32 or better, so their error grows
// with the square root of the length. Errors scale with the values. lse: logits sum head_dim products in fp32 or better.
Tolerance output_tolerance(const Problem& p) {
  std::int32_t longest = 1;
  for (const RequestShape& r : p.requests) longest = std::max(longest, r.kv_len);
  const double growth = std::sqrt(static_cast<double>(longest)) * 1e-7;
  const double magnitude = std::max(p.value_magnitude, 1e-30);
  switch (p.spec.o_dtype) {
    case DType::bf16: return {.absolute = (4e-3 + growth) * magnitude, .relative = 8e-3};
    case DType::f16: return {.absolute = (5e-4 + growth) * magnitude, .relative = 1e-3};
    default: return {.absolute = (3e-6 + growth) * magnitude, .relative = 1e-5};
  }
}

Tolerance lse_tolerance(const Problem& p) {
  switch (p.spec.o_dtype) {
    case DType::bf16: return {.absolute = 1e-2, .relative = 2e-3};
    case DType::f16: return {.absolute = 1e-3, .relative = 5e-4};
    default: return {.absolute = 1e-5, .relative = 2e-6};
  }
}

namespace {

void hold(double have, double want, const Tolerance& tolerance, std::string_view what,
          std::int64_t row, std::int64_t dim, Outcome& outcome, Worst& worst) {
  double excess = 0.0;
  if (std::isnan(have) || std::isinf(want) || std::isinf(have)) {
    if (have == want) return;
    excess = std::numeric_limits<double>::infinity();
  } else {
    const double error = std::fabs(have - want);
    outcome.max_abs_err = std::max(outcome.max_abs_err, error);
    if (std::fabs(want) > tolerance.absolute)
      outcome.max_rel_err = std::max(outcome.max_rel_err, error / std::fabs(want));
    excess = error / (tolerance.absolute + tolerance.relative * std::fabs(want));
  }
  if (excess <= worst.excess) return;
  worst.excess = excess;
  worst.text = base::join(what, " of row ", row, dim < 0 ? "" : base::join(", column ", dim),
                          ": have ", have, ", want ", want);
}

}  // namespace

Outcome compare(const Problem& p, const Answer& have, const Answer& want) {
  if (Outcome lists = compare_lists(p, have, want); lists.verdict != Verdict::passed) return lists;
  Outcome outcome;
  Worst worst;
  const Tolerance on_o = output_tolerance(p);
  const Tolerance on_lse = lse_tolerance(p);
  outcome.tolerance = on_o.absolute;
  const std::int64_t width = p.spec.head_dim_vo;
  for (std::size_t i = 0; i < want.o.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    hold(have.o[i], want.o[i], on_o, "o", at / width, at % width, outcome, worst);
  }
  Outcome unreported;  // the figures of the report speak of o
  for (std::size_t i = 0; i < have.lse.size(); ++i)
    hold(have.lse[i], want.lse[i], on_lse, "lse", static_cast<std::int64_t>(i), -1, unreported,
         worst);
  outcome.excess = std::max(worst.excess, 0.0);
  if (worst.excess > 1.0) {
    outcome.verdict = Verdict::failed;
    outcome.reason = base::join(worst.text, " (rows are query * heads + head; ", worst.excess,
                                " times the tolerance)");
  }
  return outcome;
}

Outcome compare_bits(const Problem& p, const Answer& have, const Answer& want) {
  if (Outcome lists = compare_lists(p, have, want); lists.verdict != Verdict::passed) return lists;
  const std::int64_t width = p.spec.head_dim_vo;
  for (std::size_t i = 0; i < want.o.size(); ++i)
    if (have.o[i] != want.o[i])
      return failed(base::join("bits differ: o of row ", static_cast<std::int64_t>(i) / width,
                               ", column ", static_cast<std::int64_t>(i) % width, " is ", have.o[i],
                               " and ", want.o[i]));
  for (std::size_t i = 0; i < want.lse.size(); ++i)
    if (have.lse[i] != want.lse[i])
      return failed(
          base::join("bits differ: lse of row ", i, " is ", have.lse[i], " and ", want.lse[i]));
  return {};
}

}  // namespace attune::conformance
