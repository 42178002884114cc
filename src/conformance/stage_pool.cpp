// The cache side of a stage: where pages lie, what they hold, what append_kv writes.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/math.hpp"
#include "conformance/packed_rows.hpp"
#include "conformance/stage.hpp"
#include "conformance/stage_tensors.hpp"
#include "tensor/element.hpp"
#include "tensor/kv_layout.hpp"

namespace attune::conformance {

namespace {

tensor::KvShape kv_shape(const Case& one) {
  return {.layout = one.layout,
          .dtype = one.spec.kv_dtype,
          .page_size = one.page_size,
          .num_kv_heads = one.spec.num_kv_heads,
          .head_dim_qk = one.spec.head_dim_qk,
          .head_dim_vo = one.spec.head_dim_vo};
}

/// A shuffle of all pages.
std::vector<std::int32_t> shuffled_ids(std::int64_t num_pages, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(num_pages));
  std::iota(ids.begin(), ids.end(), 0);
  for (std::int64_t i = num_pages - 1; i > 0; --i)
    std::swap(ids[static_cast<std::size_t>(i)], ids[static_cast<std::size_t>(random.below(i + 1))]);
  return ids;
}

/// The first page, the last, and those around the places where 31- and 32-bit offsets wrap.
std::vector<std::int32_t> wrapping_ids(std::int64_t num_pages, std::int64_t page_elements,
                                       std::int64_t needed) {
  std::vector<std::int32_t> ids{0, static_cast<std::int32_t>(num_pages - 1)};
  for (const std::int64_t wrap : {std::int64_t{1} << 32, std::int64_t{1} << 31})
    for (std::int64_t around = needed - 1; around >= -1; --around) {
      const std::int64_t id = wrap / page_elements + around;
      if (id < num_pages - 1) ids.push_back(static_cast<std::int32_t>(id));
    }
  return ids;
}

}  // namespace

void Stage::choose_pages(const StageOptions& options) {
  const tensor::KvShape shape = kv_shape(case_);
  std::int64_t needed = 0;
  for (const RequestShape& r : case_.requests)
    needed += base::ceil_div<std::int64_t>(r.kv_len, case_.page_size);
  const std::int64_t page_elements =
      tensor::k_page_bytes(shape) / static_cast<std::int64_t>(size_of(shape.dtype));
  const bool huge = options.huge_elements > 0;
  num_pages_ = huge ? options.huge_elements / page_elements + 8 : 2 * needed + 3;
  const std::vector<std::int32_t> ids = huge ? wrapping_ids(num_pages_, page_elements, needed)
                                             : shuffled_ids(num_pages_, options.page_seed);
  std::size_t next = 0;
  for (const RequestShape& r : case_.requests) {
    const auto count =
        static_cast<std::size_t>(base::ceil_div<std::int64_t>(r.kv_len, case_.page_size));
    std::vector<std::int32_t> mine;
    for (std::size_t n = 0; n < count; ++n) {
      mine.push_back(ids[next++]);
    }
    pages_.push_back(std::move(mine));
  }
  for (const PrefixGroup& g : case_.sharing) {
    const auto first = pages_.begin() + g.first_request;
    for (auto other = first + 1; other < first + g.num_requests; ++other)
      std::copy_n(first->begin(), g.num_pages, other->begin());
  }
}

/// Pages for every position from 0 on, whatever the window's pool took back.
void Stage::choose_compressed_pages(const StageOptions& options) {
  const AttentionSpec& spec = case_.spec;
  const auto pages_of = [&](const RequestShape& r) {
    return base::ceil_div<std::int64_t>(r.kv_offset + r.kv_len, case_.page_size);
  };
  std::int64_t needed = 0;
  for (const RequestShape& r : case_.requests) needed += pages_of(r);
  const std::int64_t page_elements =
      std::int64_t{case_.page_size / spec.compress_ratio} * spec.head_dim_qk;
  const bool huge = options.huge_elements > 0;
  num_compressed_pages_ = huge ? options.huge_elements / page_elements + 8 : 2 * needed + 3;
  const std::vector<std::int32_t> ids =
      huge ? wrapping_ids(num_compressed_pages_, page_elements, needed)
           : shuffled_ids(num_compressed_pages_, options.page_seed + 1);
  auto next = ids.begin();
  for (const RequestShape& r : case_.requests) {
    compressed_pages_.emplace_back(next, next + pages_of(r));
    next += pages_of(r);
  }
}

