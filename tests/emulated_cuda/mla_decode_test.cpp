// The latent kernels, block by block on the emulated machine, held against double precision:
// awkward lengths, heads and query tokens, pages in any order, NaN in every byte that must not be
// read, cuts by any number of thread blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <attune/batch.hpp>

#include "attention/packed_latent.hpp"
#include "base/math.hpp"
#include "kernels/mla_decode/sm80/launch.hpp"
#include "kernels/mla_decode/sm90/launch.hpp"
#include "kernels/tensor_map/tensor_map.hpp"
#include "machine.hpp"
#include "plan/latent_work.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::kernels::mla_decode {
namespace {

namespace packed = attention::packed_latent;

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float x;
  std::memcpy(&x, &wide, sizeof(x));
  return x;
}
std::uint16_t to_bf16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
constexpr std::uint16_t kNan = 0x7fff;

struct Problem {
  std::string name;
  int heads = 128;
  std::vector<std::int32_t> qo;
  std::vector<std::int32_t> kv;
  int workers = 4;
  bool causal = true;
  std::int32_t page_size = sm90::kKeys;
  bool sm80 = false;    ///< else Hopper's kernel, which gathers where a page is no tile
  sm80::Dims dims{};    ///< of sm80's kernel
  bool packed = false;  ///< 656-byte tokens
  std::int64_t packed_token = packed::kTokenBytes;  ///< from one to the next
  bool e4m3 = false;                                ///< queries and 576-byte tokens
  std::int32_t least_rows = sm90::kFewRows;         ///< of Hopper's kernels
};

struct Result {
  std::vector<std::uint16_t> o;
  std::vector<float> lse;
  int cuts = 0;
};

