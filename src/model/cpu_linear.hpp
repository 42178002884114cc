// Weight matrices on the CPU (layer model): stacked, in the form their product reads, cut into jobs
// for threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>

#include "kernels/quant_matmul/layout.hpp"
#include "model/cpu_ops.hpp"
#include "model/ops.hpp"
#include "model/weight_arena.hpp"
#include "model/weights/converted_weights.hpp"

namespace attune::model {

/// What turning weights into their products' form takes. All of it outlives the weights but `kept`,
/// which is used at load only.
struct Conversion {
  CpuWeights form;
  Executor& executor;
  WeightArena& arena;
  ConvertedWeights* kept = nullptr;  ///< of an earlier run; may be absent
};

class CpuLinear final : public Linear {
 public:
  /// One matrix of the stack.
  struct Segment {
    WeightView view;                   ///< of the file, or of converted rows in the arena
    const std::byte* tiles = nullptr;  ///< repacked blocks in the arena, or nullptr
    std::size_t layout = 0;            ///< of the tiles: index into layouts()
    std::int64_t tile_stride = 0;
    std::int64_t first_row = 0;
  };

  /// Rows of one segment that one thread multiplies at a time; whole tiles.
  struct Job {
    std::size_t segment = 0;
    std::int64_t first = 0;
    std::int64_t count = 0;
  };

  static Result<std::unique_ptr<CpuLinear>> make(const LinearParts& parts,
                                                 const Conversion& conversion);

  [[nodiscard]] std::int64_t rows() const override { return rows_; }
  [[nodiscard]] std::int64_t columns() const override { return columns_; }
  [[nodiscard]] std::span<const Segment> segments() const { return segments_; }
  [[nodiscard]] std::span<const kernels::quant_matmul::Layout> layouts() const { return layouts_; }
  [[nodiscard]] std::span<const Job> jobs() const { return jobs_; }
  [[nodiscard]] const float* bias() const { return bias_.empty() ? nullptr : bias_.data(); }

 private:
  Status convert_segment(const WeightView& view, const Conversion& conversion);
  Status add_biases(const LinearParts& parts);
  void cut_into_jobs(int num_threads);

  std::vector<Segment> segments_;
  std::vector<kernels::quant_matmul::Layout> layouts_;
  std::vector<Job> jobs_;
  std::vector<float> bias_;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
};

}  // namespace attune::model
