// A problem: the values of a case in logical order, before anything is placed in memory, and their
// right answer (layer conformance).
#pragma once

#include <cstdint>
#include <numbers>
#include <vector>

#include "conformance/case.hpp"

namespace attune::conformance {

/// Deterministic on every platform and compiler.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {  // splitmix64
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// [0, 1)
  [[nodiscard]] double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// Mean 0, deviation 1, within ±3.5. Four uniforms: near enough to a normal distribution, and
  /// without a library's rounding.
  [[nodiscard]] double normal() {
    return (uniform() + uniform() + uniform() + uniform() - 2.0) * std::numbers::sqrt3;
  }
  /// 0 … n-1
  [[nodiscard]] std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n));
  }

 private:
  std::uint64_t state_;
};

/// What dsv4 has besides: compressed keys, as many as each request's last position says.
struct CompressedProblem {
  std::vector<std::int64_t> first{};  ///< of each request, in rows of k
  std::vector<char> k{};              ///< [compressed keys, head_dim_qk], kv_dtype
};

/// What an indexer has besides: its numbers, or lists. Its keys are the problem's, or compressed.
struct SparseProblem {
  std::vector<char> q{};         ///< [queries, index_num_heads, index_head_dim], q_dtype
  std::vector<char> k{};         ///< [keys, index_head_dim], index_dtype
  std::vector<float> weights{};  ///< [queries, index_num_heads]; minimax_sparse: none
  /// [queries, list_width()], where they are given
  std::vector<std::int32_t> lists{};
};

struct Problem {
  AttentionSpec spec{};
  std::vector<RequestShape> requests{};
  std::vector<std::int64_t> first_query{};  ///< of each request, in rows of q
  std::vector<std::int64_t> first_key{};    ///< of each request, in rows of k and v
  std::vector<char> q{};                    ///< [queries, num_qo_heads, q_columns()], q_dtype
  std::vector<char> k{};                    ///< [keys, num_kv_heads, head_dim_qk], kv_dtype
  std::vector<char> v{};  ///< [keys, num_kv_heads, head_dim_vo]; empty: slice of k
  CompressedProblem compressed{};
  SparseProblem sparse{};
  std::vector<float> sinks{}, slopes{}, k_scales{}, v_scales{};
  float q_scale = 1.0f;
  float k_scale = 1.0f;
  float v_scale = 1.0f;
  std::vector<std::vector<bool>> mask{};  ///< a request: qo_len * kv_len
  bool mask_by_head = false;              ///< of block_mask
  double value_magnitude = 0.0;           ///< largest |v| after scaling

  [[nodiscard]] std::int64_t num_queries() const { return first_query.back(); }
  [[nodiscard]] std::int64_t num_keys() const { return first_key.back(); }
  /// Entries of a query's lists, one list behind the other.
  [[nodiscard]] std::int64_t list_width() const {
    return std::int64_t{spec.index_lists()} * spec.index_topk;
  }
  /// What an indexer chooses among.
  [[nodiscard]] std::int64_t num_indexed() const {
    return spec.compress_ratio > 0 ? compressed.first.back() : num_keys();
  }
};

/// Compressed keys of the tokens before position `end`.
[[nodiscard]] inline std::int64_t compressed_before(const AttentionSpec& spec, std::int64_t end) {
  return end <= 0 ? 0 : end / spec.compress_ratio;
}

/// The same case with another `layer` has other values of the same shape.
[[nodiscard]] Problem make_problem(const Case& one, std::uint64_t layer = 0);

/// An answer for every query of a problem, as doubles: exact images of what was stored, so that
/// equal doubles are equal bits.
struct Answer {
  std::vector<double> o{};            ///< [queries, num_qo_heads, head_dim_vo]
  std::vector<double> lse{};          ///< [queries, num_qo_heads]; empty where not asked for
  std::vector<std::int32_t> lists{};  ///< [queries, list_width()] of specs with an indexer
};

/// What the subject's oracle says, from ragged keys: no page, layout or step is involved.
[[nodiscard]] Result<Answer> solve(const Problem& problem, const Subject& subject);

/// The bound on |have - want|: absolute + relative * |want|.
struct Tolerance {
  double absolute = 0.0;
  double relative = 0.0;
};
[[nodiscard]] Tolerance output_tolerance(const Problem& problem);
[[nodiscard]] Tolerance lse_tolerance(const Problem& problem);

/// Holds `have` against `want` and names the worst element.
[[nodiscard]] Outcome compare(const Problem& problem, const Answer& have, const Answer& want);
/// The same bits, or the first difference.
[[nodiscard]] Outcome compare_bits(const Problem& problem, const Answer& have, const Answer& want);

}  // namespace attune::conformance
