// What sparse_mla needs on a stage: a pool of index keys beside the latents, the indexer's tensors,
// the lists of kept keys.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/join.hpp"
#include "conformance/stage.hpp"
#include "conformance/stage_tensors.hpp"
#include "tensor/element.hpp"

namespace attune::conformance {
namespace {

bool is_sparse(const Case& one) { return one.spec.variant == Variant::sparse_mla; }

/// A view of rows with a gap behind each where the case is strided.
TensorView rows_view(DType dtype, std::int64_t rows, std::int64_t columns, bool strided) {
  TensorView view = TensorView::dense(nullptr, dtype, {rows, columns});
  if (strided) view.stride[0] += kGap;
  return view;
}

Status place_rows(DeviceMemory& memory, TensorView& view, GuardedMemory& to,
                  const std::vector<char>& image) {
  auto made = GuardedMemory::make(memory, image.size(), kNan);
  if (!made.ok()) return made.status();
  to = std::move(*made);
  view.data = to.data();
  return to.upload(image);
}

}  // namespace

Status Stage::allocate_index_pool(const StageOptions& options) {
  const AttentionSpec& spec = case_.spec;
  TensorView& cache = index_cache_;
  cache = TensorView::dense(nullptr, spec.index_dtype,
                            {num_pages_, case_.page_size, spec.index_head_dim});
  if (case_.strided) {
    cache.stride[1] += kGap;
    cache.stride[0] = cache.stride[1] * case_.page_size + kGap;
  }
  const auto bytes =
      static_cast<std::size_t>(num_pages_ * cache.stride[0]) * size_of(spec.index_dtype);
  if (options.huge_elements > 0) {
    auto sparse = memory().allocate_sparse(bytes);
    if (!sparse.ok()) return sparse.status();
    index_owner_ = std::shared_ptr<void>(
        *sparse, [owner = subject_.memory](void* held) { owner->release(held); });
    cache.data = *sparse;
    return {};
  }
  auto made = GuardedMemory::make(memory(), bytes, options.garbage);
  if (!made.ok()) return made.status();
  index_pool_ = std::move(*made);
  cache.data = index_pool_.data();
  return {};
}

std::int64_t Stage::index_offset(std::size_t request, std::int64_t key) const {
  const std::int64_t page = pages_[request][static_cast<std::size_t>(key / case_.page_size)];
  return (page * index_cache_.stride[0] + key % case_.page_size * index_cache_.stride[1]) *
         static_cast<std::int64_t>(size_of(case_.spec.index_dtype));
}

/// Where each key's index row goes: act(bytes of the row, offset in the pool).
template <class Act>
Status Stage::for_each_index_row(const Act& act) const {
  const auto row =
      static_cast<std::size_t>(case_.spec.index_head_dim) * size_of(case_.spec.index_dtype);
  for (std::size_t i = 0; i < case_.requests.size(); ++i)
    for (std::int64_t j = 0; j < case_.requests[i].kv_len; ++j) {
      const char* const from =
          problem_.sparse.k.data() + static_cast<std::size_t>(problem_.first_key[i] + j) * row;
      if (Status s = act(from, index_offset(i, j), row); !s.ok()) return s;
    }
  return {};
}

Status Stage::place_index_keys(const StageOptions& options) {
  if (!is_sparse(case_)) return {};
  if (Status s = allocate_index_pool(options); !s.ok() || options.empty_cache) return s;
  // A pool in ordinary memory is written in one piece: a copy a row would be slow on a device.
  if (index_pool_.size() == 0)
    return for_each_index_row([&](const char* from, std::int64_t at, std::size_t bytes) {
      return memory().copy_in(index_cache_.as<char>() + at, from, bytes);
    });
  auto image = index_pool_.download();
  if (!image.ok()) return image.status();
  (void)for_each_index_row([&](const char* from, std::int64_t at, std::size_t bytes) {
    std::memcpy(image->data() + at, from, bytes);
    return Status{};
  });
  return index_pool_.upload(*image);
}

Status Stage::check_index_pool(unsigned char garbage) {
  if (!is_sparse(case_) || index_pool_.size() == 0) return {};
  auto have = index_pool_.download();
  if (!have.ok()) return have.status();
  std::vector<char> want(have->size(), static_cast<char>(garbage));
  (void)for_each_index_row([&](const char* from, std::int64_t at, std::size_t bytes) {
    std::memcpy(want.data() + at, from, bytes);
    return Status{};
  });
  if (*have != want) return internal_error("the index keys in the pool are not what was appended");
  return index_pool_.check_guards("the index pool");
}

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
  if (Status s = query_rows(from.lists, rows_view(DType::i32, rows, spec.index_topk, case_.strided),
                            p.lists, p.sparse.topk_indices);
      !s.ok())
    return s;
  p.sparse.index_cache = index_cache_;
  p.call.sparse = &p.sparse;
  if (case_.given_lists) return {};
  if (Status s = query_rows(
          from.q,
          token_view(spec.q_dtype, rows, spec.index_num_heads, spec.index_head_dim, case_.strided),
          p.index_q, p.sparse.index_q);
      !s.ok())
    return s;
  if (Status s =
          query_rows(from.weights, rows_view(DType::f32, rows, spec.index_num_heads, case_.strided),
                     p.index_weights, p.sparse.index_weights);
      !s.ok() || case_.source == KvSource::paged)
    return s;
  // Ragged keys: those of the parts, one request behind the other.
  const std::size_t width =
      static_cast<std::size_t>(spec.index_head_dim) * size_of(spec.index_dtype);
  p.sparse.index_k =
      TensorView::dense(nullptr, spec.index_dtype, {p.kv_indptr.back(), spec.index_head_dim});
  std::vector<char> image;
  for (std::size_t n = 0; n < p.step.parts.size(); ++n) {
    const auto first = static_cast<std::size_t>(
        problem_.first_key[static_cast<std::size_t>(p.step.parts[n].request)]);
    const auto count = static_cast<std::size_t>(p.kv_indptr[n + 1] - p.kv_indptr[n]);
    image.insert(image.end(), from.k.begin() + static_cast<std::ptrdiff_t>(first * width),
                 from.k.begin() + static_cast<std::ptrdiff_t>((first + count) * width));
  }
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
  const std::int64_t topk = view.shape[1];
  for (std::size_t n = 0; n < p.step.parts.size(); ++n) {
    const Step::Part& part = p.step.parts[n];
    const std::int64_t first =
        problem_.first_query[static_cast<std::size_t>(part.request)] + part.first_row;
    for (std::int64_t r = 0; r < part.num_rows; ++r)
      std::memcpy(answer.lists.data() + (first + r) * topk,
                  lists->data() + (p.qo_indptr[n] + r) * view.stride[0] * 4,
                  static_cast<std::size_t>(topk) * 4);
  }
  for (std::int64_t row = 0; row < view.shape[0]; ++row)
    for (std::int64_t b = (row * view.stride[0] + topk) * 4; b < (row + 1) * view.stride[0] * 4;
         ++b)
      if (static_cast<unsigned char>((*lists)[static_cast<std::size_t>(b)]) != kNan)
        return internal_error(base::join("bytes behind list ", row, " were overwritten"));
  return p.lists.check_guards("topk_indices");
}

