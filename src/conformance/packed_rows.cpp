#include "conformance/packed_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <attune/tensor.hpp>

#include "attention/packed_latent.hpp"
#include "tensor/element.hpp"

namespace attune::conformance {

namespace packed = attention::packed_latent;

void pack_latent(const char* e4m3, char* token) {
  constexpr double kLargestE4m3 = 448.0;
  for (int block = 0; block < packed::kScales; ++block) {
    const int first = block * packed::kScaleBlock;
    const auto value = [&](int i) {
      return tensor::load_element(e4m3, DType::fp8_e4m3, first + i);
    };
    double largest = 0.0;
    for (int i = 0; i < packed::kScaleBlock; ++i) largest = std::max(largest, std::fabs(value(i)));
    double scale = std::ldexp(1.0, packed::kLeastScaleExponent);
    while (largest > kLargestE4m3 * scale) scale *= 2.0;
    for (int i = 0; i < packed::kScaleBlock; ++i)
      tensor::store_element(token, DType::fp8_e4m3, first + i, value(i) / scale);
    tensor::store_element(token + packed::kScalesAt, DType::f32, block, scale);
  }
  for (int i = 0; i < packed::kRope; ++i)
    tensor::store_element(token + packed::kRopeAt, DType::bf16, i,
                          tensor::load_element(e4m3, DType::fp8_e4m3, packed::kLatents + i));
}

}  // namespace attune::conformance
