// What an indexer needs on a stage: its tensors, and the lists of kept keys.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/join.hpp"
#include "conformance/stage.hpp"
#include "conformance/stage_tensors.hpp"
#include "tensor/element.hpp"

namespace attune::conformance {
namespace {

bool is_sparse(const Case& one) { return one.spec.index_topk > 0; }

}  // namespace

Status Stage::prepare_sparse(Prepared& p) {
  if (!is_sparse(case_)) return {};
  const AttentionSpec& spec = case_.spec;
  const SparseProblem& from = problem_.sparse;
  const std::int64_t rows = p.qo_indptr.back();
  const auto query_rows = [&](const auto& source, TensorView view, GuardedMemory& to,
                              TensorView& placed) -> Status {
    // Rows of `view` (rank 2 or 3) are as long as those of `source`.
    const std::size_t size = size_of(view.dtype);
    const std::size_t width =
        static_cast<std::size_t>(view.rank == 3 ? view.shape[1] * view.shape[2] : view.shape[1]) *
        size;
    const std::size_t step = static_cast<std::size_t>(view.stride[0]) * size;
    std::vector<char> image(static_cast<std::size_t>(rows) * step, static_cast<char>(kNan));
    const auto* const bytes = reinterpret_cast<const char*>(source.data());
    for (std::size_t n = 0; n < p.step.parts.size() && !source.empty(); ++n) {
      const Step::Part& part = p.step.parts[n];
      const std::int64_t first =
          problem_.first_query[static_cast<std::size_t>(part.request)] + part.first_row;
      for (std::int64_t r = 0; r < part.num_rows; ++r)
        std::memcpy(image.data() + static_cast<std::size_t>(p.qo_indptr[n] + r) * step,
                    bytes + static_cast<std::size_t>(first + r) * width, width);
    }
    placed = view;
    return place_rows(memory(), placed, to, image);
  };
  const TensorView lists =
      spec.index_block_size > 0
          ? token_view(DType::i32, rows, spec.index_lists(), spec.index_topk, case_.strided)
          : rows_view(DType::i32, rows, spec.index_topk, case_.strided);
  if (Status s = query_rows(from.lists, lists, p.lists, p.sparse.topk_indices); !s.ok()) return s;
  p.sparse.index_cache = index_.cache;
  p.call.sparse = &p.sparse;
  if (case_.given_lists) return {};
  if (Status s = query_rows(
          from.q,
          token_view(spec.q_dtype, rows, spec.index_num_heads, spec.index_head_dim, case_.strided),
          p.index_q, p.sparse.index_q);
      !s.ok())
    return s;
  if (spec.index_block_size == 0)
    if (Status s = query_rows(from.weights,
                              rows_view(DType::f32, rows, spec.index_num_heads, case_.strided),
                              p.index_weights, p.sparse.index_weights);
        !s.ok())
      return s;
  if (case_.source == KvSource::paged) return {};
  // Ragged keys: those of the parts, one request behind the other.
  const bool compressed = spec.compress_ratio > 0;
  const std::vector<std::int32_t>& indptr = compressed ? p.compressed_indptr : p.kv_indptr;
  p.sparse.index_k =
      TensorView::dense(nullptr, spec.index_dtype, {indptr.back(), spec.index_head_dim});
  const std::vector<char> image = rows_of_parts(
      p.step, from.k, compressed ? problem_.compressed.first : problem_.first_key,
      static_cast<std::size_t>(spec.index_head_dim) * size_of(spec.index_dtype), indptr);
  return place_rows(memory(), p.sparse.index_k, p.index_k, image);
}

Status Stage::copy_indexer(const Prepared& from, Prepared& to) {
  if (!is_sparse(case_)) return {};
  const auto copy = [](const GuardedMemory& source, GuardedMemory& target) -> Status {
    if (source.size() == 0) return {};
    const auto bytes = source.download();
    if (!bytes.ok()) return bytes.status();
    return target.upload(*bytes);
  };
  if (case_.given_lists) return copy(from.lists, to.lists);
  if (Status s = copy(from.index_q, to.index_q); !s.ok()) return s;
  return copy(from.index_weights, to.index_weights);
}

Status Stage::collect_lists(const Prepared& p, Answer& answer) {
  if (!is_sparse(case_)) return {};
  const auto lists = p.lists.download();
  if (!lists.ok()) return lists.status();
  const TensorView& view = p.sparse.topk_indices;
  const std::int64_t width = problem_.list_width();
  for (std::size_t n = 0; n < p.step.parts.size(); ++n) {
    const Step::Part& part = p.step.parts[n];
    const std::int64_t first =
        problem_.first_query[static_cast<std::size_t>(part.request)] + part.first_row;
    for (std::int64_t r = 0; r < part.num_rows; ++r)
      std::memcpy(answer.lists.data() + (first + r) * width,
                  lists->data() + (p.qo_indptr[n] + r) * view.stride[0] * 4,
                  static_cast<std::size_t>(width) * 4);
  }
  for (std::int64_t row = 0; row < view.shape[0]; ++row)
    for (std::int64_t b = (row * view.stride[0] + width) * 4; b < (row + 1) * view.stride[0] * 4;
         ++b)
      if (static_cast<unsigned char>((*lists)[static_cast<std::size_t>(b)]) != kNan)
        return internal_error(base::join("bytes behind list ", row, " were overwritten"));
  return p.lists.check_guards("topk_indices");
}

Status Stage::append_sparse(const Step& step, DType dtype, Appended& made) {
  if (!is_sparse(case_)) return {};
  TensorView& view = made.sparse.index_k;
  const std::vector<char> image = appended_vectors(step, index_, dtype, view);
  made.sparse.index_cache = index_.cache;
  made.call.sparse = &made.sparse;
  return place_rows(memory(), view, made.index_k, image);
}

}  // namespace attune::conformance
