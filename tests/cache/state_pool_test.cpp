#include "cache/state_pool.hpp"

#include <gtest/gtest.h>

#include <array>

namespace attune::cache {
namespace {

constexpr std::array<StateShape, 3> kShapes{StateShape{.heads = 2,
                                                       .dim_v = 3,
                                                       .dim_k = 4,
                                                       .conv_channels = 5,
                                                       .conv_history = 3,
                                                       .conv_dtype = DType::bf16},
                                            StateShape{},  // a softmax layer keeps no state
                                            StateShape{.conv_channels = 7, .conv_history = 2}};

float& recurrent(const StatePool& pool, std::int32_t slot, std::int64_t i) {
  return pool.recurrent(0).as<float>()[slot * 24 + i];
}

TEST(StatePool, CountsItsBytesByLayer) {
  const Result<StatePool> pool = StatePool::make(kShapes, 4);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->bytes_per_slot(), 2 * 3 * 4 * 4 + 5 * 3 * 2 + 7 * 2 * 4);
  EXPECT_FALSE(pool->recurrent(1).defined());
  EXPECT_EQ(pool->conv(0).dtype, DType::bf16);
  EXPECT_FALSE(pool->recurrent(2).defined());
}

TEST(StatePool, ASlotIsZeroWheneverItIsHandedOut) {
  Result<StatePool> pool = StatePool::make(kShapes, 1);
  ASSERT_TRUE(pool.ok());
  const std::int32_t slot = *pool->allocate();
  recurrent(*pool, slot, 23) = 5.0f;
  pool->conv(2).as<float>()[13] = 5.0f;
  EXPECT_EQ(pool->allocate().status().code(), StatusCode::out_of_pages);
  ASSERT_TRUE(pool->release(slot).ok());
  ASSERT_EQ(*pool->allocate(), slot);
  EXPECT_EQ(recurrent(*pool, slot, 23), 0.0f);
  EXPECT_EQ(pool->conv(2).as<float>()[13], 0.0f);
}

TEST(StatePool, ReleasedAndUnknownSlotsAreRefused) {
  Result<StatePool> pool = StatePool::make(kShapes, 2);
  ASSERT_TRUE(pool.ok());
  const std::int32_t slot = *pool->allocate();
  ASSERT_TRUE(pool->release(slot).ok());
  EXPECT_EQ(pool->release(slot).code(), StatusCode::invalid_argument);
  EXPECT_EQ(pool->release(-1).code(), StatusCode::invalid_argument);
  EXPECT_EQ(pool->release(2).code(), StatusCode::invalid_argument);
  EXPECT_EQ(pool->snapshot(slot).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(pool->num_free(), 2);
}

TEST(StatePool, SnapshotsBringEveryLayerBack) {
  Result<StatePool> pool = StatePool::make(kShapes, 3);
  ASSERT_TRUE(pool.ok());
  const std::int32_t a = *pool->allocate();
  const std::int32_t b = *pool->allocate();
  recurrent(*pool, a, 7) = 1.5f;
  pool->conv(2).as<float>()[a * 14 + 3] = 2.5f;
  const Result<StateSnapshot> taken = pool->snapshot(a);
  ASSERT_TRUE(taken.ok());
  recurrent(*pool, a, 7) = 9.0f;
  ASSERT_TRUE(pool->restore(b, *taken).ok());
  EXPECT_EQ(recurrent(*pool, b, 7), 1.5f);
  EXPECT_EQ(pool->conv(2).as<float>()[b * 14 + 3], 2.5f);
  ASSERT_TRUE(pool->copy(a, b).ok());
  EXPECT_EQ(recurrent(*pool, b, 7), 9.0f);
  EXPECT_EQ(pool->restore(b, StateSnapshot{}).code(), StatusCode::invalid_argument);
}

/// A device's memory cannot be touched from here: everything goes through its verbs.
TEST(StatePool, KeepsToTheMemoryItIsGiven) {
  int cleared = 0;
  int copied = 0;
  StateMemory memory = host_state_memory();
  memory.clear = [&, clear = memory.clear](void* to, std::size_t bytes) {
    ++cleared;
    clear(to, bytes);
  };
  memory.copy = [&, copy = memory.copy](void* to, const void* from, std::size_t bytes) {
    ++copied;
    copy(to, from, bytes);
  };
  memory.download = [](void*, const void*, std::size_t) {
    return Status(StatusCode::device_error, "the device is gone");
  };
  Result<StatePool> pool = StatePool::make(kShapes, 2, memory);
  ASSERT_TRUE(pool.ok());
  const std::int32_t a = *pool->allocate();
  const std::int32_t b = *pool->allocate();
  EXPECT_EQ(cleared, 2 * 3);  // a recurrence and two convolutions
  ASSERT_TRUE(pool->copy(a, b).ok());
  EXPECT_EQ(copied, 3);
  EXPECT_EQ(pool->snapshot(a).status().code(), StatusCode::device_error);

  memory.allocate = [](std::size_t) -> Result<std::shared_ptr<void>> {
    return Status(StatusCode::out_of_memory, "full");
  };
  EXPECT_EQ(StatePool::make(kShapes, 2, memory).status().code(), StatusCode::out_of_memory);
}

}  // namespace
}  // namespace attune::cache
