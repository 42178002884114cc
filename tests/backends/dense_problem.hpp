// One batch of dense attention with its tensors, solved by any backend: random values over awkward
// shapes, with NaN in each byte that must not be read.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <attune/backend.hpp>
#include <attune/validate.hpp>

#include "tensor/element.hpp"
#include "tensor/kv_layout.hpp"

namespace attune::backends::test {

struct Request {
  std::int32_t qo_len;
  std::int32_t kv_len;
};

struct Case {
  AttentionSpec spec{};
  std::vector<Request> requests;
  KvSource source = KvSource::paged;
  KvLayout layout = KvLayout::nhd;
  std::int32_t page_size = 16;
  BatchForm form = BatchForm::extend;
  bool windowed_pool = false;  ///< kv_offset beyond 0
  std::int32_t poisoned = 0;   ///< this many last keys and values of each request are NaN
  unsigned seed = 1;
};

inline AttentionSpec dense_spec(int qo_heads, int kv_heads, int dim_qk, int dim_vo, DType dtype) {
  return {.num_qo_heads = qo_heads,
          .num_kv_heads = kv_heads,
          .head_dim_qk = dim_qk,
          .head_dim_vo = dim_vo,
          .sm_scale = 1.0f / std::sqrt(static_cast<float>(dim_qk)),
          .q_dtype = dtype,
          .o_dtype = dtype,
          .kv_dtype = dtype};
}

inline AttentionSpec mla_spec(int heads, DType dtype) {
  AttentionSpec spec = dense_spec(heads, 1, 576, 512, dtype);
  spec.variant = Variant::mla;
  spec.kv_lora_rank = 512;
  spec.qk_rope_head_dim = 64;
  spec.sm_scale = 0.1352338f;
  return spec;
}

struct alignas(256) Block256 {
  std::byte bytes[256];
};

/// One case's tensors; the same bytes serve every backend.
class Problem {
 public:
  explicit Problem(const Case& c) : case_(c), random_(c.seed) {
    lay_out_batch();
    fill_tensors();
  }

  struct Answer {
    std::vector<double> o;
    std::vector<float> lse;
    std::vector<char> o_bytes;
  };

  Answer solve(BackendFactory make, const BackendContext& base) {
    BackendContext context = base;
    context.spec = case_.spec;
    context.page_size = case_.page_size;
    context.kv_layout = case_.layout;
    auto backend = make(context);
    EXPECT_TRUE(backend.ok()) << backend.status().text();
    if (!backend.ok()) return {};
    const std::size_t bytes = (*backend)->workspace_size(attention::bounds_of(batch_)).device_bytes;
    std::vector<Block256> memory(bytes / 256 + 1);
    std::memset(static_cast<void*>(memory.data()), 0xff, memory.size() * 256);
    if (bytes > 0) {
      EXPECT_FALSE(
          (*backend)->plan(batch_, {.device = memory.data(), .device_bytes = bytes - 1}, {}).ok());
    }
    auto plan = (*backend)->plan(batch_, {.device = memory.data(), .device_bytes = bytes}, {});
    EXPECT_TRUE(plan.ok()) << plan.status().text();
    if (!plan.ok()) return {};

    const AttentionSpec& spec = case_.spec;
    const std::int64_t tokens = batch_.num_qo_tokens();
    const std::int64_t outputs = tokens * spec.num_qo_heads * spec.head_dim_vo;
    Answer answer;
    answer.o_bytes.assign(static_cast<std::size_t>(outputs) * size_of(spec.o_dtype) + 1,
                          static_cast<char>(0xff));
    answer.lse.assign(static_cast<std::size_t>(tokens * spec.num_qo_heads) + 1, 12345.0f);
    LayerCall call = call_;
    call.o = TensorView::dense(answer.o_bytes.data(), spec.o_dtype,
                               {tokens, spec.num_qo_heads, spec.head_dim_vo});
    call.lse = TensorView::dense(answer.lse.data(), DType::f32, {tokens, spec.num_qo_heads});
    const Status status = (*backend)->run(**plan, call, {});
    EXPECT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(answer.o_bytes.back(), static_cast<char>(0xff));
    EXPECT_EQ(answer.lse.back(), 12345.0f);
    EXPECT_EQ(static_cast<int>(reinterpret_cast<unsigned char*>(memory.data())[bytes]), 0xff);
    for (std::int64_t i = 0; i < outputs; ++i)
      answer.o.push_back(tensor::load_element(answer.o_bytes.data(), spec.o_dtype, i));
    return answer;
  }

  /// Its queries become the last ones of `other`, a problem of more tokens.
  void take_last_queries(const Problem& other) {
    std::copy(other.q_.end() - static_cast<std::ptrdiff_t>(q_.size()), other.q_.end(), q_.begin());
  }

  [[nodiscard]] const BatchView& batch() const { return batch_; }