/// One problem's memory. Pages lie in any order, with unused ones between; a row of q is longer
/// than its columns, so that strides are not what dense tensors have.
class Case {
 public:
  explicit Case(const Problem& problem)
      : p_(problem),
        page_size_(problem.page_size),
        dim_qk_(problem.dims.qk),
        dim_vo_(problem.dims.vo),
        query_stride_(problem.dims.qk + (problem.e4m3 ? 16 : 8)) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < p_.qo.size(); ++i) {
      qo_indptr_.push_back(qo_indptr_.back() + p_.qo[i]);
      const std::int32_t pages = base::ceil_div(p_.kv[i], page_size_);
      kv_indptr_.push_back(kv_indptr_.back() + pages);
      last_.push_back(pages == 0 ? 0 : p_.kv[i] - (pages - 1) * page_size_);
    }
    for (std::int32_t n = 0; n < kv_indptr_.back(); ++n) indices_.push_back(2 * n + 1);
    std::shuffle(indices_.begin(), indices_.end(), random);
    num_pages_ = 2 * kv_indptr_.back() + 2;
    cache_.assign(static_cast<std::size_t>(num_pages_ * page_size_ * dim_qk_), kNan);
    for (std::size_t i = 0; i < p_.kv.size(); ++i)
      for (std::int32_t j = 0; j < p_.kv[i]; ++j)
        for (int d = 0; d < dim_qk_; ++d) *key(i, j, d) = to_bf16(normal(random));
    if (p_.packed) pack_keys(random);
    q_.assign(tokens() * static_cast<std::size_t>(p_.heads * query_stride_), kNan);
    for (std::size_t row = 0; row < rows(); ++row)
      for (int d = 0; d < dim_qk_; ++d)
        q_[row * query_stride_ + static_cast<std::size_t>(d)] = to_bf16(normal(random));
    if (p_.e4m3) {
      q_bytes_ = to_bytes(q_);
      packed_ = to_bytes(cache_);
    }
  }

  Result run(emulated::Rules rules) {
    emulated::rules() = rules;
    BatchView batch{.form = BatchForm::extend,
                    .page_size = page_size_,
                    .qo_indptr = qo_indptr_,
                    .kv_indptr = kv_indptr_,
                    .kv_indices = indices_,
                    .kv_last_page_len = last_};
    const bool gather = p_.sm80;
    const sm80::Instance gathering = sm80::instance_of(DType::bf16, p_.dims, p_.heads, 227 * 1024);
    const plan::LatentRules latent{.num_heads = p_.heads,
                                   .causal = p_.causal,
                                   .meetings = !gather,
                                   .rows = gather ? gathering.rows : sm90::kRows,
                                   .least_rows = gather ? gathering.rows : p_.least_rows,
                                   .tile = gather ? sm80::kKeys : sm90::kKeys,
                                   .workers = p_.workers,
                                   .item_tiles = 1,
                                   .least_tiles = 1};
    const plan::LatentShape shape = plan::latent_shape(latent, batch);
    plan::LatentList list;
    plan::list_latent_work(batch, latent, shape, list);
    const attention::LatentWork work{.num_items = static_cast<std::int32_t>(list.items.size()),
                                     .num_merges = static_cast<std::int32_t>(list.merges.size()),
                                     .most_parts = list.most_parts};
    const std::size_t blocks = static_cast<std::size_t>(list.places * shape.lanes * shape.rows);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> partial_o(blocks * dim_vo_ + 1, nan);
    std::vector<float> partial_maximum(blocks + 1, nan);
    std::vector<float> partial_sum(blocks + 1, nan);
    Result result{.o = std::vector<std::uint16_t>(rows() * dim_vo_ + 8, kNan),
                  .lse = std::vector<float>(rows() + 1, nan),
                  .cuts = work.num_merges + list.meetings};
    std::vector<std::int32_t> arrivals(static_cast<std::size_t>(list.meetings * shape.lanes), 0);
    const std::int64_t token_stride = p_.packed ? p_.packed_token : dim_qk_;
    const bool bytes = p_.packed || p_.e4m3;
    const Params params{.q = p_.e4m3 ? static_cast<const void*>(q_bytes_.data()) : q_.data(),
                        .q_tokens = static_cast<std::int64_t>(tokens()),
                        .q_token_stride = std::int64_t{p_.heads} * query_stride_,
                        .q_head_stride = query_stride_,
                        .k = bytes ? static_cast<const void*>(packed_.data()) : cache_.data(),
                        .num_pages = num_pages_,
                        .k_page_stride = page_size_ * token_stride,
                        .k_token_stride = token_stride,
                        .o = result.o.data(),
                        .o_token_stride = std::int64_t{p_.heads} * dim_vo_,
                        .o_head_stride = dim_vo_,
                        .lse = result.lse.data(),
                        .lse_token_stride = p_.heads,
                        .lse_head_stride = 1,
                        .work = &work,
                        .groups = list.groups.data(),
                        .items = list.items.data(),
                        .merges = list.merges.data(),
                        .kv_indices = indices_.data(),
                        .arrivals = arrivals.data(),
                        .partial_o = partial_o.data(),
                        .partial_maximum = partial_maximum.data(),
                        .partial_sum = partial_sum.data(),
                        .lanes = shape.lanes,
                        .num_heads = p_.heads,
                        .block_rows = shape.rows,
                        .heads_per_block = shape.heads_per_block,
                        .tokens_per_block = shape.tokens_per_block,
                        .head_blocks = shape.head_blocks,
                        .page_size = page_size_,
                        .causal = p_.causal ? 1 : 0,
                        .dim_qk = dim_qk_,
                        .dim_vo = dim_vo_,
                        .scale_log2 = kScale * 1.44269504f,
                        .v_scale = kValueScale};
    const Grid grid{.blocks = plan::latent_groups(latent, shape) * shape.lanes, .merge_blocks = 3};
    Status status;
    if (gather) {
      EXPECT_TRUE(sm80::prepare(gathering).ok());
      status = sm80::launch(gathering, grid, params, false, nullptr);
    } else {
      const sm90::Instance hopper = p_.e4m3 ? sm90::e4m3_instance(shape.rows)
                                    : p_.packed
                                        ? sm90::packed_instance(sm90::KeySource::packed, shape.rows)
                                        : sm90::instance_of(DType::bf16, page_size_, shape.rows);
      EXPECT_TRUE(sm90::prepare(hopper).ok());
      const auto encoder = tensor_map::encoder();
      EXPECT_TRUE(encoder.ok());
      status = sm90::launch(hopper, *encoder, grid, params, nullptr);
    }
    EXPECT_TRUE(status.ok()) << status.text();
    for (const std::int32_t n : arrivals) EXPECT_EQ(n, 0) << "counters are left as they were";
    for (std::size_t i = rows() * dim_vo_; i < result.o.size(); ++i) EXPECT_EQ(result.o[i], kNan);
    EXPECT_TRUE(std::isnan(result.lse.back()));
    return result;
  }

  void check(const Result& result) const {
    double worst = 0;
    double worst_lse = 0;
    std::vector<double> logits;
    std::vector<double> o(dim_vo_);
    for (std::size_t i = 0; i < p_.qo.size(); ++i)
      for (std::int32_t t = 0; t < p_.qo[i]; ++t)
        for (int h = 0; h < p_.heads; ++h) {
          const std::size_t row =
              static_cast<std::size_t>(qo_indptr_[i] + t) * static_cast<std::size_t>(p_.heads) +
              static_cast<std::size_t>(h);
          const std::int32_t keys = p_.causal ? p_.kv[i] - p_.qo[i] + t + 1 : p_.kv[i];
          logits.clear();
          double top = -std::numeric_limits<double>::infinity();
          for (std::int32_t j = 0; j < keys; ++j) {
            double dot = 0;
            for (int d = 0; d < dim_qk_; ++d)
              dot += static_cast<double>(
                         from_bf16(q_[row * query_stride_ + static_cast<std::size_t>(d)])) *
                     from_bf16(*key(i, j, d));
            logits.push_back(dot * kScale);
            top = std::max(top, logits.back());
          }
          double sum = 0;
          std::fill(o.begin(), o.end(), 0.0);
          for (std::int32_t j = 0; j < keys; ++j) {
            const double weight = std::exp(logits[static_cast<std::size_t>(j)] - top);
            sum += weight;
            for (std::size_t d = 0; d < dim_vo_; ++d)
              o[d] += weight * from_bf16(*key(i, j, static_cast<int>(d)));
          }
          if (keys <= 0) {
            EXPECT_EQ(result.lse[row], -std::numeric_limits<float>::infinity()) << p_.name;
          } else {
            worst_lse = std::max(worst_lse, std::abs(result.lse[row] - (top + std::log(sum))));
          }
          for (std::size_t d = 0; d < dim_vo_; ++d) {
            const double want = keys <= 0 ? 0.0 : kValueScale * o[d] / sum;
            const double error = std::abs(from_bf16(result.o[row * dim_vo_ + d]) - want);
            worst = std::isnan(error) ? error : std::max(worst, error);
          }
          ASSERT_FALSE(std::isnan(worst))
              << p_.name << ": request " << i << " token " << t << " head " << h;
        }
    EXPECT_LT(worst, 2e-2) << p_.name;
    EXPECT_LT(worst_lse, 1e-3) << p_.name;
  }

 private:
  static constexpr float kScale = 0.05f;
  static constexpr float kValueScale = 1.5f;

  [[nodiscard]] std::size_t tokens() const { return static_cast<std::size_t>(qo_indptr_.back()); }
  [[nodiscard]] std::size_t rows() const { return tokens() * static_cast<std::size_t>(p_.heads); }
  [[nodiscard]] const std::uint16_t* key(std::size_t request, std::int32_t j, int d) const {
    const std::int32_t page =
        indices_[static_cast<std::size_t>(kv_indptr_[request] + j / page_size_)];
    return &cache_[static_cast<std::size_t>(
        (std::int64_t{page} * page_size_ + j % page_size_) * dim_qk_ + d)];
  }
  [[nodiscard]] std::uint16_t* key(std::size_t request, std::int32_t j, int d) {
    return const_cast<std::uint16_t*>(std::as_const(*this).key(request, j, d));
  }

  /// Numbers as e4m3 has them, which `numbers` then are too; NaN stays.
  [[nodiscard]] static std::vector<std::uint8_t> to_bytes(std::vector<std::uint16_t>& numbers) {
    std::vector<std::uint8_t> bytes;
    for (std::uint16_t& x : numbers) {
      bytes.push_back(x == kNan ? 0xff : tensor::round_to<tensor::E4m3>(from_bf16(x)).bits);
      if (x != kNan) x = to_bf16(tensor::to_float(tensor::E4m3{bytes.back()}));
    }
    return bytes;
  }

  /// Tokens in use become packed ones, and what they say is what is expected.
  void pack_keys(std::mt19937& random) {
    packed_.assign(static_cast<std::size_t>(num_pages_ * page_size_ * p_.packed_token), 0xff);
    // Not only powers of two, but of so few bits that what a token says is exact in bf16 and fp16.
    std::uniform_int_distribution<int> quarters(4, 7);
    std::uniform_int_distribution<int> exponents(-10, -8);
    for (std::size_t i = 0; i < p_.kv.size(); ++i)
      for (std::int32_t j = 0; j < p_.kv[i]; ++j) {
        std::uint16_t* const row = key(i, j, 0);
        std::uint8_t* const token =
            &packed_[static_cast<std::size_t>((row - cache_.data()) / kDimQk * p_.packed_token)];
        for (int block = 0; block < packed::kScales; ++block) {
          const float scale = std::ldexp(static_cast<float>(quarters(random)), exponents(random));
          std::memcpy(token + packed::kScalesAt + 4 * block, &scale, 4);
          for (int d = packed::kScaleBlock * block; d < packed::kScaleBlock * (block + 1); ++d) {
            token[d] = tensor::round_to<tensor::E4m3>(from_bf16(row[d]) / scale).bits;
            row[d] = to_bf16(tensor::to_float(tensor::E4m3{token[d]}) * scale);
          }
        }
        std::memcpy(token + packed::kRopeAt, row + packed::kLatents, 2 * packed::kRope);
      }
  }

  Problem p_;
  std::int32_t page_size_;
  int dim_qk_;
  int dim_vo_;
  int query_stride_;
  std::vector<std::int32_t> qo_indptr_{0};
  std::vector<std::int32_t> kv_indptr_{0};
  std::vector<std::int32_t> indices_;
  std::vector<std::int32_t> last_;
  std::int64_t num_pages_ = 0;
  std::vector<std::uint16_t> cache_;
  std::vector<std::uint8_t> packed_;
  std::vector<std::uint16_t> q_;
  std::vector<std::uint8_t> q_bytes_;  ///< in e4m3
};

