// NUMA nodes as Linux describes them, and memory spread over them.
#include "device/numa.hpp"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "device/cpu_features.hpp"
#include "support/scratch_folder.hpp"

namespace attune::device {
namespace {

namespace fs = std::filesystem;

class NumaFolder : public testing::Test {
 protected:
  void node(const std::string& name, const std::string& cpulist) {
    fs::create_directories(folder_ / name);
    std::ofstream(folder_ / (name + "/cpulist")) << cpulist << '\n';
  }
  std::vector<NumaNode> nodes() const { return numa_nodes(folder_.path()); }

  static std::vector<int> all_cores() {
    std::vector<int> cores;
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    return cores;
  }

  testing_support::ScratchFolder folder_;
};

TEST_F(NumaFolder, CoresGoToTheirNodes) {
  const std::vector<int> cores = all_cores();
  const std::string first = std::to_string(cores.front());
  node("node10", first + "-" + std::to_string(cores.back()));  // gaps included
  node("node2", "900-902," + first);
  node("node3", "1000-1010");  // none that this process may use
  fs::create_directories(folder_ / "power");
  const std::vector<NumaNode> found = nodes();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].id, 2);
  EXPECT_EQ(found[0].cores, std::vector<int>{cores.front()});
  EXPECT_EQ(found[1].id, 10);
  EXPECT_EQ(found[1].cores, cores);
}

TEST_F(NumaFolder, WhatIsNoListNamesNothing) {
  for (const char* text : {"", "x", "0-", "-1", "3-x", "0-99999999"}) {
    node("node0", text);
    const std::vector<NumaNode> found = nodes();
    ASSERT_EQ(found.size(), 1u) << text;
    EXPECT_EQ(found[0].cores, all_cores()) << text;
  }
}

TEST(Numa, ThisMachineHasAllItsCoresOnSomeNode) {
  std::size_t cores = 0;
  for (const NumaNode& node : numa_nodes()) cores += node.cores.size();
  EXPECT_EQ(cores, static_cast<std::size_t>(usable_cores()));
  EXPECT_EQ(numa_nodes("/nowhere").size(), 1u);
}

TEST(Numa, MemoryIsSpreadOverTheNodesNamed) {
  constexpr std::size_t kBytes = 1 << 16;
  void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  const std::span<std::byte> memory(static_cast<std::byte*>(data), kBytes);
  const auto policy = [&] {
    int mode = -1;
    return syscall(SYS_get_mempolicy, &mode, nullptr, 0, data, MPOL_F_ADDR) == 0 ? mode : -1;
  };
  const int before = policy();
  if (before < 0) GTEST_SKIP() << "this system does not tell where memory comes from";
  EXPECT_TRUE(spread_over(std::vector<NumaNode>{{.id = 0, .cores = {0}}}, memory));
  EXPECT_EQ(policy(), before);  // one node: nothing to spread

  // A node the machine lacks beside one it has: the system takes the one.
  const bool spread =
      spread_over(std::vector<NumaNode>{{.id = 0, .cores = {0}}, {.id = 63, .cores = {1}}}, memory);
  EXPECT_EQ(policy(), spread ? MPOL_INTERLEAVE : before);
  memory[0] = std::byte{1};  // and the memory is there
  munmap(data, kBytes);
}

}  // namespace
}  // namespace attune::device
