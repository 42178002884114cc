#include "model/cpu_experts.hpp"

#include <algorithm>
#include <utility>

#include "base/math.hpp"
#include "model/parallel.hpp"
#include "model/row_activation.hpp"

namespace attune::model {

kernels::ops::GatedRow gated_row(const ActivationParams& params, const float* x, std::int64_t width,
                                 float* out) {
  return {.kind = row_activation(params.kind),
          .gate = x,
          .up = params.interleaved ? x + 1 : x + width,
          .stride = params.interleaved ? 2 : 1,
          .n = width,
          .limit = params.limit,
          .alpha = params.alpha,
          .out = out};
}

Result<std::unique_ptr<CpuExperts>> CpuExperts::make(const ExpertParts& parts,
                                                     const Conversion& conversion) {
  require(parts.gate_up.size() == parts.down.size(), "every expert has both matrices");
  auto experts = std::make_unique<CpuExperts>();
  experts->activation_ = parts.activation;
  for (std::size_t e = 0; e < parts.gate_up.size(); ++e) {
    auto gate_up = CpuLinear::make(parts.gate_up[e], conversion);
    if (!gate_up.ok()) return gate_up.status();
    auto down = CpuLinear::make(parts.down[e], conversion);
    if (!down.ok()) return down.status();
    require((*gate_up)->rows() == 2 * (*down)->columns(), "gate and up as wide as down");
    experts->gate_up_.push_back(std::move(*gate_up));
    experts->down_.push_back(std::move(*down));
  }
  return experts;
}

void CpuExpertProducts::sort(const CpuExperts& experts, const Call& call) {
  // Blocks of many rows are padded, so that few shapes of library products are ever compiled.
  constexpr std::int64_t kFew = 8;
  constexpr std::int64_t kPadded = 16;
  const std::int64_t choices = call.x.num_rows * call.topk;
  const std::int64_t num_experts = experts.num_experts();
  std::vector<std::int64_t>& next = first_row_;
  next.assign(static_cast<std::size_t>(num_experts), 0);
  const auto known = [&](std::int64_t c) { return call.ids[c] >= 0 && call.ids[c] < num_experts; };
  for (std::int64_t c = 0; c < choices; ++c)
    if (known(c)) ++next[static_cast<std::size_t>(call.ids[c])];

  blocks_.clear();
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < num_experts; ++e) {
    std::int64_t& count = next[static_cast<std::size_t>(e)];
    const std::int64_t rows = count <= kFew ? count : base::round_up(count, kPadded);
    if (count > 0) blocks_.push_back({.expert = e, .first = row, .rows = rows});
    count = row;
    row += rows;
  }
  choice_of_row_.assign(static_cast<std::size_t>(row), -1);
  row_of_choice_.assign(static_cast<std::size_t>(choices), -1);
  for (std::int64_t c = 0; c < choices; ++c) {
    if (!known(c)) continue;
    const std::int64_t place = next[static_cast<std::size_t>(call.ids[c])]++;
    choice_of_row_[static_cast<std::size_t>(place)] = c;
    row_of_choice_[static_cast<std::size_t>(c)] = place;
  }
}

Status CpuExpertProducts::multiply(const CpuExperts& experts, bool down, std::vector<float>& x,
                                   std::vector<float>& y) {
  list_.clear();
  for (const Block& b : blocks_) {
    const CpuLinear& w = down ? experts.down(b.expert) : experts.gate_up(b.expert);
    list_.push_back(
        {.w = &w,
         .x = {.data = x.data() + b.first * w.columns(), .num_rows = b.rows, .stride = w.columns()},
         .y = {.data = y.data() + b.first * w.rows(), .num_rows = b.rows, .stride = w.rows()}});
  }
  return products_.multiply(list_);
}

Status CpuExpertProducts::run(const CpuExperts& experts, const Call& call) {
  if (call.x.num_rows == 0 || call.topk == 0 || experts.num_experts() == 0) return {};
  sort(experts, call);
  const auto rows = static_cast<std::int64_t>(choice_of_row_.size());
  const std::int64_t width = experts.gate_up(0).columns();
  const std::int64_t inner = experts.down(0).columns();
  const std::int64_t out_width = experts.down(0).rows();
  const auto room = [rows](std::vector<float>& v, std::int64_t columns) {
    v.resize(std::max(v.size(), static_cast<std::size_t>(rows * columns)));
  };
  room(input_, width);
  room(hidden_, 2 * inner);
  room(activated_, inner);
  room(output_, out_width);

  for_row_ranges(executor_, rows, width, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t r = first; r < last; ++r) {
      const std::int64_t c = choice_of_row_[static_cast<std::size_t>(r)];
      float* to = input_.data() + r * width;
      if (c < 0) {
        std::fill_n(to, width, 0.0f);
      } else {
        const float* from = call.x.data + c / call.topk * call.x.stride;
        rows_.scale(from, call.scale_input ? call.weights[c] : 1.0f, width, to);
      }
    }
  });
  if (Status s = multiply(experts, false, input_, hidden_); !s.ok()) return s;
  for_row_ranges(executor_, rows, 2 * inner, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t r = first; r < last; ++r)
      rows_.gated(gated_row(experts.activation(), hidden_.data() + r * 2 * inner, inner,
                            activated_.data() + r * inner));
  });
  if (Status s = multiply(experts, true, activated_, output_); !s.ok()) return s;
  for_row_ranges(executor_, call.x.num_rows, call.topk * out_width,
                 [&](std::int64_t first, std::int64_t last, int) {
                   for (std::int64_t c = first * call.topk; c < last * call.topk; ++c) {
                     const std::int64_t r = row_of_choice_[static_cast<std::size_t>(c)];
                     if (r < 0) continue;
                     rows_.add_scaled(output_.data() + r * out_width,
                                      call.scale_input ? 1.0f : call.weights[c], out_width,
                                      call.out.data + c / call.topk * call.out.stride);
                   }
                 });
  return {};
}

}  // namespace attune::model
