#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "../cache/prefix_machine.hpp"

namespace {

void stop_at(const std::string& error) {
  if (error.empty()) return;
  std::fprintf(stderr, "%s\n", error.c_str());
  std::abort();
}

}  // namespace

// The first byte says what kind of cache, the others what happens to it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint8_t* at = data + 1;
  const std::uint8_t* const end = data + size;
  const auto next = [&](std::uint32_t n) -> std::uint32_t { return at < end ? *at++ % n : 0; };
  attune::testing::MachineSetup setup;
  setup.page_size = 1 + (data[0] & 3);
  setup.policy = static_cast<attune::EvictionPolicy>((data[0] >> 2 & 3) % 3);
  if ((data[0] & 16) != 0) setup.windows = {-1, 5};
  if ((data[0] & 48) == 48) setup.windows = {3, 8};
  setup.num_pages = {40, 40};
  setup.checkpoints = (data[0] & 64) != 0;
  setup.granule = (data[0] & 128) != 0 ? 2 * setup.page_size : 1;
  setup.partial_pages = (data[0] & 192) == 0;
  attune::testing::PrefixMachine machine(setup, next);
  while (at < end) {
    stop_at(machine.step());
    if (const attune::Status s = machine.check(); !s.ok()) stop_at(s.text());
  }
  stop_at(machine.drain());
  return 0;
}
