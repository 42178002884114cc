// The emulated multiprocessor keeps its promises: it computes what the PTX ISA says, and it catches
// what a card would punish with garbage or silence.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/warpgroup.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "words.hpp"

namespace attune::emulated {
namespace {

namespace ptx = kernels::ptx;

std::string text_of(const Rules& r) {
  return std::string(r.delivery == Delivery::late ? "Late" : "Early") + std::to_string(r.seed);
}

void PrintTo(const Rules& r, std::ostream* out) { *out << text_of(r); }

class Machine : public testing::TestWithParam<Rules> {
 protected:
  void SetUp() override { rules() = GetParam(); }
  void TearDown() override { rules() = {}; }
};

INSTANTIATE_TEST_SUITE_P(Orders, Machine,
                         testing::Values(Rules{}, Rules{Delivery::late, 0},
                                         Rules{Delivery::early, 3}, Rules{Delivery::late, 5}),
                         [](const auto& p) { return text_of(p.param); });

std::string trap_of(dim3 block, const std::function<void()>& thread) {
  try {
    run_grid(1, block, 4096, thread);
  } catch (const Trap& trap) {
    return trap.what();
  }
  return "";
}

std::vector<float> random_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-1.0f, 1.0f);
  std::vector<float> values(n);
  for (float& v : values) v = __bfloat162float(__float2bfloat16(draw(random)));
  return values;
}

TEST_P(Machine, ShufflesAndBallotsFollowTheirMasks) {
  std::vector<int> sums(64);
  std::vector<unsigned> votes(64);
  run_grid(1, 64, 0, [&] {
    int x = static_cast<int>(threadIdx.x);
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    sums[threadIdx.x] = x;
    const bool low = threadIdx.x % 32 < 8;
    votes[threadIdx.x] = low ? __ballot_sync(0x000000ffu, threadIdx.x % 2 == 0)
                             : __ballot_sync(0xffffff00u, threadIdx.x % 2 == 1);
  });
  EXPECT_EQ(sums[0], 496);
  EXPECT_EQ(sums[63], 496 + 32 * 32);
  EXPECT_EQ(votes[0], 0x55u);
  EXPECT_EQ(votes[63], 0xaaaaaa00u);
}

TEST_P(Machine, ADeadlockNamesEveryPlace) {
  const std::string text = trap_of(64, [] {
    if (threadIdx.x < 32)
      ptx::named_barrier_sync(3, 64);
    else
      (void)__shfl_sync(threadIdx.x == 32 ? 0x3u : 0xcu | 1u << threadIdx.x % 32, 1, 0);
  });
  EXPECT_NE(text.find("deadlock"), std::string::npos) << text;
  EXPECT_NE(text.find("32 threads wait for a named barrier"), std::string::npos) << text;
  EXPECT_NE(text.find("__shfl_sync"), std::string::npos) << text;
}

TEST_P(Machine, LanesAtDifferentOperationsTrap) {
  const std::string text = trap_of(32, [] {
    if (threadIdx.x % 2 == 0)
      __syncwarp();
    else
      (void)__any_sync(0xffffffffu, 1);
  });
  EXPECT_NE(text.find("should act as one"), std::string::npos) << text;
}

TEST_P(Machine, MoreArrivalsThanABarrierWasMadeForTrap) {
  const std::string text = trap_of(32, [] {
    auto& b = *reinterpret_cast<ptx::Mbarrier*>(ptx::dynamic_shared<128>());
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(b, 1);
      ptx::mbarrier_arrive_expect(b, 64);
      ptx::mbarrier_arrive(b);
    }
  });
  EXPECT_NE(text.find("more arrivals"), std::string::npos) << text;
}

