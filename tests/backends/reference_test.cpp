// The oracle is held to numpy (tests/golden/attention.txt) and to cases worked by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <attune/validate.hpp>

#include "attention/lse.hpp"
#include "backends/reference/descriptor.hpp"
#include "tensor/element.hpp"
#include "tensor/kv_layout.hpp"

namespace attune::backends::reference {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

/// One request with everything it needs; values as doubles.
struct Problem {
  AttentionSpec spec{.num_qo_heads = 1,
                     .num_kv_heads = 1,
                     .head_dim_qk = 1,
                     .head_dim_vo = 1,
                     .sm_scale = 1.0f,
                     .q_dtype = DType::f32,
                     .o_dtype = DType::f32,
                     .kv_dtype = DType::f32};
  std::int32_t qo_len = 1;
  std::int32_t kv_len = 0;
  std::int64_t offset = 0;
  std::vector<double> q, k, v;
  std::vector<float> sinks, slopes, k_scales, v_scales;
  std::vector<std::uint8_t> mask;
  float q_scale = 1.0f;
  float k_scale = 1.0f;
  float v_scale = 1.0f;
};

struct Answer {
  std::vector<float> o;
  std::vector<float> lse;
};

/// Where keys lie in memory.
struct Placement {
  KvSource source = KvSource::paged;
  KvLayout layout = KvLayout::nhd;
  std::int32_t page_size = 4;
};

std::vector<char> encode(const std::vector<double>& values, DType dtype) {
  std::vector<char> bytes(values.size() * size_of(dtype) + 1);
  for (std::size_t i = 0; i < values.size(); ++i)
    tensor::store_element(bytes.data(), dtype, static_cast<std::int64_t>(i), values[i]);
  return bytes;
}

/// Every byte 0xff: NaN in all float formats, -1 in int8.
std::vector<char> poison(std::int64_t bytes) {
  return std::vector<char>(static_cast<std::size_t>(bytes), static_cast<char>(0xff));
}

Answer solve(const Problem& p, const Placement& place) {
  AttentionSpec spec = p.spec;
  spec.kv_scales = true;
  spec.custom_mask = !p.mask.empty();
  spec.sinks = !p.sinks.empty();
  spec.alibi = !p.slopes.empty();
  spec.per_head_scales = !p.k_scales.empty();
  const BackendContext context{
      .spec = spec, .page_size = place.page_size, .kv_layout = place.layout};
  auto backend = make(context);
  EXPECT_TRUE(backend.ok()) << backend.status().text();

  // Pages in falling order, every second one unused.
  const std::int32_t pages = (p.kv_len + place.page_size - 1) / place.page_size;
  std::vector<std::int32_t> indices;
  for (std::int32_t i = 0; i < pages; ++i) indices.push_back(2 * (pages - i));
  const std::vector<std::int32_t> qo_indptr{0, p.qo_len};
  const bool ragged = place.source == KvSource::ragged;
  const std::vector<std::int32_t> kv_indptr{0, ragged ? p.kv_len : pages};
  const std::vector<std::int32_t> last{pages == 0 ? 0 : p.kv_len - (pages - 1) * place.page_size};
  const std::vector<std::int64_t> kv_offset{p.offset};
  const std::vector<std::int64_t> mask_indptr{0, static_cast<std::int64_t>(p.mask.size())};
  BatchView batch{.form = BatchForm::extend,
                  .source = place.source,
                  .page_size = place.page_size,
                  .qo_indptr = qo_indptr,
                  .kv_indptr = kv_indptr,
                  .kv_offset = kv_offset};
  if (!ragged) {
    batch.kv_indices = indices;
    batch.kv_last_page_len = last;
  }
  if (spec.custom_mask) {
    batch.custom_mask = p.mask;
    batch.custom_mask_indptr = mask_indptr;
  }

  const tensor::KvShape shape{.layout = place.layout,
                              .dtype = spec.kv_dtype,
                              .page_size = place.page_size,
                              .num_kv_heads = spec.num_kv_heads,
                              .head_dim_qk = spec.head_dim_qk,
                              .head_dim_vo = spec.head_dim_vo};
  const std::int64_t pool = 2 * pages + 2;
  std::vector<char> k_pool = poison(pool * tensor::k_page_bytes(shape));
  std::vector<char> v_pool = poison(pool * tensor::v_page_bytes(shape) + 1);
  std::vector<char> k_rows = encode(p.k, spec.kv_dtype);
  std::vector<char> v_rows = encode(p.v, spec.kv_dtype);
  LayerCall call{.k_cache = tensor::k_cache_view(k_pool.data(), shape, pool),
                 .v_cache = tensor::v_cache_view(v_pool.data(), shape, pool)};
  if (spec.variant == Variant::mla) call.v_cache = {};
  const auto place_row = [&](const TensorView& cache, const std::vector<char>& rows, int width,
                             std::int64_t j, std::int64_t h) {
    const std::int64_t page = indices[static_cast<std::size_t>(j / place.page_size)];
    const std::int64_t in_page = j % place.page_size;
    std::int64_t at = page * cache.stride[0];
    if (place.layout == KvLayout::hnd) {
      at += h * cache.stride[1] + in_page * cache.stride[2];
    } else {
      at += in_page * cache.stride[1] + (cache.rank == 4 ? h * cache.stride[2] : 0);
    }
    const auto size = static_cast<std::int64_t>(size_of(spec.kv_dtype));
    std::memcpy(static_cast<char*>(cache.data) + at * size,
                rows.data() + (j * spec.num_kv_heads + h) * width * size,
                static_cast<std::size_t>(width * size));
  };
  for (std::int64_t j = 0; j < p.kv_len; ++j) {
    for (std::int64_t h = 0; h < spec.num_kv_heads; ++h) {
      place_row(call.k_cache, k_rows, spec.head_dim_qk, j, h);
      if (spec.variant == Variant::gqa) place_row(call.v_cache, v_rows, spec.head_dim_vo, j, h);
    }
  }
  call.k = TensorView::dense(k_rows.data(), spec.kv_dtype,
                             {p.kv_len, spec.num_kv_heads, spec.head_dim_qk});
  call.v = TensorView::dense(v_rows.data(), spec.kv_dtype,
                             {p.kv_len, spec.num_kv_heads, spec.head_dim_vo});

  std::vector<char> q = encode(p.q, DType::f32);
  Answer answer{
      .o = std::vector<float>(
          static_cast<std::size_t>(p.qo_len * spec.num_qo_heads * spec.head_dim_vo), std::nanf("")),
      .lse = std::vector<float>(static_cast<std::size_t>(p.qo_len * spec.num_qo_heads),
                                std::nanf(""))};
  call.q = TensorView::dense(q.data(), DType::f32, {p.qo_len, spec.num_qo_heads, spec.head_dim_qk});
  call.o = TensorView::dense(answer.o.data(), DType::f32,
                             {p.qo_len, spec.num_qo_heads, spec.head_dim_vo});
  call.lse = TensorView::dense(answer.lse.data(), DType::f32, {p.qo_len, spec.num_qo_heads});
  call.q_scale = p.q_scale;
  call.k_scale = p.k_scale;
  call.v_scale = p.v_scale;
  if (spec.sinks) call.sinks = p.sinks.data();
  if (spec.alibi) call.alibi_slopes = p.slopes.data();
  if (spec.per_head_scales) {
    call.k_scale_per_head = p.k_scales.data();
    call.v_scale_per_head = p.v_scales.data();
  }

  const WorkspaceSize size = (*backend)->workspace_size(attention::bounds_of(batch));
  struct alignas(256) Line {
    char bytes[256];
  };
  std::vector<Line> memory(size.device_bytes / sizeof(Line) + 1);
  auto plan =
      (*backend)->plan(batch, {.device = memory.data(), .device_bytes = size.device_bytes}, {});
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  const Status status = (*backend)->run(**plan, call, {});
  EXPECT_TRUE(status.ok()) << status.text();
  return answer;
}

struct Golden {
  std::string name;
  Problem problem;
  std::vector<double> o, lse;
};

std::vector<double> rest_of(std::istringstream& line) {
  std::vector<double> values;
  std::string word;
  while (line >> word) values.push_back(std::strtod(word.c_str(), nullptr));
  return values;
}

std::vector<float> floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

std::vector<Golden> read_golden() {
  std::ifstream file(ATTUNE_SOURCE_DIR "/tests/golden/attention.txt");
  std::vector<Golden> all;
  std::string text;
  while (std::getline(file, text)) {
    std::istringstream line(text);
    std::string key;
    line >> key;
    if (key == "case") {
      all.emplace_back();
      line >> all.back().name;
      continue;
    }
    if (key == "#" || key == "end") continue;
    Golden& g = all.back();
    AttentionSpec& spec = g.problem.spec;
    if (key == "dtype") {
      std::string word;
      line >> word;
      spec.kv_dtype = *parse_dtype(word);
      continue;
    }
    const std::vector<double> values = rest_of(line);
    const double x = values.empty() ? 0.0 : values[0];
    const auto whole = static_cast<int>(x);
    const std::map<std::string, std::function<void()>> setters = {
        {"qo_len", [&] { g.problem.qo_len = whole; }},
        {"kv_len", [&] { g.problem.kv_len = whole; }},
        {"heads", [&] { spec.num_qo_heads = whole; }},
        {"kv_heads", [&] { spec.num_kv_heads = whole; }},
        {"dqk", [&] { spec.head_dim_qk = whole; }},
        {"dvo", [&] { spec.head_dim_vo = whole; }},
        {"sm_scale", [&] { spec.sm_scale = static_cast<float>(x); }},
        {"q_scale", [&] { g.problem.q_scale = static_cast<float>(x); }},
        {"k_scale", [&] { g.problem.k_scale = static_cast<float>(x); }},
        {"v_scale", [&] { g.problem.v_scale = static_cast<float>(x); }},
        {"cap", [&] { spec.logits_soft_cap = static_cast<float>(x); }},
        {"causal", [&] { spec.causal = whole != 0; }},
        {"left", [&] { spec.window_left = whole; }},
        {"right", [&] { spec.window_right = whole; }},
        {"chunk", [&] { spec.attention_chunk = whole; }},
        {"xai", [&] { spec.xai_temperature_len = whole; }},
        {"offset", [&] { g.problem.offset = whole; }},
        {"mla",
         [&] {
           if (whole == 0) return;
           spec.variant = Variant::mla;
           spec.kv_lora_rank = spec.head_dim_vo;
           spec.qk_rope_head_dim = spec.head_dim_qk - spec.head_dim_vo;
         }},
        {"slopes", [&] { g.problem.slopes = floats(values); }},
        {"sinks", [&] { g.problem.sinks = floats(values); }},
        {"k_scale_per_head", [&] { g.problem.k_scales = floats(values); }},
        {"v_scale_per_head", [&] { g.problem.v_scales = floats(values); }},
        {"mask", [&] { g.problem.mask.assign(values.begin(), values.end()); }},
        {"q", [&] { g.problem.q = values; }},
        {"k", [&] { g.problem.k = values; }},
        {"v", [&] { g.problem.v = values; }},
        {"o", [&] { g.o = values; }},
        {"lse", [&] { g.lse = values; }},
    };
    setters.at(key)();
  }
  return all;
}

/// o and lse are fp32: half a step of that, relative, and the last digit of the file.
void expect_close(float have, double want, const std::string& where) {
  if (std::isinf(want)) {
    EXPECT_EQ(have, static_cast<float>(want)) << where;
    return;
  }
  EXPECT_NEAR(have, want, 2e-7 + 2e-7 * std::fabs(want)) << where;
}

TEST(Reference, AgreesWithNumpyInEveryPlacement) {
  const std::vector<Golden> all = read_golden();
  ASSERT_GT(all.size(), 35u);
  for (const Golden& g : all) {
    const bool mla = g.problem.spec.variant == Variant::mla;
    std::vector<Placement> placements = {{.source = KvSource::ragged}};
    for (const std::int32_t page_size : {1, 2, 3, 5, 16, 256, 544}) {
      placements.push_back({.page_size = page_size});
      placements.push_back({.layout = KvLayout::hnd, .page_size = page_size});
    }
    for (Placement place : placements) {
      if (mla && place.layout == KvLayout::hnd) continue;
      if (mla) place.layout = KvLayout::mla_latent;
      const Answer answer = solve(g.problem, place);
      const std::string where = g.name + ", page " + std::to_string(place.page_size) +
                                (place.source == KvSource::ragged ? ", ragged" : ", paged");
      ASSERT_EQ(answer.o.size(), g.o.size()) << where;
      for (std::size_t i = 0; i < g.o.size(); ++i) expect_close(answer.o[i], g.o[i], where);
      for (std::size_t i = 0; i < g.lse.size(); ++i) expect_close(answer.lse[i], g.lse[i], where);
    }
  }
}

/// Zero queries: every visible key weighs the same, so the output counts and averages them.
Problem averaging(std::int32_t qo_len, std::vector<double> values) {
  Problem p;
  p.qo_len = qo_len;
  p.kv_len = static_cast<std::int32_t>(values.size());
  p.q.assign(static_cast<std::size_t>(qo_len), 0.0);
  p.k.assign(values.size(), 1.0);
  p.v = std::move(values);
  return p;
}

TEST(Reference, TwoRowsThatMergeToTheHandWorkedVector) {
  // Logits ln 2 with value 1 and ln 6 with value 3: 2.5, ln 8; with the sink ln 2: 2.
  Problem p;
  p.kv_len = 2;
  p.q = {1.0};
  p.k = {std::log(2.0), std::log(6.0)};
  p.v = {1.0, 3.0};
  Answer a = solve(p, {});
  EXPECT_NEAR(a.o[0], 2.5, 1e-6);
  EXPECT_NEAR(a.lse[0], std::log(8.0), 1e-6);
  p.sinks = {static_cast<float>(std::log(2.0))};
  a = solve(p, {});
  EXPECT_NEAR(a.o[0], 2.0, 1e-6);
  EXPECT_NEAR(a.lse[0], std::log(8.0), 1e-6) << "the sink is not inside";
}

TEST(Reference, SoftCapVectors) {
  // lse of one key is its logit.
  Problem p = averaging(1, {1.0});
  p.q = {1.0};
  const double vectors[][3] = {{10, 50, 9.868766011},
                               {10, 30, 9.645382126},
                               {60, 50, 41.68273},
                               {100, 30, 29.92374},
                               {20, 50, 18.99745}};
  for (const auto& [score, cap, want] : vectors) {
    p.k = {score};
    p.spec.logits_soft_cap = static_cast<float>(cap);
    EXPECT_NEAR(solve(p, {}).lse[0], want, 1e-5);
  }
  // The bias stays outside the cap: cap(100) - 8 at distance 1.
  Problem biased = averaging(1, {1.0, 1.0});
  biased.q = {1.0};
  biased.k = {100.0, -1e30};
  biased.spec.logits_soft_cap = 50.0f;
  biased.slopes = {8.0f};
  EXPECT_NEAR(solve(biased, {}).lse[0], 40.20138, 1e-5);
}

TEST(Reference, XaiTemperatureVectors) {
  const std::pair<std::int64_t, double> vectors[] = {
      {1024, 1.0}, {1025, 1.000140819}, {2048, 1.1}, {1 << 20, 2.0}};
  for (const auto& [position, want] : vectors) {
    Problem p = averaging(1, {1.0});
    p.q = {1.0};
    p.spec.xai_temperature_len = 1024;
    p.offset = position;
    EXPECT_NEAR(solve(p, {}).lse[0], want, 1e-6) << position;
  }
}

TEST(Reference, CausalIsAlignedBottomRight) {
  // 2 queries, 5 keys: 11110 / 11111.
  const Answer a = solve(averaging(2, {1, 2, 4, 8, 16}), {});
  EXPECT_FLOAT_EQ(a.o[0], 15.0f / 4);
  EXPECT_FLOAT_EQ(a.o[1], 31.0f / 5);
}

TEST(Reference, AWindowOfWCountsTheTokenItself) {
  // Hugging Face's W = 4 is window_left = 3: 1 2 3 4 4 4 4 visible keys.
  Problem p = averaging(7, {1, 1, 1, 1, 1, 1, 1});
  p.spec.window_left = 3;
  const Answer a = solve(p, {});
  for (int r = 0; r < 7; ++r)
    EXPECT_NEAR(std::exp(a.lse[static_cast<std::size_t>(r)]), std::min(r + 1, 4), 1e-5);
}

TEST(Reference, SinksShrinkTheMean) {
  Problem p = averaging(1, {1, 1, 1, 1, 1, 1, 1, 1});
  p.sinks = {1.5f};
  EXPECT_NEAR(solve(p, {}).o[0], 0.640939, 1e-6);
}

TEST(Reference, RowsThatSeeNothingAreZeroAndMinusInfinity) {
  Problem p = averaging(5, {3, 5});
  const Answer a = solve(p, {});
  EXPECT_THAT(a.o, ::testing::ElementsAre(0, 0, 0, 3, 4));
  EXPECT_THAT(std::vector<float>(a.lse.begin(), a.lse.begin() + 3),
              ::testing::ElementsAre(-kInf, -kInf, -kInf));
}

TEST(Reference, HugeLogitsStayFinite) {
  Problem p = averaging(1, {1, 3});
  p.q = {1e4};
  p.k = {1e5, 1e5};
  EXPECT_FLOAT_EQ(solve(p, {}).o[0], 2.0f);
}

/// u = W^T x for W [rows, columns].
std::vector<double> apply_transposed(const std::vector<double>& w, const double* x, int rows,
                                     int columns) {
  std::vector<double> u(static_cast<std::size_t>(columns));
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      u[static_cast<std::size_t>(c)] += w[static_cast<std::size_t>(r * columns + c)] * x[r];
  return u;
}

TEST(Reference, AbsorbedLatentAttentionEqualsItsExpandedForm) {
  // Expanded: k_j = [W_UK c_j, r_j], v_j = W_UV c_j, as gqa with unequal dims. Absorbed: q =
  // [W_UK^T q_n, q_r] against [c_j, r_j], and W_UV applied to the output. Same scale in both.
  constexpr int kHeads = 3, kNope = 4, kRope = 2, kValue = 5, kRank = 6;
  constexpr std::int32_t kQueries = 2, kKeys = 7;
  std::uint32_t state = 1;
  const auto draw = [&] {
    state = state * 1664525u + 1013904223u;
    return static_cast<double>(state >> 8) / (1 << 24) - 0.5;
  };
  const auto random = [&](int n) {
    std::vector<double> x(static_cast<std::size_t>(n));
    for (double& y : x) y = static_cast<float>(draw());
    return x;
  };
  const auto latents = random(kKeys * kRank);
  const auto ropes = random(kKeys * kRope);
  const auto queries = random(kQueries * kHeads * (kNope + kRope));
  std::vector<std::vector<double>> w_uk, w_uv;  // [kNope, kRank] and [kValue, kRank] a head
  for (int h = 0; h < kHeads; ++h) {
    w_uk.push_back(random(kNope * kRank));
    w_uv.push_back(random(kValue * kRank));
  }
  const auto row_times = [](const std::vector<double>& w, int row, const double* x) {
    double sum = 0;
    for (int c = 0; c < kRank; ++c) sum += w[static_cast<std::size_t>(row * kRank + c)] * x[c];
    return sum;
  };

  Problem expanded;
  expanded.spec.num_qo_heads = expanded.spec.num_kv_heads = kHeads;
  expanded.spec.head_dim_qk = kNope + kRope;
  expanded.spec.head_dim_vo = kValue;
  expanded.qo_len = kQueries;
  expanded.kv_len = kKeys;
  expanded.q = queries;
  Problem absorbed = expanded;
  absorbed.spec.variant = Variant::mla;
  absorbed.spec.num_kv_heads = 1;
  absorbed.spec.head_dim_qk = kRank + kRope;
  absorbed.spec.head_dim_vo = absorbed.spec.kv_lora_rank = kRank;
  absorbed.spec.qk_rope_head_dim = kRope;
  absorbed.q.clear();
  for (int row = 0; row < kQueries * kHeads; ++row) {
    const double* q = &queries[static_cast<std::size_t>(row * (kNope + kRope))];
    const auto latent =
        apply_transposed(w_uk[static_cast<std::size_t>(row % kHeads)], q, kNope, kRank);
    absorbed.q.insert(absorbed.q.end(), latent.begin(), latent.end());
    absorbed.q.insert(absorbed.q.end(), q + kNope, q + kNope + kRope);
  }
  for (int j = 0; j < kKeys; ++j) {
    const double* c = &latents[static_cast<std::size_t>(j * kRank)];
    const double* r = &ropes[static_cast<std::size_t>(j * kRope)];
    for (std::size_t h = 0; h < kHeads; ++h) {
      for (int d = 0; d < kNope; ++d) expanded.k.push_back(row_times(w_uk[h], d, c));
      expanded.k.insert(expanded.k.end(), r, r + kRope);
      for (int d = 0; d < kValue; ++d) expanded.v.push_back(row_times(w_uv[h], d, c));
    }
    absorbed.k.insert(absorbed.k.end(), c, c + kRank);
    absorbed.k.insert(absorbed.k.end(), r, r + kRope);
  }
  const Answer want = solve(expanded, {});
  const Answer latent = solve(absorbed, {.layout = KvLayout::mla_latent});
  for (int row = 0; row < kQueries * kHeads; ++row) {
    const auto n = static_cast<std::size_t>(row);
    EXPECT_NEAR(latent.lse[n], want.lse[n], 1e-6);
    std::vector<double> u;
    for (std::size_t d = 0; d < kRank; ++d) u.push_back(latent.o[n * kRank + d]);
    for (int d = 0; d < kValue; ++d)
      EXPECT_NEAR(row_times(w_uv[n % kHeads], d, u.data()),
                  want.o[n * kValue + static_cast<std::size_t>(d)], 1e-6);
  }
}

// ---- append_kv -----------------------------------------------------------------------------

TEST(Reference, AppendQuantisesAndSaturates) {
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i8}) {
    const AttentionSpec spec{.num_qo_heads = 1,
                             .num_kv_heads = 1,
                             .head_dim_qk = 4,
                             .head_dim_vo = 2,
                             .sm_scale = 1.0f,
                             .kv_scales = true,
                             .q_dtype = DType::f32,
                             .o_dtype = DType::f32,
                             .kv_dtype = dtype};
    auto backend = make({.spec = spec, .page_size = 2, .kv_layout = KvLayout::hnd});
    ASSERT_TRUE(backend.ok());
    std::vector<char> k_pool = poison(3 * 2 * 4 * 8);
    std::vector<char> v_pool = poison(3 * 2 * 2 * 8);
    const std::vector<char> before = k_pool;
    std::vector<float> k{1.5f, -0.25f, 3e5f, -3e5f, 9, 9, 9, 9};
    std::vector<float> v{2.0f, -1.0f, 9, 9};
    const std::vector<std::int64_t> slots{5, -1};
    const LayerCall call{.k = TensorView::dense(k.data(), DType::f32, {2, 1, 4}),
                         .v = TensorView::dense(v.data(), DType::f32, {2, 1, 2}),
                         .slot_mapping = slots,
                         .k_cache = TensorView::dense(k_pool.data(), dtype, {3, 1, 2, 4}),
                         .v_cache = TensorView::dense(v_pool.data(), dtype, {3, 1, 2, 2}),
                         .k_scale = 0.25f,
                         .v_scale = 0.5f};
    ASSERT_TRUE((*backend)->append_kv(call, {}).ok());
    const auto stored = [&](int d) { return tensor::load_element(k_pool.data(), dtype, 20 + d); };
    EXPECT_EQ(stored(0), 6.0) << name(dtype);
    EXPECT_EQ(stored(1), -1.0);
    if (dtype == DType::fp8_e4m3) {
      EXPECT_EQ(stored(2), 448.0);
    }
    if (dtype == DType::fp8_e5m2) {
      EXPECT_EQ(stored(3), -57344.0);
    }
    if (dtype == DType::i8) {
      EXPECT_EQ(stored(3), -127.0);
    }
    EXPECT_EQ(tensor::load_element(v_pool.data(), dtype, 10), 4.0);
    const auto written = 20 * size_of(dtype);
    EXPECT_EQ(std::memcmp(k_pool.data(), before.data(), written), 0) << "other slots change";
  }
}