// The pools are one piece of memory. Dense: all K pages, then all V pages. Strided: each page's K
// and V side by side, as engines that allocate them together have it; latent rows with gaps.
Status Stage::allocate_pool(const StageOptions& options) {
  const tensor::KvShape shape = kv_shape(case_);
  const auto element = static_cast<std::int64_t>(size_of(shape.dtype));
  const std::int64_t k_page = tensor::k_page_bytes(shape) / element;
  const std::int64_t v_page = tensor::v_page_bytes(shape) / element;
  const bool beside = case_.strided && apart(case_);
  const std::int64_t latent_gap = case_.strided && !apart(case_) ? kGap : 0;
  const std::int64_t k_stride = beside ? k_page + v_page : k_page + latent_gap * case_.page_size;
  const std::int64_t v_stride = beside ? k_page + v_page : v_page;
  const std::int64_t v_at = beside ? k_page : num_pages_ * k_page;
  const std::int64_t elements = num_pages_ * (beside || v_page == 0 ? k_stride : k_page + v_page);
  const auto bytes = static_cast<std::size_t>(elements * element);
  char* pool = nullptr;
  if (options.huge_elements > 0) {
    auto sparse = memory().allocate_sparse(bytes);
    if (!sparse.ok()) return sparse.status();
    sparse_owner_ = std::shared_ptr<void>(
        *sparse, [owner = subject_.memory](void* held) { owner->release(held); });
    pool = static_cast<char*>(*sparse);
  } else {
    auto made = GuardedMemory::make(memory(), bytes, options.garbage);
    if (!made.ok()) return made.status();
    pool_ = std::move(*made);
    pool = pool_.data();
  }
  TensorView& k = base_call_.k_cache;
  TensorView& v = base_call_.v_cache;
  k = tensor::k_cache_view(pool, shape, num_pages_);
  k.stride[0] = k_stride;
  if (apart(case_)) {
    v = tensor::v_cache_view(pool + v_at * element, shape, num_pages_);
    v.stride[0] = v_stride;
  } else {
    k.stride[1] += latent_gap;
    v = tensor::v_cache_view(pool, shape, num_pages_);
    v.stride = k.stride;
  }
  // An untouched page of a sparse pool is zero; those in use get garbage as the others have it.
  for (std::size_t i = 0; options.huge_elements > 0 && i < pages_.size(); ++i) {
    for (const std::int64_t page : pages_[i]) {
      if (Status s = memory().fill(k.as<char>() + page * k_stride * element, options.garbage,
                                   static_cast<std::size_t>(k_page * element));
          !s.ok())
        return s;
      if (v_page == 0) continue;
      if (Status s = memory().fill(v.as<char>() + page * v_stride * element, options.garbage,
                                   static_cast<std::size_t>(v_page * element));
          !s.ok())
        return s;
    }
  }
  return {};
}

