// NUMA nodes: which cores and which memory belong together (layer device).
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace attune::device {

struct NumaNode {
  int id = 0;
  std::vector<int> cores;  ///< those this process may use
};

/// The nodes whose cores this process may use, in order; one node of all cores where the system
/// names none. `root`: where Linux describes them.
[[nodiscard]] std::vector<NumaNode> numa_nodes(
    const std::filesystem::path& root = "/sys/devices/system/node");

/// Pages of `memory` (whole pages, not yet touched) come from the nodes in turn: threads on all of
/// them then read at the speed of all memories together. With one node nothing is done. A refusal
/// by the system costs speed only; false then.
bool spread_over(std::span<const NumaNode> nodes, std::span<std::byte> memory);

}  // namespace attune::device