TEST(Reference, TheFp8LatentRowIsReadAsItIsWritten) {
  const AttentionSpec spec{.variant = Variant::mla,
                           .num_qo_heads = 1,
                           .num_kv_heads = 1,
                           .head_dim_qk = 576,
                           .head_dim_vo = 512,
                           .kv_lora_rank = 512,
                           .qk_rope_head_dim = 64,
                           .sm_scale = 1.0f,
                           .q_dtype = DType::f32,
                           .o_dtype = DType::f32,
                           .kv_dtype = DType::fp8_e4m3};
  auto backend = make({.spec = spec, .page_size = 1, .kv_layout = KvLayout::mla_latent_fp8});
  ASSERT_TRUE(backend.ok()) << backend.status().text();
  std::vector<char> pool = poison(2 * 656);
  std::vector<float> k(576);
  for (std::size_t d = 0; d < 576; ++d) k[d] = static_cast<float>(d % 16) * (d < 256 ? 100 : 0.5f);
  const std::vector<std::int64_t> slots{1};
  LayerCall call{.k = TensorView::dense(k.data(), DType::f32, {1, 1, 576}),
                 .slot_mapping = slots,
                 .k_cache = TensorView::dense(pool.data(), DType::u8, {2, 1, 656})};
  ASSERT_TRUE((*backend)->append_kv(call, {}).ok());

  // One key: the output is its value, which is the latent part.
  std::vector<float> q(576, 0.0f), o(512);
  const std::vector<std::int32_t> ramp{0, 1}, page{1}, last{1};
  const BatchView batch{.form = BatchForm::decode,
                        .qo_indptr = ramp,
                        .kv_indptr = ramp,
                        .kv_indices = page,
                        .kv_last_page_len = last};
  call.q = TensorView::dense(q.data(), DType::f32, {1, 1, 576});
  call.o = TensorView::dense(o.data(), DType::f32, {1, 1, 512});
  alignas(256) char memory[4096 * 4];
  auto plan = (*backend)->plan(batch, {.device = memory, .device_bytes = sizeof(memory)}, {});
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE((*backend)->run(**plan, call, {}).ok());
  for (std::size_t d = 0; d < 512; ++d) EXPECT_NEAR(o[d], k[d], std::fabs(k[d]) / 16) << d;
}

TEST(Reference, RefusesWhatItCannotDo) {
  AttentionSpec spec = averaging(1, {1}).spec;
  EXPECT_TRUE(make({.spec = spec}).ok());
  const auto text = [](const BackendContext& c) { return make(c).status().text(); };
  EXPECT_THAT(text({.spec = spec, .kv_layout = KvLayout::mla_latent}), HasSubstr("layout"));
  EXPECT_THAT(text({.spec = spec, .page_size = 0}), HasSubstr("page_size"));
  BackendContext gpu{.spec = spec};
  gpu.device.kind = DeviceKind::cuda;
  EXPECT_THAT(text(gpu), HasSubstr("cuda"));
  spec.relative_bias = true;
  EXPECT_THAT(text({.spec = spec}), HasSubstr("relative"));
  spec.relative_bias = false;
  spec.variant = Variant::gdn;
  EXPECT_THAT(text({.spec = spec}), HasSubstr("gdn"));
}

}  // namespace
}  // namespace attune::backends::reference