TEST_P(Machine, ARingOfCopiesDeliversEveryTile) {
  constexpr int kTiles = 9;
  std::vector<float> from = random_values(kTiles * 128, 1);
  std::vector<float> sums(kTiles);
  run_grid(1, 64, 4096, [&] {
    auto* stages = reinterpret_cast<float*>(ptx::dynamic_shared<128>());
    auto* full = reinterpret_cast<ptx::Mbarrier*>(ptx::dynamic_shared<128>() + 2048);
    ptx::Mbarrier* empty = full + 2;
    if (threadIdx.x == 0)
      for (int i = 0; i < 2; ++i) {
        ptx::mbarrier_init(full[i], 32);
        ptx::mbarrier_init(empty[i], 32);
      }
    __syncthreads();
    for (int tile = 0; tile < kTiles; ++tile) {
      const int stage = tile % 2;
      const auto parity = static_cast<std::uint32_t>(tile / 2 % 2);
      if (threadIdx.x < 32) {
        ptx::mbarrier_wait(empty[stage], parity ^ 1);
        ptx::cp_async_16(stages + 128 * stage + 4 * threadIdx.x,
                         from.data() + 128 * tile + 4 * threadIdx.x);
        ptx::cp_async_mbarrier_arrive(full[stage]);
      } else {
        ptx::mbarrier_wait(full[stage], parity);
        float sum = 0;
        for (int i = 0; i < 4; ++i) sum += stages[128 * stage + 4 * (threadIdx.x - 32) + i];
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (threadIdx.x == 32) sums[tile] = sum;
        ptx::mbarrier_arrive(empty[stage]);
      }
    }
  });
  for (int tile = 0; tile < kTiles; ++tile) {
    double sum = 0;
    for (int i = 0; i < 128; ++i) sum += from[static_cast<std::size_t>(128 * tile + i)];
    EXPECT_NEAR(sums[static_cast<std::size_t>(tile)], sum, 1e-4);
  }
}

TEST(MachineLate, AForgottenWaitReadsNaN) {
  rules() = {Delivery::late, 0};
  alignas(16) const float from[4] = {1, 2, 3, 4};
  float got = 0;
  run_grid(1, 1, 128, [&] {
    auto* to = reinterpret_cast<float*>(ptx::dynamic_shared<128>());
    ptx::cp_async_16(to, from);
    ptx::cp_async_commit();
    got = to[1];
  });
  rules() = {};
  EXPECT_TRUE(std::isnan(got));
}

TEST(MachineLate, ACopyToAPlaceStillUnderWayIsCaught) {
  rules() = {Delivery::late, 0};
  alignas(16) const float from[4] = {1, 2, 3, 4};
  const auto copies_twice = [&](bool waits) {
    return trap_of(1, [&] {
      void* const to = ptx::dynamic_shared<128>();
      ptx::cp_async_16(to, from, false);
      ptx::cp_async_commit();
      if (waits) ptx::cp_async_wait<0>();
      ptx::cp_async_16(to, from);
      ptx::cp_async_commit();
      ptx::cp_async_wait<0>();
    });
  };
  const std::string forgotten = copies_twice(false);
  const std::string awaited = copies_twice(true);
  rules() = {};
  EXPECT_NE(forgotten.find("under way"), std::string::npos) << forgotten;
  EXPECT_EQ(awaited, "");
}

TEST_P(Machine, TheWarpsProductIsTheMatrixProduct) {
  const std::vector<float> a = random_values(16 * 16, 1);
  const std::vector<float> b = random_values(16 * 8, 2);
  std::vector<float> c(16 * 8);
  run_grid(1, 32, 1024, [&] {
    // A row by row; B stored as rows of k, read transposed, as a kernel does with V.
    auto* shared = reinterpret_cast<__nv_bfloat16*>(ptx::dynamic_shared<128>());
    __nv_bfloat16* b_shared = shared + 256;
    for (unsigned i = threadIdx.x; i < 256; i += 32) shared[i] = __float2bfloat16(a[i]);
    for (unsigned i = threadIdx.x; i < 128; i += 32) b_shared[i] = __float2bfloat16(b[i]);
    __syncwarp();
    const unsigned l = threadIdx.x;
    std::uint32_t fa[4];
    std::uint32_t fb[4];
    ptx::ldmatrix_x4(fa, ptx::shared_address(shared + (l % 16) * 16 + l / 16 * 8));
    ptx::ldmatrix_x4_trans(fb, ptx::shared_address(b_shared + l % 16 * 8));
    float d[4] = {};
    ptx::mma_16x8x16<__nv_bfloat16>(d, fa, fb[0], fb[1]);
    for (unsigned i = 0; i < 4; ++i) c[(l / 4 + 8 * (i / 2)) * 8 + 2 * (l % 4) + i % 2] = d[i];
  });
  for (std::size_t row = 0; row < 16; ++row)
    for (std::size_t column = 0; column < 8; ++column) {
      double sum = 0;
      for (std::size_t k = 0; k < 16; ++k) sum += double{a[row * 16 + k]} * b[k * 8 + column];
      EXPECT_NEAR(c[row * 8 + column], sum, 1e-5);
    }
}