Status Stage::write_keys(bool values) {
  const AttentionSpec& spec = case_.spec;
  const TensorView& cache = values ? base_call_.v_cache : base_call_.k_cache;
  const auto element = static_cast<std::int64_t>(size_of(spec.kv_dtype));
  const std::int64_t width = row_bytes(values);
  // A pool in ordinary memory is written in one piece: a copy a row would be slow on a device.
  const bool whole = pool_.size() > 0;
  std::vector<char> image;
  if (whole) {
    auto current = pool_.download();
    if (!current.ok()) return current.status();
    image = std::move(*current);
  }
  const std::ptrdiff_t cache_at = whole ? cache.as<char>() - pool_.data() : 0;
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    for (std::int64_t j = 0; j < case_.requests[i].kv_len; ++j) {
      const std::int64_t page = pages_[i][static_cast<std::size_t>(j / case_.page_size)];
      const std::vector<char> rows =
          wanted_rows(static_cast<std::int32_t>(i), static_cast<std::int32_t>(j), values);
      for (std::int64_t h = 0; h < spec.num_kv_heads; ++h) {
        const char* row = rows.data() + h * width;
        const std::int64_t at = row_offset(values, page, j % case_.page_size, h) * element;
        if (whole) {
          std::memcpy(image.data() + cache_at + at, row, static_cast<std::size_t>(width));
        } else if (Status s = memory().copy_in(cache.as<char>() + at, row,
                                               static_cast<std::size_t>(width));
                   !s.ok()) {
          return s;
        }
      }
    }
  }
  return whole ? pool_.upload(image) : Status{};
}

Status Stage::place(const StageOptions& options) {
  names_groups_ = options.names_groups;
  choose_pages(options);
  if (case_.spec.compress_ratio > 0) choose_compressed_pages(options);
  if (Status s = place_vectors(options); !s.ok()) return s;
  if (Status s = allocate_pool(options); !s.ok() || options.empty_cache) return s;
  if (Status s = write_keys(false); !s.ok() || !apart(case_)) return s;
  return write_keys(true);
}

std::int64_t Stage::row_offset(bool values, std::int64_t page, std::int64_t place,
                               std::int64_t head) const {
  const TensorView& cache = values ? base_call_.v_cache : base_call_.k_cache;
  const std::int64_t at = page * cache.stride[0];
  if (case_.layout == KvLayout::hnd) return at + head * cache.stride[1] + place * cache.stride[2];
  return at + place * cache.stride[1] + (cache.rank == 4 ? head * cache.stride[2] : 0);
}

Result<std::unique_ptr<Stage::Appended>> Stage::prepare_append(const Step& step, DType dtype) {
  auto made = std::make_unique<Appended>();
  made->call = base_call_;
  const AttentionSpec& spec = case_.spec;
  // The logical keys, unquantised: stored value times scale, in the new keys' own dtype.
  const auto encode = [&](const std::vector<char>& rows, int dim, float scale,
                          const std::vector<float>& per_head, TensorView& view,
                          GuardedMemory& to) -> Status {
    std::int64_t tokens = 0;
    for (const Step::Part& part : step.parts) tokens += part.num_rows;
    view = token_view(dtype, tokens, spec.num_kv_heads, dim, case_.strided);
    std::vector<char> image(token_bytes(view), static_cast<char>(kNan));
    std::int64_t t = 0;
    for (const Step::Part& part : step.parts) {
      const auto i = static_cast<std::size_t>(part.request);
      const std::int64_t first = problem_.first_key[i] + case_.requests[i].kv_len -
                                 case_.requests[i].qo_len + part.first_row;
      for (std::int32_t r = 0; r < part.num_rows; ++r, ++t)
        for (std::int64_t h = 0; h < spec.num_kv_heads; ++h)
          for (std::int64_t d = 0; d < dim; ++d) {
            const double x = tensor::load_element(rows.data(), spec.kv_dtype,
                                                  ((first + r) * spec.num_kv_heads + h) * dim + d);
            const double factor = per_head.empty() ? scale : per_head[static_cast<std::size_t>(h)];
            tensor::store_element(image.data(), dtype, t * view.stride[0] + h * dim + d,
                                  x * factor);
          }
    }
    auto memory_made = GuardedMemory::make(memory(), image.size(), kNan);
    if (!memory_made.ok()) return memory_made.status();
    to = std::move(*memory_made);
    view.data = to.data();
    return to.upload(image);
  };
  if (Status s = encode(problem_.k, spec.head_dim_qk, problem_.k_scale, problem_.k_scales,
                        made->call.k, made->k);
      !s.ok())
    return s;
  if (apart(case_)) {
    if (Status s = encode(problem_.v, spec.head_dim_vo, problem_.v_scale, problem_.v_scales,
                          made->call.v, made->v);
        !s.ok())
      return s;
  }
  std::vector<std::int64_t> slots;
  for (const Step::Part& part : step.parts) {
    const auto i = static_cast<std::size_t>(part.request);
    const std::int64_t first = case_.requests[i].kv_len - case_.requests[i].qo_len + part.first_row;
    for (std::int64_t j = first; j < first + part.num_rows; ++j)
      slots.push_back(std::int64_t{pages_[i][static_cast<std::size_t>(j / case_.page_size)]} *
                          case_.page_size +
                      j % case_.page_size);
  }
  std::vector<char> bytes(slots.size() * sizeof(std::int64_t));
  std::memcpy(bytes.data(), slots.data(), bytes.size());
  auto memory_made = GuardedMemory::make(memory(), bytes.size(), 0);
  if (!memory_made.ok()) return memory_made.status();
  made->slots = std::move(*memory_made);
  if (Status s = made->slots.upload(bytes); !s.ok()) return s;
  made->call.slot_mapping = {reinterpret_cast<const std::int64_t*>(made->slots.data()),
                             slots.size()};
  if (Status s = append_compressed(step, dtype, *made); !s.ok()) return s;
  if (Status s = append_sparse(step, dtype, *made); !s.ok()) return s;
  return made;
}

