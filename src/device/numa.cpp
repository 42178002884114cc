#include "device/numa.hpp"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "device/cpu_features.hpp"

namespace attune::device {
namespace {

namespace fs = std::filesystem;

std::optional<int> number_of(std::string_view text) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size() || n < 0) return std::nullopt;
  return n;
}

/// "0-3,8,10-11"; what is no such list names nothing.
std::vector<int> read_list(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  std::vector<int> numbers;
  std::string_view rest(line);
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const std::size_t dash = part.find('-');
    const auto first = number_of(part.substr(0, dash));
    const auto last = dash == part.npos ? first : number_of(part.substr(dash + 1));
    if (!first || !last || *last >= CPU_SETSIZE) return {};
    for (int n = *first; n <= *last; ++n) numbers.push_back(n);
  }
  return numbers;
}

}  // namespace

std::vector<NumaNode> numa_nodes(const fs::path& root) {
  const std::vector<int> mine = usable_core_numbers();
  std::vector<NumaNode> nodes;
  std::error_code error;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    constexpr std::string_view kPrefix = "node";
    if (!name.starts_with(kPrefix)) continue;
    const auto id = number_of(std::string_view(name).substr(kPrefix.size()));
    if (!id) continue;
    NumaNode node{.id = *id, .cores = {}};
    for (const int core : read_list(at->path() / "cpulist"))
      if (std::ranges::binary_search(mine, core)) node.cores.push_back(core);
    if (!node.cores.empty()) nodes.push_back(std::move(node));
  }
  std::ranges::sort(nodes, {}, &NumaNode::id);
  if (nodes.empty()) nodes.push_back({.id = 0, .cores = mine});
  return nodes;
}

bool spread_over(std::span<const NumaNode> nodes, std::span<std::byte> memory) {
  if (nodes.size() < 2) return true;
  constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> mask(static_cast<std::size_t>(nodes.back().id) / kBits + 1, 0);
  for (const NumaNode& node : nodes) {
    const auto bit = static_cast<std::size_t>(node.id);
    mask[bit / kBits] |= 1ul << (bit % kBits);
  }
  // The kernel reads one bit less than it is told.
  return ::syscall(SYS_mbind, memory.data(), memory.size(), MPOL_INTERLEAVE, mask.data(),
                   mask.size() * kBits + 1, 0ul) == 0;
}

}  // namespace attune::device