 private:
  void lay_out_batch() {
    qo_indptr_ = {0};
    kv_indptr_ = {0};
    for (const Request& r : case_.requests) {
      qo_indptr_.push_back(qo_indptr_.back() + r.qo_len);
      const std::int32_t pages = (r.kv_len + case_.page_size - 1) / case_.page_size;
      kv_indptr_.push_back(kv_indptr_.back() +
                           (case_.source == KvSource::ragged ? r.kv_len : pages));
      last_page_len_.push_back(pages == 0 ? 0 : r.kv_len - (pages - 1) * case_.page_size);
      kv_offset_.push_back(case_.windowed_pool ? 3 * case_.page_size : 0);
    }
    batch_ = {.form = case_.form,
              .source = case_.source,
              .page_size = case_.page_size,
              .qo_indptr = qo_indptr_,
              .kv_indptr = kv_indptr_};
    if (case_.windowed_pool) batch_.kv_offset = kv_offset_;
    if (case_.source == KvSource::paged) {
      kv_indices_.resize(static_cast<std::size_t>(kv_indptr_.back()));
      std::iota(kv_indices_.begin(), kv_indices_.end(), 1);
      std::shuffle(kv_indices_.begin(), kv_indices_.end(), random_);
      batch_.kv_indices = kv_indices_;
      batch_.kv_last_page_len = last_page_len_;
    }
    if (case_.spec.custom_mask) {
      mask_indptr_ = {0};
      for (const Request& r : case_.requests)
        mask_indptr_.push_back(mask_indptr_.back() +
                               (static_cast<std::int64_t>(r.qo_len) * r.kv_len + 7) / 8);
      mask_.resize(static_cast<std::size_t>(mask_indptr_.back()));
      for (auto& byte : mask_) byte = static_cast<std::uint8_t>(random_());
      batch_.custom_mask = mask_;
      batch_.custom_mask_indptr = mask_indptr_;
    }
  }

  /// Values that every dtype holds well, some of them large.
  double value() {
    const double x = std::normal_distribution<double>(0.0, 1.0)(random_);
    return random_() % 64 == 0 ? 4.0 * x : x;
  }

  /// Queries and each request's keys have generators of their own: a request's bytes do not depend
  /// on its neighbours.
  void fill_tensors() {
    const AttentionSpec& spec = case_.spec;
    random_.seed(case_.seed + 1);
    const std::int64_t tokens = batch_.num_qo_tokens();
    q_.resize(static_cast<std::size_t>(tokens * spec.num_qo_heads * spec.head_dim_qk) *
                  size_of(spec.q_dtype) +
              1);
    for (std::int64_t i = 0; i < tokens * spec.num_qo_heads * spec.head_dim_qk; ++i)
      tensor::store_element(q_.data(), spec.q_dtype, i, value());
    call_.q =
        TensorView::dense(q_.data(), spec.q_dtype, {tokens, spec.num_qo_heads, spec.head_dim_qk});
    if (case_.source == KvSource::ragged) {
      fill_ragged();
    } else {
      fill_pages();
    }
    const auto heads = static_cast<std::size_t>(spec.num_qo_heads);
    for (std::size_t h = 0; h < heads; ++h) {
      sinks_.push_back(static_cast<float>(value()));
      slopes_.push_back(h % 3 == 0 ? 0.0f : 0.1f / static_cast<float>(h + 1));
    }
    for (int h = 0; h < spec.num_kv_heads; ++h) {
      k_scales_.push_back(0.5f + 0.1f * static_cast<float>(h));
      v_scales_.push_back(1.5f - 0.1f * static_cast<float>(h));
    }
    if (spec.sinks) call_.sinks = sinks_.data();
    if (spec.alibi) call_.alibi_slopes = slopes_.data();
    if (spec.kv_scales) {
      call_.q_scale = 0.75f;
      call_.k_scale = call_.v_scale = 1.25f;
    }
    if (spec.per_head_scales) {
      call_.k_scale_per_head = k_scales_.data();
      call_.v_scale_per_head = v_scales_.data();
    }
  }

  void store_row(char* pool, std::int64_t at, int width, bool poisoned) {
    for (int d = 0; d < width; ++d)
      tensor::store_element(pool, case_.spec.kv_dtype, at + d, poisoned ? std::nan("") : value());
  }

  void fill_ragged() {
    const AttentionSpec& spec = case_.spec;
    const std::int64_t tokens = kv_indptr_.back();
    const auto make = [&](std::vector<char>& rows, int width) {
      rows.resize(static_cast<std::size_t>(tokens * spec.num_kv_heads * width) *
                      size_of(spec.kv_dtype) +
                  1);
      std::int64_t row = 0;
      for (const Request& r : case_.requests)
        for (std::int64_t i = 0; i < r.kv_len * spec.num_kv_heads; ++i, row += width)
          store_row(rows.data(), row, width, i >= (r.kv_len - case_.poisoned) * spec.num_kv_heads);
      return TensorView::dense(rows.data(), spec.kv_dtype, {tokens, spec.num_kv_heads, width});
    };
    call_.k = make(k_pool_, spec.head_dim_qk);
    if (spec.variant != Variant::mla) call_.v = make(v_pool_, spec.head_dim_vo);
  }

