// Rows copied from pages, held to the cache number by number: any page size, both layouts, a count
// that the device holds, fp8 numbers of every kind, and nothing written behind the last row.
#include "kernels/gather_kv/sm80/launch.hpp"

#include <gtest/gtest.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace attune::kernels::gather_kv::sm80 {
namespace {

constexpr std::uint16_t kUnwritten = 0x7bcd;

struct Shape {
  int page = 1;
  bool hnd = false;
  bool paged = true;
  std::uint32_t rows = 0;
  int heads = 3;
  int dim_qk = 64;
  int dim_vo = 64;
};

template <class Out>
float as_float(std::uint16_t bits) {
  Out x;
  std::memcpy(&x, &bits, sizeof(x));
  return static_cast<float>(x);
}

/// K or V; bytes of In run through every value.
template <class In, class Out>
class Cache {
 public:
  Cache(const Shape& s, std::int64_t pages, int dim, unsigned first)
      : s_(s),
        dim_(dim),
        in_(static_cast<std::size_t>(pages * s.page * s.heads * dim)),
        out_(static_cast<std::size_t>((s.rows + 2) * static_cast<unsigned>(s.heads * dim)),
             kUnwritten) {
    for (std::size_t i = 0; i < in_.size(); ++i) {
      const auto bits = static_cast<std::uint16_t>((first + i) * 40503u >> 3);
      std::memcpy(&in_[i], &bits, sizeof(In));  // the low byte, where In is one
    }
  }
  [[nodiscard]] Side side() {
    const std::int64_t row = dim_;
    return {.in = in_.data(),
            .page_stride = row * s_.page * s_.heads,
            .token_stride = s_.hnd ? row : row * s_.heads,
            .head_stride = s_.hnd ? row * s_.page : row,
            .head_dim = dim_,
            .out = out_.data()};
  }
  void expect_rows(const std::vector<std::int32_t>& indices) {
    const Side side = this->side();
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / (s_.heads * dim_);
      const auto head = static_cast<std::int64_t>(i) / dim_ % s_.heads;
      if (row >= s_.rows) {
        ASSERT_EQ(out_[i], kUnwritten) << "behind the last row, at " << i;
        continue;
      }
      const std::int64_t page = s_.paged ? indices[static_cast<std::size_t>(row / s_.page)] : row;
      const auto at = page * side.page_stride + row % s_.page * side.token_stride +
                      head * side.head_stride + static_cast<std::int64_t>(i) % dim_;
      const In stored = in_[static_cast<std::size_t>(at)];
      if constexpr (sizeof(In) == 2) {
        ASSERT_EQ(out_[i], stored) << "row " << row << " head " << head;
      } else {
        const float want = static_cast<float>(stored);
        const float got = as_float<Out>(out_[i]);
        ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
            << "row " << row << " head " << head << ": " << got << " for " << want;
      }
    }
  }

 private:
  Shape s_;
  int dim_;
  std::vector<In> in_;
  std::vector<std::uint16_t> out_;
};

template <class In, class Out>
void expect_copies(const Shape& s, DType in, DType out) {
  const auto entries = static_cast<std::int32_t>(s.rows) / s.page;
  std::vector<std::int32_t> indices;
  for (std::int32_t i = 0; i < entries; ++i) indices.push_back((i * 7 + 3) % (entries + 5));
  const std::int64_t pages = entries + 5;
  Cache<In, Out> k(s, pages, s.dim_qk, 1);
  Cache<In, Out> v(s, pages, s.dim_vo, 77);
  const Status launched = launch({.k = k.side(),
                                  .v = v.side(),
                                  .in_dtype = in,
                                  .out_dtype = out,
                                  .kv_indices = s.paged ? indices.data() : nullptr,
                                  .page_size = s.page,
                                  .num_pages = pages,
                                  .num_heads = s.heads,
                                  .num_rows = &s.rows},
                                 2, nullptr);
  ASSERT_TRUE(launched.ok()) << launched.text();
  k.expect_rows(indices);
  v.expect_rows(indices);
}

TEST(GatherKv, RowsAreTheCachesNumbers) {
  const Shape shapes[] = {{.page = 1, .rows = 37},
                          {.page = 1, .paged = false, .rows = 19, .heads = 1},
                          {.page = 5, .hnd = true, .rows = 45},
                          {.page = 16, .rows = 160, .heads = 8, .dim_qk = 192, .dim_vo = 128},
                          {.page = 64, .hnd = true, .rows = 192, .heads = 2, .dim_qk = 128},
                          {.page = 1, .rows = 0}};
  for (const Shape& s : shapes) {
    SCOPED_TRACE(s.page);
    expect_copies<std::uint16_t, __nv_bfloat16>(s, DType::bf16, DType::bf16);
    expect_copies<__nv_fp8_e4m3, __nv_bfloat16>(s, DType::fp8_e4m3, DType::bf16);
    expect_copies<__nv_fp8_e4m3, __half>(s, DType::fp8_e4m3, DType::f16);
    expect_copies<__nv_fp8_e5m2, __nv_bfloat16>(s, DType::fp8_e5m2, DType::bf16);
    expect_copies<__nv_fp8_e5m2, __half>(s, DType::fp8_e5m2, DType::f16);
  }
}

TEST(GatherKv, RefusesWhatItCannotLoadOrWiden) {
  alignas(16) static std::uint16_t cache[64]{};
  const std::uint32_t none = 0;
  Params p{.k = {.in = cache, .head_dim = 64, .out = cache},
           .v = {.in = cache, .head_dim = 64, .out = cache},
           .num_rows = &none};
  EXPECT_TRUE(launch(p, 1, nullptr).ok());
  p.k.in = cache + 1;
  EXPECT_EQ(launch(p, 1, nullptr).code(), StatusCode::invalid_argument);
  p.k.in = cache;
  p.in_dtype = DType::i8;
  EXPECT_EQ(launch(p, 1, nullptr).code(), StatusCode::unsupported);
}

}  // namespace
}  // namespace attune::kernels::gather_kv::sm80
