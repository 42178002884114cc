// Pools of one vector a slot beside the keys' own: an indexer's keys, and compressed keys.
#include <cstring>
#include <utility>

#include "base/join.hpp"
#include "conformance/stage.hpp"
#include "conformance/stage_tensors.hpp"
#include "tensor/element.hpp"

namespace attune::conformance {

Status Stage::place_vectors(const StageOptions& options) {
  const AttentionSpec& spec = case_.spec;
  const bool compresses = spec.compress_ratio > 0;
  const std::int64_t slots = compresses ? case_.page_size / spec.compress_ratio : case_.page_size;
  const std::int64_t pages = compresses ? num_compressed_pages_ : num_pages_;
  const auto place = [&](VectorPool& pool, const std::vector<char>& rows, DType dtype, int width) {
    pool.rows = &rows;
    pool.first = compresses ? &problem_.compressed.first : &problem_.first_key;
    pool.pages = compresses ? &compressed_pages_ : &pages_;
    pool.cache = TensorView::dense(nullptr, dtype, {pages, slots, width});
    if (Status s = allocate(pool, pages, options); !s.ok() || options.empty_cache) return s;
    return fill(pool);
  };
  if (compresses)
    if (Status s = place(compressed_, problem_.compressed.k, spec.kv_dtype, spec.head_dim_qk);
        !s.ok())
      return s;
  if (spec.index_topk == 0) return {};
  return place(index_, problem_.sparse.k, spec.index_dtype, spec.index_head_dim);
}

Status Stage::allocate(VectorPool& pool, std::int64_t num_pages, const StageOptions& options) {
  TensorView& cache = pool.cache;
  if (case_.strided) {
    cache.stride[1] += kGap;
    cache.stride[0] = cache.stride[1] * cache.shape[1] + kGap;
  }
  const auto bytes = static_cast<std::size_t>(num_pages * cache.stride[0]) * size_of(cache.dtype);
  if (options.huge_elements > 0) {
    auto sparse = memory().allocate_sparse(bytes);
    if (!sparse.ok()) return sparse.status();
    pool.owner = std::shared_ptr<void>(
        *sparse, [owner = subject_.memory](void* held) { owner->release(held); });
    cache.data = *sparse;
    return {};
  }
  auto made = GuardedMemory::make(memory(), bytes, options.garbage);
  if (!made.ok()) return made.status();
  pool.memory = std::move(*made);
  cache.data = pool.memory.data();
  return {};
}

/// Where each row goes: act(its bytes, its offset in the pool).
template <class Act>
Status Stage::for_each_row(const VectorPool& pool, const Act& act) const {
  const TensorView& cache = pool.cache;
  const auto element = static_cast<std::int64_t>(size_of(cache.dtype));
  const auto bytes = static_cast<std::size_t>(cache.shape[2] * element);
  for (std::size_t i = 0; i < case_.requests.size(); ++i) {
    const std::int64_t count = (*pool.first)[i + 1] - (*pool.first)[i];
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t page = (*pool.pages)[i][static_cast<std::size_t>(j / cache.shape[1])];
      const std::int64_t at = page * cache.stride[0] + j % cache.shape[1] * cache.stride[1];
      const char* const from =
          pool.rows->data() + static_cast<std::size_t>((*pool.first)[i] + j) * bytes;
      if (Status s = act(from, at * element, bytes); !s.ok()) return s;
    }
  }
  return {};
}

Status Stage::fill(VectorPool& pool) {
  // A pool in ordinary memory is written in one piece: a copy a row would be slow on a device.
  if (pool.memory.size() == 0)
    return for_each_row(pool, [&](const char* from, std::int64_t at, std::size_t bytes) {
      return memory().copy_in(pool.cache.as<char>() + at, from, bytes);
    });
  auto image = pool.memory.download();
  if (!image.ok()) return image.status();
  (void)for_each_row(pool, [&](const char* from, std::int64_t at, std::size_t bytes) {
    std::memcpy(image->data() + at, from, bytes);
    return Status{};
  });
  return pool.memory.upload(*image);
}

Status Stage::check(VectorPool& pool, unsigned char garbage) {
  if (pool.memory.size() == 0) return {};
  auto have = pool.memory.download();
  if (!have.ok()) return have.status();
  std::vector<char> want(have->size(), static_cast<char>(garbage));
  (void)for_each_row(pool, [&](const char* from, std::int64_t at, std::size_t bytes) {
    std::memcpy(want.data() + at, from, bytes);
    return Status{};
  });
  if (*have != want)
    return internal_error(
        "the index keys or compressed keys in their pool are not what was appended");
  return pool.memory.check_guards("a pool of vectors");
}

Status Stage::check_vector_pools(unsigned char garbage) {
  if (Status s = check(index_, garbage); !s.ok()) return s;
  return check(compressed_, garbage);
}

std::vector<char> Stage::appended_vectors(const Step& step, const VectorPool& pool, DType dtype,
                                          TensorView& view) const {
  const std::int64_t dim = pool.cache.shape[2];
  const std::int64_t ratio = case_.spec.compress_ratio;
  std::int64_t tokens = 0;
  for (const Step::Part& part : step.parts) tokens += part.num_rows;
  view = rows_view(dtype, tokens, dim, case_.strided);
  std::vector<char> image(static_cast<std::size_t>(tokens * view.stride[0]) * size_of(dtype),
                          static_cast<char>(kNan));
  std::int64_t t = 0;
  for (const Step::Part& part : step.parts) {
    const auto i = static_cast<std::size_t>(part.request);
    const RequestShape& r = case_.requests[i];
    for (std::int32_t row = 0; row < part.num_rows; ++row, ++t) {
      const std::int64_t j = std::int64_t{r.kv_len} - r.qo_len + part.first_row + row;
      const std::int64_t tokens_so_far = r.kv_offset + j + 1;
      if (ratio > 0 && tokens_so_far % ratio != 0) continue;
      const std::int64_t from = (*pool.first)[i] + (ratio > 0 ? tokens_so_far / ratio - 1 : j);
      for (std::int64_t d = 0; d < dim; ++d)
        tensor::store_element(
            image.data(), dtype, t * view.stride[0] + d,
            tensor::load_element(pool.rows->data(), pool.cache.dtype, from * dim + d));
    }
  }
  return image;
}

}  // namespace attune::conformance
