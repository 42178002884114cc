#include "model/cpu_ops.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "device/thread_pool.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::model {
namespace {

class CpuOpsTest : public testing::TestWithParam<CpuWeights> {
 protected:
  void SetUp() override {
    auto pool = device::ThreadPool::make({.num_threads = 3});
    ASSERT_TRUE(pool.ok());
    pool_ = std::move(*pool);
    auto ops = make_cpu_ops(*pool_, {.weights = GetParam(), .isa = cpu_device().isa});
    ASSERT_TRUE(ops.ok());
    ops_ = std::move(*ops);
  }
  std::vector<float> random(std::int64_t n) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> v(static_cast<std::size_t>(n));
    // Exactly representable in bf16, so that no mode rounds the operands.
    for (float& x : v) x = tensor::to_float(tensor::to_bf16(uniform(engine_)));
    return v;
  }
  static WeightView weight(const std::vector<float>& v, std::int64_t rows, std::int64_t columns) {
    return {.data = reinterpret_cast<const std::byte*>(v.data()),
            .type = WeightType::f32,
            .rank = 2,
            .shape = {rows, columns}};
  }
  static TensorView view(std::vector<float>& v, std::int64_t rows, std::int64_t columns) {
    return TensorView::dense(v.data(), DType::f32, {rows, columns});
  }
  static TensorView ids(std::vector<std::int32_t>& v) {
    return TensorView::dense(v.data(), DType::i32, {static_cast<std::int64_t>(v.size())});
  }

  std::unique_ptr<device::ThreadPool> pool_;
  std::unique_ptr<Ops> ops_;
  std::mt19937 engine_{3};
};

INSTANTIATE_TEST_SUITE_P(Forms, CpuOpsTest,
                         testing::Values(CpuWeights::as_stored, CpuWeights::bf16, CpuWeights::f32));

TEST_P(CpuOpsTest, StackedLinearWithBiasIntoAWindow) {
  constexpr std::int64_t kColumns = 96;
  const auto w0 = random(7 * kColumns), w1 = random(130 * kColumns), b1 = random(130);
  const WeightView weights[] = {weight(w0, 7, kColumns), weight(w1, 130, kColumns)};
  const WeightView biases[] = {WeightView{}, weight(b1, 1, 130)};
  auto linear = ops_->make_linear({.weights = weights, .biases = biases});
  ASSERT_TRUE(linear.ok()) << linear.status().text();
  ASSERT_EQ((*linear)->rows(), 137);
  for (std::int64_t tokens : {0, 1, 2, 9}) {
    auto x = random(tokens * kColumns);
    constexpr std::int64_t kStride = 150;
    std::vector<float> y(static_cast<std::size_t>(tokens * kStride + 1), -5.0f);
    TensorView out = view(y, tokens, 137);
    out.stride[0] = kStride;
    ops_->linear(**linear, view(x, tokens, kColumns), out);
    ops_->linear(**linear, view(x, tokens, kColumns), out, /*accumulate=*/true);
    ASSERT_TRUE(ops_->synchronize().ok());
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t r = 0; r < 137; ++r) {
        double want = r < 7 ? 0.0 : b1[static_cast<std::size_t>(r - 7)];
        const float* row = r < 7 ? w0.data() + r * kColumns : w1.data() + (r - 7) * kColumns;
        for (std::int64_t i = 0; i < kColumns; ++i)
          want += static_cast<double>(row[i]) * x[static_cast<std::size_t>(t * kColumns + i)];
        ASSERT_NEAR(y[static_cast<std::size_t>(t * kStride + r)], 2 * want, 1e-4);
      }
      for (std::int64_t r = 137; r < kStride; ++r)
        ASSERT_EQ(y[static_cast<std::size_t>(t * kStride + r)], -5.0f);
    }
  }
}

