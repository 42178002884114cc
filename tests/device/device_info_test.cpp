#include <gtest/gtest.h>

#include <attune/device.hpp>

#include "device/cpu_features.hpp"
#include "device/nvml_probe.hpp"

namespace attune {
namespace {

TEST(ParseDevice, ImaginedDevicesNeedNoHardware) {
  const Result<DeviceInfo> hopper = parse_device("cuda:sm90");
  ASSERT_TRUE(hopper.ok());
  EXPECT_EQ(hopper->kind, DeviceKind::cuda);
  EXPECT_EQ(hopper->sm, 90);
  EXPECT_FALSE(hopper->present);
  EXPECT_EQ(parse_device("cpu:avx512")->isa, CpuIsa::avx512);
  EXPECT_EQ(parse_device("hip:gfx942")->arch, "gfx942");
  EXPECT_EQ(parse_device("npu")->kind, DeviceKind::npu);
}

TEST(ParseDevice, NonsenseIsRefusedWithTheChoices) {
  for (const char* word : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:sm", "cuda:sm9",
                           "cpu:sse", "hip:", "cuda:99999999999"}) {
    const Result<DeviceInfo> d = parse_device(word);
    ASSERT_FALSE(d.ok()) << word;
    EXPECT_EQ(d.status().code(), StatusCode::invalid_argument) << word;
  }
}

TEST(CpuFeatures, EachMissingBitLowersTheLevel) {
  device::CpuFeatures f;
  EXPECT_EQ(device::usable_isa(f), CpuIsa::scalar);
  f.avx2 = f.fma = f.f16c = f.os_saves_ymm = true;
  EXPECT_EQ(device::usable_isa(f), CpuIsa::avx2);
  f.avx512f = f.avx512bw = f.avx512dq = f.avx512vl = true;
  EXPECT_EQ(device::usable_isa(f), CpuIsa::avx2) << "the operating system does not save zmm";
  f.os_saves_zmm = true;
  EXPECT_EQ(device::usable_isa(f), CpuIsa::avx512);
  f.avx512_bf16 = true;
  EXPECT_EQ(device::usable_isa(f), CpuIsa::avx512) << "lookups of bytes are part of the level";
  f.avx512_vbmi = true;
  EXPECT_EQ(device::usable_isa(f), CpuIsa::avx512) << "products of bytes are, too";
  f.avx512_vnni = true;
  EXPECT_EQ(device::usable_isa(f), CpuIsa::avx512_bf16);
  f.amx_tile = f.amx_bf16 = f.os_saves_tiles = true;
  EXPECT_EQ(device::usable_isa(f), CpuIsa::avx512_bf16) << "no permission, no AMX";
  f.amx_permitted = true;
  EXPECT_EQ(device::usable_isa(f), CpuIsa::amx);
}

TEST(CpuDevice, TheCapHolds) {
  EXPECT_EQ(cpu_device(CpuIsa::scalar).isa, CpuIsa::scalar);
  EXPECT_GE(cpu_device().num_units, 1);
}

TEST(VisibleGpus, FollowsCudaVisibleDevices) {
  std::vector<device::NvmlGpu> gpus(3);
  for (int i = 0; i < 3; ++i) {
    gpus[static_cast<std::size_t>(i)].nvml_index = i;
    gpus[static_cast<std::size_t>(i)].uuid = "GPU-" + std::to_string(100 + i);
  }
  EXPECT_EQ(device::visible_gpus(gpus, nullptr).size(), 3u);
  EXPECT_EQ(device::visible_gpus(gpus, "").size(), 0u);
  const auto two = device::visible_gpus(gpus, "2, GPU-100");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].nvml_index, 2);
  EXPECT_EQ(two[1].nvml_index, 0);
  EXPECT_EQ(two[1].info.index, 1);
  EXPECT_EQ(device::visible_gpus(gpus, "1,-1,0").size(), 1u) << "a bad entry ends the list";
}

}  // namespace
}  // namespace attune