Status Stage::append_sparse(const Step& step, DType dtype, Appended& made) {
  if (!is_sparse(case_)) return {};
  const std::int64_t dim = case_.spec.index_head_dim;
  std::int64_t tokens = 0;
  for (const Step::Part& part : step.parts) tokens += part.num_rows;
  TensorView& view = made.sparse.index_k;
  view = rows_view(dtype, tokens, dim, case_.strided);
  std::vector<char> image(static_cast<std::size_t>(tokens * view.stride[0]) * size_of(dtype),
                          static_cast<char>(kNan));
  std::int64_t t = 0;
  for (const Step::Part& part : step.parts) {
    const auto i = static_cast<std::size_t>(part.request);
    const std::int64_t first = problem_.first_key[i] + case_.requests[i].kv_len -
                               case_.requests[i].qo_len + part.first_row;
    for (std::int32_t r = 0; r < part.num_rows; ++r, ++t)
      for (std::int64_t d = 0; d < dim; ++d)
        tensor::store_element(image.data(), dtype, t * view.stride[0] + d,
                              tensor::load_element(problem_.sparse.k.data(), case_.spec.index_dtype,
                                                   (first + r) * dim + d));
  }
  made.sparse.index_cache = index_cache_;
  made.call.sparse = &made.sparse;
  return place_rows(memory(), view, made.index_k, image);
}

}  // namespace attune::conformance
