#include "weights.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attune::fuzz::read_gguf(std::as_bytes(std::span(data, size)));
  return 0;
}
