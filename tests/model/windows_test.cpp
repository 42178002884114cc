// A compressor's pooled windows and rings against obvious loops, and hyper-connections against what
// defines them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "device/thread_pool.hpp"
#include "model/cpu_ops.hpp"

namespace attune::model {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Windows : public testing::Test {
 protected:
  void SetUp() override {
    auto pool = device::ThreadPool::make({.num_threads = 3});
    ASSERT_TRUE(pool.ok());
    pool_ = std::move(*pool);
    auto ops = make_cpu_ops(*pool_, {.weights = CpuWeights::f32, .isa = cpu_device().isa});
    ASSERT_TRUE(ops.ok());
    ops_ = std::move(*ops);
  }
  std::vector<float> random(std::int64_t n) {
    std::uniform_real_distribution<float> uniform(-2, 2);
    std::vector<float> v(static_cast<std::size_t>(n));
    for (float& x : v) x = uniform(engine_);
    return v;
  }

  const WindowToken* listed(const RequestRows& request,
                            const std::vector<std::int32_t>& positions) {
    list_window_tokens(std::span(&request, 1), positions, tokens_);
    return tokens_.data();
  }

  std::vector<WindowToken> tokens_;
  std::unique_ptr<device::ThreadPool> pool_;
  std::unique_ptr<Ops> ops_;
  std::mt19937 engine_{5};
};

/// A compressor of one kind of keys, and all tokens of one request.
struct Sequence {
  std::int64_t ratio;
  bool overlap;
  std::int64_t dim;
  std::vector<float> rows{};  ///< [tokens, values | gates]
  std::vector<float> bias{};

  [[nodiscard]] std::int64_t series() const { return overlap ? 2 : 1; }
  [[nodiscard]] std::int64_t width() const { return 2 * series() * dim; }
  [[nodiscard]] std::int64_t ring() const { return series() * ratio; }