std::vector<Problem> problems() {
  std::vector<Problem> all{
      {.name = "one head block", .heads = 64, .qo = {1}, .kv = {64}, .workers = 1},
      {.name = "lengths",
       .heads = 16,
       .qo = {1, 1, 1, 1, 1},
       .kv = {0, 1, 63, 64, 65},
       .workers = 2},
      {.name = "long among tiny",
       .heads = 16,
       .qo = {1, 1, 1, 1},
       .kv = {3, 700, 1, 5},
       .workers = 5},
      {.name = "two lanes, cut", .heads = 128, .qo = {1, 1}, .kv = {300, 129}, .workers = 6},
      {.name = "pairs of blocks",
       .heads = 128,
       .qo = {1, 2, 0, 3, 1},
       .kv = {0, 700, 5, 64, 1},
       .workers = 5},
      {.name = "two tokens", .heads = 128, .qo = {2, 2}, .kv = {200, 65}, .workers = 4},
      {.name = "four tokens share a block",
       .heads = 16,
       .qo = {4, 3, 4},
       .kv = {190, 66, 2},
       .workers = 3},
      {.name = "mixed", .heads = 20, .qo = {9, 1, 0, 2}, .kv = {70, 130, 64, 64}, .workers = 3},
      {.name = "not causal", .heads = 96, .qo = {3}, .kv = {130}, .workers = 2, .causal = false},
      {.name = "few heads, more pages than the ring holds",
       .heads = 5,
       .qo = {1, 0, 1, 1},
       .kv = {1000, 3, 0, 130},
       .workers = 2},
      {.name = "two tokens of few heads",
       .heads = 16,
       .qo = {2, 1, 2, 0, 2},
       .kv = {400, 66, 2, 9, 1},
       .workers = 5},
      {.name = "three tokens of eight heads, not causal",
       .heads = 8,
       .qo = {3, 1},
       .kv = {200, 65},
       .workers = 2,
       .causal = false},
  };
  // The few rows that a kernel of their own takes, in the large one.
  for (std::size_t i : {1, 2, 10}) {
    Problem p = all[i];
    p.name += " among empty rows";
    p.least_rows = sm90::kRows;
    all.push_back(p);
  }
  // The same with gathered keys, every problem with pages of another size.
  const std::size_t count = all.size();
  for (bool sm80 : {false, true})
    for (std::size_t i = 0; i < count; ++i) {
      Problem p = all[i];
      p.name += sm80 ? " sm80" : " gathered";
      p.page_size = std::vector<std::int32_t>{1, 16, 24, 64, 128}[i % 5];
      if (!sm80 && p.page_size == sm90::kKeys) p.page_size = 3;
      p.sm80 = sm80;
      all.push_back(p);
    }
  for (std::size_t i = 0; i < count; ++i) {
    Problem p = all[i];
    p.name += " packed";
    p.packed = true;
    all.push_back(p);
    p.name = all[i].name + " e4m3";
    p.packed = false;
    p.e4m3 = true;
    all.push_back(p);
  }
  {
    Problem p = all[2];
    p.name = "packed tokens with gaps";
    p.packed = true;
    p.packed_token += 16;
    all.push_back(p);
  }
  // Other widths, of both padded kernels and both heights: rows that end anywhere in a warp's
  // columns.
  for (const sm80::Dims dims : {sm80::Dims{32, 24},
                                {288, 256},
                                {320, 320},
                                {8, 8},
                                {328, 264},
                                {448, 384},
                                {576, 568},
                                {576, 576}})
    for (int heads : {9, 40})
      all.push_back({.name = "width " + std::to_string(dims.qk) + " " + std::to_string(dims.vo) +
                             " of " + std::to_string(heads),
                     .heads = heads,
                     .qo = {1, 3, 0, 1},
                     .kv = {0, 130, 5, 33},
                     .workers = 5,
                     .page_size = 16,
                     .sm80 = true,
                     .dims = dims});
  return all;
}

