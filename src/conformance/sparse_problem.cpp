#include "conformance/sparse_problem.hpp"

#include <algorithm>

#include "base/join.hpp"
#include "base/math.hpp"
#include "tensor/element.hpp"

namespace attune::conformance {
namespace {

/// Whole numbers from -most to most.
std::vector<char> whole_numbers(Random& random, std::int64_t elements, DType dtype,
                                std::int64_t most) {
  std::vector<char> rows(static_cast<std::size_t>(elements) * size_of(dtype));
  for (std::int64_t i = 0; i < elements; ++i)
    tensor::store_element(rows.data(), dtype, i,
                          static_cast<double>(random.below(2 * most + 1) - most));
  return rows;
}

/// Any order, some twice, with gaps, beyond the last visible one, far outside, and none at all.
void draw_list(Random& random, std::int64_t visible, std::int32_t* list, int topk) {
  const bool blind = random.below(5) == 0;
  for (int n = 0; n < topk; ++n) {
    const std::int64_t kind = random.below(8);
    if (blind || kind == 0)
      list[n] = -1;
    else if (kind == 1)
      list[n] = static_cast<std::int32_t>(visible + random.below(3));
    else if (kind == 2 && n > 0)
      list[n] = list[n - 1];
    else
      list[n] = visible > 0 ? static_cast<std::int32_t>(random.below(visible)) : -1;
  }
  if (random.below(3) == 0) list[topk - 1] = random.below(2) == 0 ? 0x7fffffff : -0x7fffffff - 1;
}

/// Keys, compressed keys or blocks that a request's row may choose among.
std::int64_t seen_by(const AttentionSpec& spec, const RequestShape& r, std::int32_t row) {
  const std::int64_t keys = std::int64_t{r.kv_len} - r.qo_len + row + 1;
  if (spec.compress_ratio > 0) return compressed_before(spec, r.kv_offset + keys);
  const std::int64_t seen = std::max<std::int64_t>(0, keys);
  return spec.index_block_size > 0 ? base::ceil_div<std::int64_t>(seen, spec.index_block_size)
                                   : seen;
}

}  // namespace

void make_sparse_problem(const Case& one, Random& random, Problem& p) {
  const AttentionSpec& spec = one.spec;
  SparseProblem& s = p.sparse;
  s.k = whole_numbers(random, p.num_indexed() * spec.index_head_dim, spec.index_dtype, 3);
  if (!one.given_lists) {
    s.q = whole_numbers(random, p.num_queries() * spec.index_num_heads * spec.index_head_dim,
                        spec.q_dtype, 2);
    const bool weighs = spec.index_block_size == 0;
    for (std::int64_t i = 0; i < p.num_queries() * spec.index_num_heads && weighs; ++i)
      s.weights.push_back(static_cast<float>(random.below(17) - 8) * 0.25f);
    return;
  }
  s.lists.resize(static_cast<std::size_t>(p.num_queries() * p.list_width()));
  std::int32_t* list = s.lists.data();
  for (const RequestShape& r : one.requests)
    for (std::int32_t row = 0; row < r.qo_len; ++row)
      for (int n = 0; n < spec.index_lists(); ++n, list += spec.index_topk)
        draw_list(random, seen_by(spec, r, row), list, spec.index_topk);
}

Outcome compare_lists(const Problem& p, const Answer& have, const Answer& want) {
  for (std::size_t i = 0; i < want.lists.size(); ++i)
    if (have.lists[i] != want.lists[i])
      return failed(base::join("topk_indices of query ",
                               static_cast<std::int64_t>(i) / p.list_width(), ", entry ",
                               static_cast<std::int64_t>(i) % p.list_width(), ": have ",
                               have.lists[i], ", want ", want.lists[i]));
  return {};
}

}  // namespace attune::conformance