  /// Channel c of the window that ends at token `last`.
  [[nodiscard]] double pooled(std::int64_t last, std::int64_t c) const {
    double weights = 0.0;
    double sum = 0.0;
    const auto take = [&](std::int64_t token, std::int64_t column) {
      const std::int64_t r = token % ratio;
      const auto at = [&](std::int64_t i) {
        return static_cast<double>(rows[static_cast<std::size_t>(token * width() + i)]);
      };
      const double gate =
          at(series() * dim + column) +
          static_cast<double>(bias[static_cast<std::size_t>(r * series() * dim + column)]);
      weights += std::exp(gate);
      sum += std::exp(gate) * at(column);
    };
    for (std::int64_t token = last + 1 - ratio; token <= last; ++token) {
      take(token, (series() - 1) * dim + c);
      if (overlap && token >= ratio) take(token - ratio, c);
    }
    return sum / weights;
  }
};

TEST_F(Windows, PoolTheSameHoweverStepsAreCut) {
  for (const auto& [ratio, overlap] :
       {std::pair<std::int64_t, bool>{4, true}, {4, false}, {128, false}, {1, false}, {1, true}}) {
    Sequence s{.ratio = ratio, .overlap = overlap, .dim = 5};
    const std::int64_t tokens = 3 * ratio + 7;
    s.rows = random(tokens * s.width());
    s.bias = random(ratio * s.series() * s.dim);
    for (const std::int64_t step : {std::int64_t{1}, std::int64_t{3}, ratio, ratio + 1, tokens}) {
      // What a ring has never been told must not be read: neither a neighbour's slot nor this one's.
      std::vector<float> rings(static_cast<std::size_t>(3 * s.ring() * s.width()), kNan);
      for (std::int64_t first = 0; first < tokens; first += step) {
        const std::int64_t count = std::min(step, tokens - first);
        // Rows of nobody in front.
        std::vector<float> projected(static_cast<std::size_t>((count + 2) * s.width()), kNan);
        std::copy_n(s.rows.begin() + first * s.width(), count * s.width(),
                    projected.begin() + 2 * s.width());
        std::vector<std::int32_t> positions{0, 0};
        for (std::int64_t t = 0; t < count; ++t)
          positions.push_back(static_cast<std::int32_t>(first + t));
        const RequestRows request{.first_row = 2, .num_rows = count, .state = 1};
        const WindowRows rows{
            .projected = TensorView::dense(projected.data(), DType::f32, {count + 2, s.width()}),
            .rings = TensorView::dense(rings.data(), DType::f32, {3, s.ring(), s.width()}),
            .tokens = listed(request, positions)};
        const WindowPool pool{.ratio = ratio,
                              .overlap = overlap,
                              .dim = s.dim,
                              .values = 0,
                              .gates = s.series() * s.dim,
                              .bias = s.bias.data()};
        std::vector<float> out(static_cast<std::size_t>((count + 2) * s.dim), kNan);
        ASSERT_TRUE(
            ops_->pool_windows(pool, rows,
                               TensorView::dense(out.data(), DType::f32, {count + 2, s.dim}))
                .ok());
        ASSERT_TRUE(ops_->keep_windows(rows).ok());
        for (std::int64_t t = 0; t < count; ++t)
          for (std::int64_t c = 0; c < s.dim; ++c) {
            const bool ends = (first + t + 1) % ratio == 0;
            const double want = ends ? s.pooled(first + t, c) : 0.0;
            ASSERT_NEAR(out[static_cast<std::size_t>((t + 2) * s.dim + c)], want, 2e-6)
                << "ratio " << ratio << ", steps of " << step << ", token " << first + t;
          }
      }
    }
  }
}

TEST_F(Windows, DraftsStayOutOfTheRingInFrontOfThem) {
  constexpr std::int64_t kRing = 8;
  constexpr std::int64_t kWidth = 3;
  std::vector<float> rings = random(2 * kRing * kWidth);
  const std::vector<float> before = rings;
  std::vector<float> projected = random(5 * kWidth);
  const std::vector<std::int32_t> positions{14, 15, 16, 17, 18};
  const RequestRows request{
      .first_row = 0, .num_rows = 5, .state = 0, .num_drafts = 3, .draft_state = 1};
  const WindowRows rows{.projected = TensorView::dense(projected.data(), DType::f32, {5, kWidth}),
                        .rings = TensorView::dense(rings.data(), DType::f32, {2, kRing, kWidth}),
                        .tokens = listed(request, positions)};
  ASSERT_TRUE(ops_->keep_windows(rows).ok());
  for (std::int64_t slot = 0; slot < 2; ++slot)
    for (std::int64_t place = 0; place < kRing; ++place) {
      const std::int64_t row = (place - 14 % kRing + kRing) % kRing;  // of position 14 + row
      const bool passed = row < (slot == 0 ? 2 : 5);
      for (std::int64_t c = 0; c < kWidth; ++c)
        EXPECT_EQ(rings[static_cast<std::size_t>((slot * kRing + place) * kWidth + c)],
                  passed ? projected[static_cast<std::size_t>(row * kWidth + c)]
                         : before[static_cast<std::size_t>(place * kWidth + c)])
            << "slot " << slot << ", place " << place;
    }
}

TEST_F(Windows, StreamsAreMixedByRowsAndColumnsThatSumToOne) {
  constexpr std::int64_t kStreams = 4;
  constexpr std::int64_t kHidden = 7;
  constexpr std::int64_t kWeights = (2 + kStreams) * kStreams;
  std::vector<float> weights = random(3 * kWeights);
  const std::vector<float> raw = weights;
  const std::vector<float> base = random(kWeights);
  const std::vector<float> scale{0.7f, 1.3f, 2.0f};
  const TensorView view = TensorView::dense(weights.data(), DType::f32, {3, kWeights});
  const HyperParams params{.streams = kStreams,
                           .iterations = 20,
                           .eps = 1e-6f,
                           .scale = scale.data(),
                           .base = base.data()};
  ASSERT_TRUE(ops_->hyper_weights(params, view).ok());
  const auto at = [](const std::vector<float>& v, std::int64_t i) {
    return v[static_cast<std::size_t>(i)];
  };
  for (std::int64_t t = 0; t < 3; ++t) {
    const std::int64_t row = t * kWeights;
    EXPECT_NEAR(at(weights, row), 1 / (1 + std::exp(-(at(raw, row) * 0.7f + base[0]))), 2e-6);
    EXPECT_NEAR(at(weights, row + 5), 2 / (1 + std::exp(-(at(raw, row + 5) * 1.3f + base[5]))),
                2e-6);
    for (std::int64_t i = 0; i < kStreams; ++i) {
      float across = 0;
      float down = 0;
      for (std::int64_t k = 0; k < kStreams; ++k) {
        across += at(weights, row + 8 + i * kStreams + k);
        down += at(weights, row + 8 + k * kStreams + i);
      }
      EXPECT_NEAR(across, 1.0f, 1e-2f);
      EXPECT_NEAR(down, 1.0f, 1e-5f);
    }
  }
  std::vector<float> streams = random(3 * kStreams * kHidden);
  const std::vector<float> old = streams;
  std::vector<float> branch = random(3 * kHidden);
  const auto columns = [&](std::int64_t first, std::int64_t count) {
    TensorView part = view;
    part.data = weights.data() + first;
    part.shape[1] = count;
    return part;
  };
  const TensorView all = TensorView::dense(streams.data(), DType::f32, {3, kStreams * kHidden});
  std::vector<float> collapsed(3 * kHidden);
  ASSERT_TRUE(ops_->hyper_collapse(all, columns(0, kStreams),
                                   TensorView::dense(collapsed.data(), DType::f32, {3, kHidden}))
                  .ok());
  ASSERT_TRUE(ops_->hyper_expand(TensorView::dense(branch.data(), DType::f32, {3, kHidden}),
                                 columns(kStreams, kStreams),
                                 columns(2 * kStreams, kStreams * kStreams), all)
                  .ok());
  for (std::int64_t t = 0; t < 3; ++t)
    for (std::int64_t d = 0; d < kHidden; ++d) {
      const auto stream = [&](std::int64_t i) { return at(old, (t * kStreams + i) * kHidden + d); };
      float sum = 0;
      for (std::int64_t i = 0; i < kStreams; ++i) sum += at(weights, t * kWeights + i) * stream(i);
      EXPECT_NEAR(at(collapsed, t * kHidden + d), sum, 1e-5f);
      for (std::int64_t k = 0; k < kStreams; ++k) {
        float want = at(weights, t * kWeights + kStreams + k) * at(branch, t * kHidden + d);
        for (std::int64_t i = 0; i < kStreams; ++i)
          want += at(weights, t * kWeights + 2 * kStreams + i * kStreams + k) * stream(i);
        EXPECT_NEAR(at(streams, (t * kStreams + k) * kHidden + d), want, 1e-5f);
      }
    }
}

}  // namespace
}  // namespace attune::model