Result<std::vector<char>> Stage::stored_rows(std::int32_t request, std::int32_t j, bool values) {
  const auto i = static_cast<std::size_t>(request);
  const std::int64_t page = pages_[i][static_cast<std::size_t>(j / case_.page_size)];
  const TensorView& cache = values ? base_call_.v_cache : base_call_.k_cache;
  const auto element = static_cast<std::int64_t>(size_of(case_.spec.kv_dtype));
  const auto width = static_cast<std::size_t>(row_bytes(values));
  std::vector<char> rows(width * static_cast<std::size_t>(case_.spec.num_kv_heads));
  for (std::int64_t h = 0; h < case_.spec.num_kv_heads; ++h)
    if (Status s = memory().copy_out(rows.data() + static_cast<std::size_t>(h) * width,
                                     static_cast<char*>(cache.data) +
                                         row_offset(values, page, j % case_.page_size, h) * element,
                                     width);
        !s.ok())
      return s;
  return rows;
}

std::int64_t Stage::row_bytes(bool values) const {
  if (case_.layout == KvLayout::mla_latent_fp8) return tensor::kMlaLatentFp8TokenBytes;
  const AttentionSpec& spec = case_.spec;
  return (values ? spec.head_dim_vo : spec.head_dim_qk) *
         static_cast<std::int64_t>(size_of(spec.kv_dtype));
}

std::vector<char> Stage::wanted_rows(std::int32_t request, std::int32_t j, bool values) const {
  const std::vector<char>& rows = values ? problem_.v : problem_.k;
  const auto key_bytes = static_cast<std::ptrdiff_t>(rows.size()) / problem_.num_keys();
  const char* const key =
      rows.data() + (problem_.first_key[static_cast<std::size_t>(request)] + j) * key_bytes;
  if (case_.layout != KvLayout::mla_latent_fp8) return {key, key + key_bytes};
  std::vector<char> token(static_cast<std::size_t>(tensor::kMlaLatentFp8TokenBytes));
  pack_latent(key, token.data());
  return token;
}

Result<std::vector<char>> Stage::pool_bytes() { return pool_.download(); }

}  // namespace attune::conformance
