// What the suite lets a run record: kernels and memsets, no copies.
#include <gtest/gtest.h>

#include <memory>

#include <cuda_runtime_api.h>

#include "conformance/cuda_memory_entry.hpp"

extern "C" void attune_conformance_memory_v1(
    const attune::DeviceInfo& device,
    attune::Result<std::unique_ptr<attune::conformance::DeviceMemory>>& made);

namespace attune::conformance {
namespace {

TEST(Recording, TakesNoCopies) {
  Result<std::unique_ptr<DeviceMemory>> made = internal_error("nothing was made");
  attune_conformance_memory_v1({.kind = DeviceKind::cuda}, made);
  ASSERT_TRUE(made.ok()) << made.status().text();
  DeviceMemory& memory = **made;
  const Result<void*> room = memory.allocate(64);
  ASSERT_TRUE(room.ok());
  const auto native = [](Stream stream) { return static_cast<cudaStream_t>(stream.handle); };

  const auto sets = memory.record([&](Stream stream) {
    EXPECT_EQ(cudaMemsetAsync(*room, 1, 64, native(stream)), cudaSuccess);
    return Status{};
  });
  EXPECT_TRUE(sets.ok()) << sets.status().text();

  int number = 0;
  const auto copies = memory.record([&](Stream stream) {
    EXPECT_EQ(
        cudaMemcpyAsync(*room, &number, sizeof number, cudaMemcpyHostToDevice, native(stream)),
        cudaSuccess);
    return Status{};
  });
  ASSERT_FALSE(copies.ok());
  EXPECT_NE(copies.status().code(), StatusCode::unsupported) << "the suite would skip it";
  EXPECT_NE(copies.status().text().find("copies"), std::string::npos) << copies.status().text();
  memory.release(*room);
}

}  // namespace
}  // namespace attune::conformance