TEST_P(CpuOpsTest, EmbeddingLooksUpAndScales) {
  const auto table = random(5 * 64);
  const WeightView weights[] = {weight(table, 5, 64)};
  auto linear = ops_->make_linear({.weights = weights});
  ASSERT_TRUE(linear.ok());
  std::vector<std::int32_t> tokens{4, 0, 4};
  std::vector<float> out(3 * 64);
  ops_->embedding(**linear, ids(tokens), 2.0f, view(out, 3, 64));
  for (std::size_t t = 0; t < 3; ++t)
    for (std::size_t i = 0; i < 64; ++i)
      ASSERT_EQ(out[t * 64 + i], 2.0f * table[static_cast<std::size_t>(tokens[t]) * 64 + i]);
}

TEST_P(CpuOpsTest, ExpertsEqualTheirSum) {
  constexpr std::size_t kExperts = 4, kHidden = 32, kInner = 64, kTopk = 2;
  std::vector<std::vector<float>> gate_up, down;
  for (std::size_t e = 0; e < kExperts; ++e) {
    gate_up.push_back(random(2 * kInner * kHidden));
    down.push_back(random(kHidden * kInner));
  }
  std::vector<WeightView> views;
  std::vector<LinearParts> gate_up_parts, down_parts;
  for (std::size_t e = 0; e < kExperts; ++e) {
    views.push_back(weight(gate_up[e], 2 * kInner, kHidden));
    views.push_back(weight(down[e], kHidden, kInner));
  }
  for (std::size_t e = 0; e < kExperts; ++e) {
    gate_up_parts.push_back({.weights = std::span(&views[2 * e], 1)});
    down_parts.push_back({.weights = std::span(&views[2 * e + 1], 1)});
  }
  for (const bool interleaved : {false, true})
    for (const bool scale_input : {false, true})
      for (const std::size_t tokens : {1, 5, 70}) {
        auto experts = ops_->make_experts({.gate_up = gate_up_parts,
                                           .down = down_parts,
                                           .activation = {.interleaved = interleaved}});
        ASSERT_TRUE(experts.ok());
        auto x = random(static_cast<std::int64_t>(tokens * kHidden));
        // Expert 2 gets nobody; id 9 is no expert.
        constexpr std::int32_t kChoices[] = {0, 1, 3, 0, 1, 3, 9, 3, 0, 1};
        std::vector<std::int32_t> chosen(tokens * kTopk);
        for (std::size_t c = 0; c < chosen.size(); ++c) chosen[c] = kChoices[c % 10];
        auto weights = random(static_cast<std::int64_t>(tokens * kTopk));
        std::vector<float> out(tokens * kHidden, 1.0f);
        const auto n = static_cast<std::int64_t>(tokens);
        ops_->experts(**experts, view(x, n, kHidden),
                      TensorView::dense(chosen.data(), DType::i32, {n, kTopk}),
                      view(weights, n, kTopk), scale_input, view(out, n, kHidden));
        ASSERT_TRUE(ops_->synchronize().ok());
        for (std::size_t t = 0; t < tokens; ++t) {
          std::vector<double> want(kHidden, 1.0);
          for (std::size_t j = 0; j < kTopk; ++j) {
            const auto e = static_cast<std::size_t>(chosen[t * kTopk + j]);
            if (e >= kExperts) continue;
            const double w = weights[t * kTopk + j];
            std::vector<double> inner(kInner);
            for (std::size_t i = 0; i < kInner; ++i) {
              const std::size_t gate_row = interleaved ? 2 * i : i;
              const std::size_t up_row = interleaved ? 2 * i + 1 : i + kInner;
              double gate = 0, up = 0;
              for (std::size_t c = 0; c < kHidden; ++c) {
                const double xc = x[t * kHidden + c] * (scale_input ? w : 1.0);
                gate += xc * gate_up[e][gate_row * kHidden + c];
                up += xc * gate_up[e][up_row * kHidden + c];
              }
              inner[i] = gate / (1.0 + std::exp(-gate)) * up;
            }
            for (std::size_t c = 0; c < kHidden; ++c)
              for (std::size_t i = 0; i < kInner; ++i)
                want[c] += (scale_input ? 1.0 : w) * inner[i] * down[e][c * kInner + i];
          }
          const double tolerance = GetParam() == CpuWeights::bf16 ? 0.1 : 2e-4;
          for (std::size_t c = 0; c < kHidden; ++c)
            ASSERT_NEAR(out[t * kHidden + c], want[c], tolerance * (1 + std::abs(want[c])))
                << tokens << " tokens, token " << t;
        }
      }
}

