// Absorbed latent attention is its expanded form.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "backends/reference_problem.hpp"

namespace attune::backends::reference {
namespace {

using test::Answer;
using test::Problem;
using test::solve;

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

}  // namespace
}  // namespace attune::backends::reference
