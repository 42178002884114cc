// C = A · Bᵀ or A · B (+ C) through oneDNN; matmul.cpp is the only file that includes it.
//
// oneDNN runs on the calling thread alone and never wakes threads of its own: a plan is cut into
// parts, and the caller's executor runs the parts. So there is one pool of threads in the process,
// and products inside somebody else's work item are as welcome as products over all cores.
//
//   Matmul matmul(executor.num_threads());
//   auto plan = matmul.plan({.m = 7, .n = 576, .k = 576}, executor.num_threads());
//   for part in 0 … plan->num_parts() - 1, on any thread:
//     matmul.run(*plan, a, b, c, part, thread);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

namespace attune::kernels::ops {

/// One product. Leading dimensions count elements; 0 means dense rows.
struct MatmulShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;       ///< A is [m, k]
  std::int64_t ldb = 0;       ///< B is [n, k]; with b_is_kn it is [k, n]
  std::int64_t ldc = 0;       ///< C is [m, n]
  DType input = DType::f32;   ///< of A and B: f32 or bf16; sums are fp32 either way
  DType output = DType::f32;  ///< of C: f32, or bf16 where the input is bf16
  bool b_is_kn = false;       ///< C = A · B instead of A · Bᵀ
  bool accumulate = false;    ///< C += instead of C =

  bool operator==(const MatmulShape&) const = default;
};

/// A compiled product. Immutable; outlives its place in the cache while somebody holds it.
class MatmulPlan;
[[nodiscard]] std::int64_t num_parts(const MatmulPlan& plan);

/// The primitive cache and the scratchpads, owned by whoever multiplies.
class Matmul {
 public:
  /// `num_threads`: how many threads call run() at once.
  explicit Matmul(int num_threads);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  /// Finds or compiles `shape`, cut into at most `max_parts` independent parts. About a millisecond
  /// for a new shape. Not to be called while another thread is in plan() or run().
  Result<std::shared_ptr<const MatmulPlan>> plan(const MatmulShape& shape,
                                                 std::int64_t max_parts = 1);

  /// Computes one part of C, on this thread. `thread` in 0 … num_threads-1 picks the scratchpad:
  /// two concurrent calls never share one.
  Status run(const MatmulPlan& plan, const void* a, const void* b, void* c, std::int64_t part,
             int thread) const;

  /// Whether this CPU multiplies bf16 faster than fp32 (AVX-512 at least). Without it
  /// oneDNN 3 crawls, and oneDNN 2 refuses the plan.
  [[nodiscard]] static bool has_fast_bf16();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune::kernels::ops