TEST_P(CpuOpsTest, NormsOfRowsAndHeads) {
  auto x = random(3 * 4 * 16), weight = random(16);
  std::vector<float> out(x.size());
  const TensorView from = TensorView::dense(x.data(), DType::f32, {3, 4, 16});
  const TensorView to = TensorView::dense(out.data(), DType::f32, {3, 4, 16});
  for (NormKind kind : {NormKind::rms, NormKind::rms_plus_one, NormKind::layer_norm}) {
    ops_->norm(from, {.kind = kind, .eps = 1e-5f, .weight = weight.data()}, to);
    for (std::size_t r = 0; r < 12; ++r) {
      double sum = 0, squares = 0;
      for (std::size_t i = 0; i < 16; ++i) sum += x[r * 16 + i];
      const double mean = kind == NormKind::layer_norm ? sum / 16 : 0;
      for (std::size_t i = 0; i < 16; ++i)
        squares += (x[r * 16 + i] - mean) * (x[r * 16 + i] - mean);
      for (std::size_t i = 0; i < 16; ++i) {
        const double factor = weight[i] + (kind == NormKind::rms_plus_one ? 1.0 : 0.0);
        ASSERT_NEAR(out[r * 16 + i],
                    (x[r * 16 + i] - mean) / std::sqrt(squares / 16 + 1e-5) * factor, 1e-5);
      }
    }
  }
}

TEST_P(CpuOpsTest, RopeTurnsAndTurnsBack) {
  auto x = random(2 * 3 * 20);
  const auto before = x;
  std::vector<std::int32_t> positions{5, 1000};
  std::vector<float> inv_freq{1.0f, 0.25f, 0.01f, 0.001f};
  std::vector<float> cos_sin(2 * 8);
  ops_->rope_angles(ids(positions), inv_freq.data(), 4, 1.0f, view(cos_sin, 2, 8));
  const TensorView heads = TensorView::dense(x.data(), DType::f32, {2, 3, 20});
  for (bool interleaved : {false, true}) {
    ops_->rope(heads, view(cos_sin, 2, 8), 6, interleaved);
    for (std::size_t t = 0; t < 2; ++t)
      for (std::size_t h = 0; h < 3; ++h)
        for (std::size_t i = 0; i < 4; ++i) {
          const std::size_t base = (t * 3 + h) * 20 + 6;
          const std::size_t a = base + (interleaved ? 2 * i : i);
          const std::size_t b = base + (interleaved ? 2 * i + 1 : i + 4);
          const double angle = static_cast<float>(positions[t]) * inv_freq[i];
          ASSERT_NEAR(x[a], before[a] * std::cos(angle) - before[b] * std::sin(angle), 1e-5);
          ASSERT_NEAR(x[b], before[b] * std::cos(angle) + before[a] * std::sin(angle), 1e-5);
        }
    for (std::size_t i = 0; i < x.size(); ++i)
      if (i % 20 < 6 || i % 20 >= 14) {
        ASSERT_EQ(x[i], before[i]);
      }
    ops_->rope(heads, view(cos_sin, 2, 8), 6, interleaved, /*inverse=*/true);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], before[i], 1e-5);
  }
}

