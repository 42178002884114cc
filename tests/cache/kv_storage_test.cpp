#include "cache/kv_storage.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace attune::cache {
namespace {

using Shape = std::array<std::int64_t, 4>;

TEST(KvStorage, GivesEveryLayerItsOwnShapeAndMemory) {
  const std::array<LayerPages, 3> layers{
      {{{KvLayout::nhd, DType::f32, 16, 2, 16, 16}, 10},
       {{KvLayout::hnd, DType::bf16, 16, 4, 16, 128}, 3},
       {{KvLayout::mla_latent, DType::bf16, 16, 1, 40, 32}, 10}}};
  Result<KvStorage> storage = KvStorage::make(layers);
  ASSERT_TRUE(storage.ok()) << storage.status().text();
  EXPECT_EQ(storage->k(0).shape, (Shape{10, 16, 2, 16}));
  EXPECT_EQ(storage->k(1).shape, (Shape{3, 4, 16, 16}));
  EXPECT_EQ(storage->v(1).shape, (Shape{3, 4, 16, 128}));
  EXPECT_EQ(storage->v(2).data, storage->k(2).data);
  // Writing all keys must leave the values alone.
  std::memset(storage->v(0).data, 1, 10 * 16 * 2 * 16 * sizeof(float));
  std::memset(storage->k(0).data, 2, 10 * 16 * 2 * 16 * sizeof(float));
  EXPECT_EQ(*storage->v(0).as<unsigned char>(), 1);
}

TEST(KvStorage, ALayerWithoutPagesHasNoMemory) {
  const std::array<LayerPages, 1> layers{{{{KvLayout::nhd, DType::f32, 1, 2, 16, 16}, 0}}};
  Result<KvStorage> storage = KvStorage::make(layers);
  ASSERT_TRUE(storage.ok());
  EXPECT_EQ(storage->num_bytes(), 0);
  EXPECT_FALSE(storage->k(0).defined());
}

TEST(KvStorage, CompressedKeysHavePagesOfTheirOwnPool) {
  const std::array<LayerPages, 1> layers{{{.shape = {KvLayout::mla_latent, DType::f32, 16, 1, 8, 8},
                                           .num_pages = 3,
                                           .index_head_dim = 5,
                                           .index_dtype = DType::bf16,
                                           .compress_ratio = 4,
                                           .compressed_pages = 10}}};
  Result<KvStorage> storage = KvStorage::make(layers);
  ASSERT_TRUE(storage.ok()) << storage.status().text();
  EXPECT_EQ(storage->k(0).shape, (Shape{3, 16, 8}));
  EXPECT_EQ(storage->compressed(0).shape, (Shape{10, 4, 8}));
  EXPECT_EQ(storage->index(0).shape, (Shape{10, 4, 5}));
  std::memset(storage->compressed(0).data, 1, 10 * 4 * 8 * sizeof(float));
  std::memset(storage->index(0).data, 2, 10 * 4 * 5 * 2);
  std::memset(storage->k(0).data, 3, 3 * 16 * 8 * sizeof(float));
  EXPECT_EQ(*storage->compressed(0).as<unsigned char>(), 1);
  EXPECT_EQ(*storage->index(0).as<unsigned char>(), 2);
}

}  // namespace
}  // namespace attune::cache
