#include "cache/kv_storage.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

namespace attune::cache {
namespace {

TEST(KvStorage, CountsTheBytesOfAToken) {
  EXPECT_EQ(bytes_per_token({KvLayout::nhd, DType::bf16, 8, 128, 128}), 4096);
  EXPECT_EQ(bytes_per_token({KvLayout::hnd, DType::fp8_e4m3, 2, 16, 128}), 288);
  EXPECT_EQ(bytes_per_token({KvLayout::mla_latent, DType::bf16, 1, 576, 512}), 1152);
  EXPECT_EQ(bytes_per_token({KvLayout::mla_latent_fp8, DType::fp8_e4m3, 1, 576, 512}), 656);
}

TEST(KvStorage, GivesEveryLayerItsOwnShapeAndMemory) {
  const std::array<LayerKv, 3> layers{{{KvLayout::nhd, DType::f32, 2, 16, 16},
                                       {KvLayout::hnd, DType::bf16, 4, 16, 128},
                                       {KvLayout::mla_latent, DType::bf16, 1, 40, 32}}};
  const std::array<std::int32_t, 3> pages{10, 3, 10};
  Result<KvStorage> storage = KvStorage::make(16, layers, pages);
  ASSERT_TRUE(storage.ok()) << storage.status().text();
  EXPECT_EQ(storage->k(0).shape, (std::array<std::int64_t, 4>{10, 16, 2, 16}));
  EXPECT_EQ(storage->k(1).shape, (std::array<std::int64_t, 4>{3, 4, 16, 16}));
  EXPECT_EQ(storage->v(1).shape, (std::array<std::int64_t, 4>{3, 4, 16, 128}));
  EXPECT_EQ(storage->v(2).data, storage->k(2).data);
  EXPECT_EQ(storage->v(2).shape[3], 32);
  EXPECT_EQ(storage->v(2).stride[2], 40);
  // Keys end where values begin: writing one must leave the other alone.
  std::memset(storage->v(0).data, 1, 10 * 16 * 2 * 16 * 4);
  std::memset(storage->k(0).data, 2, 10 * 16 * 2 * 16 * 4);
  EXPECT_EQ(*storage->v(0).as<unsigned char>(), 1);
}

TEST(KvStorage, ALayerWithoutPagesHasNoMemory) {
  const std::array<LayerKv, 1> layers{{{KvLayout::nhd, DType::f32, 2, 16, 16}}};
  const std::array<std::int32_t, 1> pages{0};
  Result<KvStorage> storage = KvStorage::make(1, layers, pages);
  ASSERT_TRUE(storage.ok());
  EXPECT_EQ(storage->num_bytes(), 0);
  EXPECT_FALSE(storage->k(0).defined());
}

}  // namespace
}  // namespace attune::cache