TEST_P(CpuOpsTest, ElementwiseAndMoving) {
  auto x = random(6), y = random(6);
  std::vector<float> out(6);
  ops_->multiply(view(x, 2, 3), view(y, 2, 3), view(out, 2, 3));
  ops_->add(view(x, 2, 3), 3.0f, view(out, 2, 3));
  for (std::size_t i = 0; i < 6; ++i) ASSERT_NEAR(out[i], x[i] * y[i] + 3 * x[i], 1e-6);
  std::vector<float> gate{0.5f, -2.0f};
  ops_->sigmoid_gate(view(x, 2, 3), view(gate, 2, 1), view(out, 2, 3));
  for (std::size_t i = 0; i < 6; ++i)
    ASSERT_NEAR(out[i], x[i] / (1 + std::exp(-gate[i / 3])), 1e-6);
  ops_->soft_cap(view(x, 2, 3), 0.5f, view(out, 2, 3));
  for (std::size_t i = 0; i < 6; ++i) ASSERT_NEAR(out[i], 0.5 * std::tanh(x[i] / 0.5), 1e-6);
  std::vector<std::int32_t> rows{1, 1, 0};
  std::vector<float> gathered(9);
  ops_->gather_rows(view(x, 2, 3), ids(rows), view(gathered, 3, 3));
  for (std::size_t i = 0; i < 9; ++i)
    ASSERT_EQ(gathered[i], x[static_cast<std::size_t>(rows[i / 3]) * 3 + i % 3]);
  for (DType narrow : {DType::bf16, DType::f16}) {
    std::vector<std::uint16_t> bits(6);
    const TensorView half = TensorView::dense(bits.data(), narrow, {2, 3});
    ops_->convert(view(x, 2, 3), half);
    ops_->convert(half, view(out, 2, 3));
    for (std::size_t i = 0; i < 6; ++i) ASSERT_EQ(out[i], x[i]);
  }
}

TEST_P(CpuOpsTest, TheLargestNumberOfARow) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::vector<float> x{1, 3, 3, 2, kNan, -7, kNone, kNan, kNan, kNone, kNan, kNan};
  std::vector<std::int32_t> best(3);
  const std::vector<Choice> choices(3);
  ops_->choose(view(x, 3, 4), choices.data(), ids(best));
  EXPECT_EQ(best, (std::vector<std::int32_t>{1, 1, -1}));
}

TEST_P(CpuOpsTest, MergedAttentionIsThatOfAllKeys) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  // Two tokens of two heads of one number; the last head has no key on either side.
  std::vector<float> o{1.0f, 5.0f, 0.0f, 0.0f}, more{3.0f, 0.0f, 7.0f, 0.0f};
  std::vector<float> lse{0.5f, 2.0f, kNone, kNone}, more_lse{0.5f, kNone, -3.0f, kNone};
  const auto states = [](std::vector<float>& v) {
    TensorView s = TensorView::dense(v.data(), DType::f32, {2, 2, 1});
    return s;
  };
  ops_->merge_attention(states(o), view(lse, 2, 2), states(more), view(more_lse, 2, 2));
  ASSERT_TRUE(ops_->synchronize().ok());
  EXPECT_EQ(o, (std::vector<float>{2.0f, 5.0f, 7.0f, 0.0f}));
  EXPECT_FLOAT_EQ(lse[0], 0.5f + std::log(2.0f));
  EXPECT_EQ(lse[1], 2.0f);
  EXPECT_EQ(lse[2], -3.0f);
  EXPECT_EQ(lse[3], kNone);
}

