#include "kernels/ops/dequant.hpp"
#include "model/weights/weight_store.hpp"

namespace attune::model {

void read_f32(const WeightView& view, std::span<float> out) {
  require(static_cast<std::int64_t>(out.size()) == view.num_elements(),
          "room for the whole weight");
  kernels::ops::dequantise(view.type, view.data, view.num_elements(), out.data());
}

void read_bf16(const WeightView& view, std::span<std::uint16_t> out) {
  require(static_cast<std::int64_t>(out.size()) == view.num_elements(),
          "room for the whole weight");
  kernels::ops::dequantise_bf16(view.type, view.data, view.num_elements(), out.data());
}

}  // namespace attune::model