/// D = A B for A [64, 64] stored K-major and B stored as [k, n] (MN-major), both brought by the
/// copy engine with the 128-byte swizzle.
TEST_P(Machine, TheWarpgroupsProductReadsWhatTheCopyEngineWrote) {
  const std::vector<float> a = random_values(64 * 64, 1);
  const std::vector<float> b = random_values(64 * 128, 2);
  const auto narrow = [](const std::vector<float>& from) {
    __nv_bfloat16* to = nullptr;
    (void)cudaMalloc(reinterpret_cast<void**>(&to), from.size() * 2);
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = __float2bfloat16(from[i]);
    return to;
  };
  __nv_bfloat16* a_memory = narrow(a);
  __nv_bfloat16* b_memory = narrow(b);
  const auto map_of = [](void* base, cuuint64_t columns, cuuint64_t rows) {
    CUtensorMap map{};
    const cuuint64_t dims[] = {columns, rows, 1};
    const cuuint64_t strides[] = {columns * 2, columns * rows * 2};
    const cuuint32_t box[] = {64, 64, 1};
    const cuuint32_t ones[] = {1, 1, 1};
    EXPECT_EQ(encode_tensor_map(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, base, dims, strides, box,
                                ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
              CUDA_SUCCESS);
    return map;
  };
  const CUtensorMap a_map = map_of(a_memory, 64, 64);
  const CUtensorMap b_map = map_of(b_memory, 128, 64);
  std::vector<float> c(64 * 128);
  run_grid(1, 128, 32768, [&] {
    unsigned char* memory = ptx::dynamic_shared<1024>();
    unsigned char* b_shared = memory + 8192;
    auto& done = *reinterpret_cast<ptx::Mbarrier*>(memory + 3 * 8192);
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(done, 1);
      ptx::mbarrier_init_fence();
      ptx::mbarrier_arrive_expect(done, 3 * 8192);
      ptx::tma_load(memory, a_map, done, ptx::CacheHint::evict_first, 0, 0, 0);
      ptx::tma_load(b_shared, b_map, done, ptx::CacheHint::evict_first, 0, 0, 0);
      ptx::tma_load(b_shared + 8192, b_map, done, ptx::CacheHint::evict_first, 64, 0, 0);
    }
    __syncthreads();
    ptx::mbarrier_wait(done, 0);
    float d[64];
    const std::uint64_t a_tile = ptx::wgmma_descriptor(memory);
    const std::uint64_t b_tile = ptx::wgmma_descriptor(b_shared, 8192);
    ptx::wgmma_fence();
    for (unsigned step = 0; step < 4; ++step)
      ptx::wgmma_ss<__nv_bfloat16, 128, ptx::Major::k, ptx::Major::mn>(
          d, a_tile + step * (32 >> 4), b_tile + step * (2048 >> 4), step > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    const unsigned t = threadIdx.x;
    for (unsigned i = 0; i < 64; ++i)
      c[(16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2)) * 128 + 8 * (i / 4) + 2 * (t % 4) + i % 2] =
          d[i];
  });
  for (std::size_t row = 0; row < 64; ++row)
    for (std::size_t column = 0; column < 128; ++column) {
      double sum = 0;
      for (std::size_t k = 0; k < 64; ++k) sum += double{a[row * 64 + k]} * b[k * 128 + column];
      ASSERT_NEAR(c[row * 128 + column], sum, 1e-4) << row << ", " << column;
    }
  (void)cudaFree(a_memory);
  (void)cudaFree(b_memory);
}

__global__ void add_one(int* counter) { atomicAdd(counter, 1); }

TEST(Runtime, AGraphReplaysItsLaunches) {
  int* counter = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&counter), sizeof(int)), cudaSuccess);
  *counter = 0;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ptx::launch(add_one, 3, 32, 0, stream, counter);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(*counter, 0);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  EXPECT_EQ(*counter, 192);
  (void)cudaGraphExecDestroy(exec);
  (void)cudaGraphDestroy(graph);
  (void)cudaStreamDestroy(stream);
  (void)cudaFree(counter);
}

}  // namespace
}  // namespace attune::emulated
