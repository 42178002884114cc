// One streaming multiprocessor in plain C++: every thread of a block is a fiber, and whatever
// threads do together (warp shuffles, matrix products, barriers) is a meeting that the last one to
// come carries out for all.
//
// Blocks of a grid run one after another on the caller's thread, those of a cluster or of a
// cooperative launch side by side. Where nobody can go on is a deadlock, reported with each thread's place; on a card it
// would hang.
//
// Asynchronous copies and products have two extremes, both legal on a card, and a correct kernel
// gives the same bits under either: `early` carries each out when it is asked for, `late` when it
// is waited for, or when nobody can go on without it.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

namespace attune::emulated {

enum class Delivery : std::uint8_t { early, late };

struct Rules {
  Delivery delivery = Delivery::early;
  /// 0: threads run in order. Else the order is drawn anew at every turn, from this seed.
  std::uint32_t seed = 0;
};

/// Of the launches to come, of the whole process. ATTUNE_EMULATED_DELIVERY (early, late) and
/// ATTUNE_EMULATED_SEED set them at first.
[[nodiscard]] Rules& rules();

/// What a card would answer with a sticky error, or with silence.
struct Trap : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Blocks that run side by side: as many neighbours, or all.
inline constexpr unsigned kAllBlocks = 0;

/// Runs `thread` once for every thread of the grid. Throws Trap.
void run_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
              const std::function<void()>& thread, unsigned side_by_side = 1);

// What follows is called by threads of a running block.

/// `lanes` holds what each member brought, by lane (null where the mask has no bit).
using Together = void (*)(void* const* lanes);

/// The warp's threads of `mask` meet; `what` must be the same for all of them.
void meet_warp(std::uint32_t mask, const char* what, void* lane, Together together);
/// The 128 threads of a warpgroup meet.
void meet_warpgroup(const char* what, void* lane, Together together);

/// bar.sync and bar.arrive; threads = 0 stands for the whole block.
void barrier_sync(int id, int threads);
void barrier_arrive(int id, int threads);

/// All threads of all blocks that run side by side meet.
void meet_cluster();
[[nodiscard]] int cluster_rank();
[[nodiscard]] int cluster_size();
/// What block `rank` has where the caller's block has `mine`, in dynamic shared memory.
[[nodiscard]] void* shared_of(int rank, const void* mine);

/// Sleeps until somebody wakes `place`; the caller checks its condition anew.
void sleep_on(const void* place, const char* what);
void wake(const void* place);
/// Lets every other thread go first.
void yield();

/// Late delivery: `deliver` runs when no thread can go on.
void defer(std::function<void()> deliver);

[[nodiscard]] unsigned char* shared_memory();
[[nodiscard]] std::uint32_t shared_address(const void* p);
[[nodiscard]] unsigned char* shared_pointer(std::uint32_t address);
[[nodiscard]] int current_thread();  ///< 0 … threads of the block - 1
[[nodiscard]] int num_threads();
[[noreturn]] void trap(const std::string& what);

/// State a thread's verbs keep between calls (its copies under way); cleared for every block.
struct ThreadState {
  std::function<void()> settle;  ///< at the thread's end
  std::shared_ptr<void> copies;
  std::function<void()> settle_stores;
  std::shared_ptr<void> stores;
};
[[nodiscard]] ThreadState& thread_state();
/// The same for the calling thread's warpgroup.
[[nodiscard]] std::shared_ptr<void>& warpgroup_state();

}  // namespace attune::emulated
