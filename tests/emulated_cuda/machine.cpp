#include "machine.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "block.hpp"

dim3 blockDim{};
dim3 gridDim{};

namespace attune::emulated {
namespace {

/// The n-th of those that run side by side.
Block& nth_block(std::size_t n) {
  static std::vector<std::unique_ptr<Block>> all;
  while (all.size() <= n) all.push_back(std::make_unique<Block>(all.empty()));
  return *all[n];
}

/// The blocks that run side by side, and their threads' meeting.
struct Cluster {
  std::vector<Block*> blocks;
  int arrived = 0;
  unsigned phase = 0;
};
Cluster cluster;

void run_blocks(const std::vector<Block*>& blocks) {
  for (;;) {
    bool any = false;
    for (Block* const b : blocks) {
      any |= b->turn();
      if (b->trapped()) throw Trap(*b->trapped());
    }
    if (any) continue;
    // What is left when all have ended is delivered as well.
    for (Block* const b : blocks)
      if (!any) any = b->deliver_one();
    if (any) continue;
    std::string places;
    for (Block* const b : blocks)
      if (!b->ended()) places += (places.empty() ? "" : "; ") + b->places();
    if (places.empty()) return;
    throw Trap("deadlock: " + places);
  }
}

}  // namespace

Rules& rules() {
  static Rules the_rules = [] {
    Rules from_environment;
    if (const char* delivery = std::getenv("ATTUNE_EMULATED_DELIVERY"))
      from_environment.delivery =
          std::strcmp(delivery, "late") == 0 ? Delivery::late : Delivery::early;
    if (const char* seed = std::getenv("ATTUNE_EMULATED_SEED"))
      from_environment.seed = static_cast<std::uint32_t>(std::strtoul(seed, nullptr, 10));
    return from_environment;
  }();
  return the_rules;
}

void run_grid(dim3 grid, dim3 size, std::size_t dynamic_shared_bytes,
              const std::function<void()>& thread, unsigned side_by_side) {
  static std::mutex one_launch;
  const std::lock_guard lock(one_launch);
  gridDim = grid;
  blockDim = size;
  std::vector<Block*>& blocks = cluster.blocks;
  blocks.clear();
  cluster.arrived = 0;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blocks.push_back(&nth_block(blocks.size()));
        blocks.back()->start({x, y, z}, size, dynamic_shared_bytes, thread);
        if (side_by_side == kAllBlocks || blocks.size() < side_by_side) continue;
        run_blocks(blocks);
        blocks.clear();
      }
  if (!blocks.empty()) run_blocks(blocks);
}

void meet_warp(std::uint32_t mask, const char* what, void* lane, Together together) {
  const int warp = block().current() / 32;
  const int own = block().current() % 32;
  if ((mask >> own & 1) == 0) trap(std::string(what) + ": the mask leaves out its own caller");
  const int members = mask == 0xffffffffu ? 32 : __builtin_popcount(mask);
  block().meet(block().of_warp(warp, mask), members, own, what, lane, together);
}

void meet_warpgroup(const char* what, void* lane, Together together) {
  const int thread = block().current();
  block().meet(block().of_warpgroup(thread / 128), 128, thread % 128, what, lane, together);
}

void barrier_sync(int id, int threads) { block().barrier(id, threads, true); }
void barrier_arrive(int id, int threads) { block().barrier(id, threads, false); }

void meet_cluster() {
  int threads = 0;
  for (const Block* const b : cluster.blocks) threads += b->size();
  const unsigned phase = cluster.phase;
  if (++cluster.arrived == threads) {
    cluster.arrived = 0;
    ++cluster.phase;
    for (Block* const b : cluster.blocks) b->wake(&cluster);
    return;
  }
  while (cluster.phase == phase) block().sleep_on(&cluster, "the cluster");
}
int cluster_rank() {
  for (std::size_t rank = 0; rank < cluster.blocks.size(); ++rank)
    if (cluster.blocks[rank] == &block()) return static_cast<int>(rank);
  trap("a block that is in no cluster");
}
int cluster_size() { return static_cast<int>(cluster.blocks.size()); }
void* shared_of(int rank, const void* mine) {
  if (rank < 0 || rank >= cluster_size()) trap("a cluster has no such block");
  const auto at =
      static_cast<std::ptrdiff_t>(shared_address(mine)) - static_cast<std::ptrdiff_t>(kSharedBase);
  return cluster.blocks[static_cast<std::size_t>(rank)]->memory() + at;
}

void sleep_on(const void* place, const char* what) { block().sleep_on(place, what); }
void wake(const void* place) { block().wake(place); }
void yield() { block().yield(); }
void defer(std::function<void()> deliver) { block().defer(std::move(deliver)); }
unsigned char* shared_memory() { return block().memory(); }
int current_thread() { return block().current(); }
int num_threads() { return block().size(); }
void trap(const std::string& what) { block().trap(what); }
ThreadState& thread_state() { return block().thread().state; }
std::shared_ptr<void>& warpgroup_state() { return block().warpgroup(); }

std::uint32_t shared_address(const void* p) {
  const auto offset = static_cast<const unsigned char*>(p) - block().begin();
  if (offset < static_cast<std::ptrdiff_t>(kSharedBase) ||
      offset > static_cast<std::ptrdiff_t>(kSharedBase + kSharedBytes))
    trap("an address outside the block's dynamic shared memory is used as a shared one");
  return static_cast<std::uint32_t>(offset);
}

unsigned char* shared_pointer(std::uint32_t address) {
  if (address < kSharedBase || address >= kSharedBase + kSharedBytes)
    trap("shared address " + std::to_string(address) + " is outside the block's memory");
  return block().memory() + (address - kSharedBase);
}

}  // namespace attune::emulated