TEST_P(CpuOpsTest, GatedActivations) {
  auto x = random(2 * 10);
  for (float& v : x) v *= 12;
  std::vector<float> out(10);
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  ops_->gated_activation(view(x, 2, 10), {.kind = Activation::silu}, view(out, 2, 5));
  for (std::size_t i = 0; i < 10; ++i) {
    const double gate = x[i / 5 * 10 + i % 5], up = x[i / 5 * 10 + i % 5 + 5];
    ASSERT_NEAR(out[i], gate * sigmoid(gate) * up, 1e-4);
  }
  ops_->gated_activation(view(x, 2, 10),
                         {.kind = Activation::swiglu_oai, .interleaved = true, .limit = 7.0f},
                         view(out, 2, 5));
  for (std::size_t i = 0; i < 10; ++i) {
    const double gate = std::min<double>(x[2 * i], 7);
    const double up = std::clamp<double>(x[2 * i + 1], -7, 7);
    ASSERT_NEAR(out[i], gate * sigmoid(1.702 * gate) * (up + 1), 1e-4);
  }
}

TEST_P(CpuOpsTest, QuantisedStacksAgreeWithTheirNumbers) {
  // One block a row of each type, beside a plain matrix and a bias: every path in one product.
  constexpr std::int64_t kColumns = 256, kRows = 40;
  const auto blocks = [&](WeightType type) {
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(kRows * kernels::ops::row_bytes(type, kColumns)));
    for (std::byte& b : bytes) b = static_cast<std::byte>(engine_() & 0x3f);  // small halves
    return bytes;
  };
  const auto q4_1 = blocks(WeightType::q4_1), q6_k = blocks(WeightType::q6_k);
  const auto plain = random(kRows * kColumns), bias = random(kRows);
  const auto quantised = [&](const std::vector<std::byte>& bytes, WeightType type) {
    return WeightView{.data = bytes.data(), .type = type, .rank = 2, .shape = {kRows, kColumns}};
  };
  const WeightView weights[] = {quantised(q4_1, WeightType::q4_1), weight(plain, kRows, kColumns),
                                quantised(q6_k, WeightType::q6_k)};
  const WeightView biases[] = {weight(bias, 1, kRows), {}, weight(bias, 1, kRows)};
  auto linear = ops_->make_linear({.weights = weights, .biases = biases});
  ASSERT_TRUE(linear.ok()) << linear.status().text();
  std::vector<float> w(3 * kRows * kColumns);
  for (std::size_t i = 0; i < 3; ++i)
    read_f32(weights[i], std::span(w).subspan(i * kRows * kColumns, kRows * kColumns));
  for (std::int64_t tokens : {1, 8, 9, 20}) {
    auto x = random(tokens * kColumns);
    std::vector<float> y(static_cast<std::size_t>(tokens * 3 * kRows));
    ops_->linear(**linear, view(x, tokens, kColumns), view(y, tokens, 3 * kRows));
    ASSERT_TRUE(ops_->synchronize().ok());
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t r = 0; r < 3 * kRows; ++r) {
        double want = r / kRows == 1 ? 0.0 : bias[static_cast<std::size_t>(r % kRows)];
        double size = std::abs(want);
        for (std::int64_t i = 0; i < kColumns; ++i) {
          const double product =
              static_cast<double>(w[static_cast<std::size_t>(r * kColumns + i)]) *
              x[static_cast<std::size_t>(t * kColumns + i)];
          want += product;
          size += std::abs(product);
        }
        // 8-bit activations are off by half a step of 1/127 each, at random.
        const double tolerance = GetParam() == CpuWeights::f32 ? 1e-5 : 3e-3;
        ASSERT_NEAR(y[static_cast<std::size_t>(t * 3 * kRows + r)], want, tolerance * size);
      }
  }
}

TEST_P(CpuOpsTest, StackingUnequalColumnsIsRefused) {
  const auto a = random(64), b = random(64);
  const WeightView weights[] = {weight(a, 2, 32), weight(b, 1, 64)};
  const auto linear = ops_->make_linear({.weights = weights});
  ASSERT_FALSE(linear.ok());
  EXPECT_NE(linear.status().text().find("32 and 64"), std::string::npos);
}

}  // namespace
}  // namespace attune::model