class MlaDecode : public testing::TestWithParam<std::size_t> {};

TEST_P(MlaDecode, MatchesDoublePrecision) {
  Case one(problems()[GetParam()]);
  const Result early = one.run({.delivery = emulated::Delivery::early, .seed = 0});
  one.check(early);
  const Result late = one.run({.delivery = emulated::Delivery::late, .seed = 3});
  EXPECT_EQ(early.o, late.o) << "the order of threads and copies changes no bit";
  EXPECT_EQ(std::memcmp(early.lse.data(), late.lse.data(), early.lse.size() * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, MlaDecode, testing::Range(std::size_t{0}, problems().size()),
                         [](const testing::TestParamInfo<std::size_t>& at) {
                           std::string name = problems()[at.param].name;
                           std::erase_if(name, [](char c) { return c == ','; });
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST(MlaDecode, AnyCutGivesTheSameRows) {
  Problem p{.name = "any cut", .heads = 16, .qo = {1, 2}, .kv = {450, 330}};
  for (std::int32_t page_size : {sm90::kKeys, 3})
    for (int workers : {1, 2, 3, 7, 16}) {
      p.page_size = page_size;
      p.sm80 = page_size == 3 && workers % 2 == 0;
      p.workers = workers;
      Case one(p);
      const Result result = one.run({.delivery = emulated::Delivery::early, .seed = 0});
      EXPECT_TRUE(workers <= 2 || result.cuts > 0);
      one.check(result);
    }
}

}  // namespace
}  // namespace attune::kernels::mla_decode
