#include <cstddef>
#include <cstdint>

#include "text.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attune::fuzz::read_tokenizer({reinterpret_cast<const char*>(data), size});
  return 0;
}
