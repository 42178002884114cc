// Names that are one class over one set of kernels: their suites are cut on that ground
// (CMakeLists.txt).
#include <gtest/gtest.h>

#include <memory>
#include <typeinfo>
#include <utility>

#include <attune/backend.hpp>
#include <attune/plugin.hpp>

#include "conformance/case.hpp"
#include "conformance/cases.hpp"

extern "C" const attune::PluginEntry* attune_backend_entry_v1();

namespace attune::conformance {
namespace {

constexpr DeviceInfo kHopper{.kind = DeviceKind::cuda, .sm = 90, .num_units = 132};

/// Of a name, for the first row that serves a variant in a dtype.
std::unique_ptr<Backend> made(std::string_view name, Variant variant, DType dtype) {
  const PluginEntry& entry = *attune_backend_entry_v1();
  for (std::size_t b = 0; b < entry.num_backends; ++b) {
    const PluginBackend& backend = entry.backends[b];
    if (backend.descriptor->name != name) continue;
    for (const Capability& row : backend.descriptor->capabilities) {
      if (row.device != DeviceKind::cuda || !row.variants.contains(variant) ||
          !row.q_dtypes.contains(dtype) || !row.kv_dtypes.contains(dtype))
        continue;
      const Case one = plain_case(row, row.phases[0]);
      auto result = backend.make({.spec = one.spec,
                                  .device = kHopper,
                                  .page_size = one.page_size,
                                  .kv_layout = one.layout});
      EXPECT_TRUE(result.ok()) << name << ": " << result.status().text();
      return result.ok() ? std::move(*result) : nullptr;
    }
  }
  ADD_FAILURE() << name << " has no row of this variant and dtype";
  return nullptr;
}

void expect_one_class(std::string_view a, std::string_view b, Variant variant, DType dtype) {
  const auto first = made(a, variant, dtype);
  const auto second = made(b, variant, dtype);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  const Backend& x = *first;
  const Backend& y = *second;
  EXPECT_EQ(typeid(x), typeid(y)) << a << " and " << b << " in " << name(dtype);
}

TEST(Sharing, FlashinferHasTritonsLatents) {
  expect_one_class("flashinfer", "triton", Variant::mla, DType::bf16);
  expect_one_class("flashinfer", "triton", Variant::mla, DType::f16);
}

TEST(Sharing, Fa3HasFlashmlasLatents) {
  expect_one_class("fa3", "flashmla", Variant::mla, DType::bf16);
}

TEST(Sharing, Fa3AndFa4DifferInTheirSoftmaxAlone) {
  expect_one_class("fa3", "fa4", Variant::gqa, DType::bf16);
  expect_one_class("fa3", "fa4", Variant::gqa, DType::f16);
}

TEST(Sharing, OtherNamesHaveFlashinfersKernels) {
  expect_one_class("flex_attention", "flashinfer", Variant::gqa, DType::bf16);
  expect_one_class("hpc_ops", "flashinfer", Variant::gqa, DType::bf16);
  expect_one_class("trtllm_mha", "flashinfer", Variant::gqa, DType::bf16);
  expect_one_class("trtllm_mha", "flashinfer", Variant::gqa, DType::f16);
}

}  // namespace
}  // namespace attune::conformance
