#include "kernels/ops/dequant.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "model/weights/mapped_file.hpp"
#include "model/weights/safetensors.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::model {
namespace {

using kernels::ops::block_size;
using kernels::ops::dequantise;
using kernels::ops::dequantise_bf16;

/// data/dequant.safetensors, written by data/make_dequant.py from an independent implementation.
class Dequant : public testing::TestWithParam<WeightType> {
 protected:
  void SetUp() override {
    const std::string path =
        std::string(ATTUNE_SOURCE_DIR) + "/tests/model/data/dequant.safetensors";
    auto file = MappedFile::open(path);
    ASSERT_TRUE(file.ok()) << file.status().text();
    file_ = std::move(*file);
    auto entries = parse_safetensors(file_.bytes(), path);
    ASSERT_TRUE(entries.ok()) << entries.status().text();
    const std::string name(kernels::ops::name(GetParam()));
    for (const SafetensorsEntry& e : *entries) {
      if (e.name == name + ".blocks") blocks_ = e.data;
      if (e.name == name + ".values") {
        values_.resize(static_cast<std::size_t>(e.shape[0]));
        std::memcpy(values_.data(), e.data.data(), e.data.size());
      }
    }
    ASSERT_EQ(static_cast<std::int64_t>(blocks_.size()),
              kernels::ops::row_bytes(GetParam(), static_cast<std::int64_t>(values_.size())));
    ASSERT_FALSE(values_.empty());
  }
  MappedFile file_;
  std::span<const std::byte> blocks_;
  std::vector<float> values_;
};

INSTANTIATE_TEST_SUITE_P(Types, Dequant,
                         testing::Values(WeightType::q4_0, WeightType::q4_1, WeightType::q5_0,
                                         WeightType::q5_1, WeightType::q8_0, WeightType::q2_k,
                                         WeightType::q3_k, WeightType::q4_k, WeightType::q5_k,
                                         WeightType::q6_k),
                         [](const auto& type) {
                           return std::string(kernels::ops::name(type.param));
                         });

TEST_P(Dequant, AgreesWithAnIndependentImplementation) {
  // At an odd address: files promise no alignment.
  std::vector<std::byte> shifted(blocks_.size() + 1);
  std::memcpy(shifted.data() + 1, blocks_.data(), blocks_.size());
  std::vector<float> out(values_.size());
  dequantise(GetParam(), shifted.data() + 1, static_cast<std::int64_t>(out.size()), out.data());
  for (std::size_t i = 0; i < out.size(); ++i)
    ASSERT_NEAR(out[i], values_[i], 1e-6 * (1 + std::abs(values_[i]))) << i;
}

TEST_P(Dequant, Bf16IsTheRoundedFp32) {
  const auto n = static_cast<std::int64_t>(values_.size());
  std::vector<float> exact(values_.size());
  std::vector<std::uint16_t> rounded(values_.size());
  dequantise(GetParam(), blocks_.data(), n, exact.data());
  dequantise_bf16(GetParam(), blocks_.data(), n, rounded.data());
  for (std::size_t i = 0; i < exact.size(); ++i)
    ASSERT_EQ(rounded[i], tensor::to_bf16(exact[i]).bits) << i;
}

}  // namespace
}  // namespace attune::model