  void fill_pages() {
    const AttentionSpec& spec = case_.spec;
    const tensor::KvShape shape{.layout = case_.layout,
                                .dtype = spec.kv_dtype,
                                .page_size = case_.page_size,
                                .num_kv_heads = spec.num_kv_heads,
                                .head_dim_qk = spec.head_dim_qk,
                                .head_dim_vo = spec.head_dim_vo};
    const std::int64_t pages = kv_indptr_.back() + 2;
    // Every byte 0xff: NaN in the float formats.
    k_pool_.assign(static_cast<std::size_t>(pages * tensor::k_page_bytes(shape)) + 1,
                   static_cast<char>(0xff));
    v_pool_.assign(static_cast<std::size_t>(pages * tensor::v_page_bytes(shape)) + 1,
                   static_cast<char>(0xff));
    call_.k_cache = tensor::k_cache_view(k_pool_.data(), shape, pages);
    const bool apart = tensor::stores_v_apart(case_.layout);
    if (apart) call_.v_cache = tensor::v_cache_view(v_pool_.data(), shape, pages);
    const bool hnd = case_.layout == KvLayout::hnd;
    for (std::size_t i = 0; i < case_.requests.size(); ++i) {
      random_.seed(case_.seed + 100 * static_cast<unsigned>(i + 1));
      for (std::int32_t j = 0; j < case_.requests[i].kv_len; ++j) {
        const bool poisoned = j >= case_.requests[i].kv_len - case_.poisoned;
        const std::int64_t page =
            kv_indices_[static_cast<std::size_t>(kv_indptr_[i] + j / case_.page_size)];
        const std::int64_t token = j % case_.page_size;
        for (int h = 0; h < spec.num_kv_heads; ++h) {
          const auto at = [&](const TensorView& view) {
            if (!apart) return page * view.stride[0] + token * view.stride[1];
            return page * view.stride[0] + token * view.stride[hnd ? 2 : 1] +
                   h * view.stride[hnd ? 1 : 2];
          };
          store_row(k_pool_.data(), at(call_.k_cache), spec.head_dim_qk, poisoned);
          if (apart) store_row(v_pool_.data(), at(call_.v_cache), spec.head_dim_vo, poisoned);
        }
      }
    }
  }

  Case case_;
  std::mt19937 random_;
  std::vector<std::int32_t> qo_indptr_, kv_indptr_, kv_indices_, last_page_len_;
  std::vector<std::int64_t> kv_offset_, mask_indptr_;
  std::vector<std::uint8_t> mask_;
  std::vector<char> q_, k_pool_, v_pool_;
  std::vector<float> sinks_, slopes_, k_scales_, v_scales_;
  BatchView batch_;
  LayerCall call_;
};

inline double tolerance(const AttentionSpec& spec) {
  const bool narrow = spec.q_dtype == DType::bf16 || spec.o_dtype == DType::bf16;
  if (narrow) return 1.5e-2;
  return spec.o_dtype == DType::f16 ? 2e-3 : 2e-5;
}

/// `bound` is relative to the largest output.
inline void expect_close(const Problem::Answer& mine, const Problem::Answer& right, double bound,
                         double lse_bound = 2e-5) {
  ASSERT_EQ(mine.o.size(), right.o.size());
  double scale = 1.0;
  for (double x : right.o)
    if (x == x) scale = std::max(scale, std::fabs(x));
  int bad = 0;
  for (std::size_t i = 0; i < right.o.size() && bad < 3; ++i) {
    if (std::isnan(mine.o[i]) && std::isnan(right.o[i])) continue;
    if (!(std::fabs(mine.o[i] - right.o[i]) <= bound * scale)) {
      ADD_FAILURE() << "o[" << i << "] = " << mine.o[i] << ", want " << right.o[i];
      ++bad;
    }
  }
  for (std::size_t i = 0; i + 1 < right.lse.size() && bad < 6; ++i) {
    const bool same = mine.lse[i] == right.lse[i] ||
                      (std::isnan(mine.lse[i]) && std::isnan(right.lse[i])) ||
                      std::fabs(mine.lse[i] - right.lse[i]) <=
                          lse_bound * std::max(1.0f, std::fabs(right.lse[i]));
    if (!same) {
      ADD_FAILURE() << "lse[" << i << "] = " << mine.lse[i] << ", want " << right.lse[i];
      ++bad;
    }
  }
}

}  // namespace attune::backends::test
