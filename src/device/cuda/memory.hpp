// Owned device memory, page-locked host memory, streams and events (layer device). For engines,
// tests and benchmarks: backends work in memory their caller owns.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include <cuda_runtime_api.h>

#include <attune/device.hpp>
#include <attune/status.hpp>

namespace attune::device::cuda {

enum class MemoryKind : unsigned char { device, page_locked };

/// One allocation, freed with its owner. Zero bytes own nothing.
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  [[nodiscard]] static Result<Memory> allocate(MemoryKind kind, std::size_t bytes);

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void swap(Memory& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(kind_, other.kind_);
  }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::device;
};

[[nodiscard]] inline cudaStream_t native(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

/// Copies ordinary host memory, in the stream's order; returns when it has been read. `what` goes
/// into the status.
[[nodiscard]] Status copy_to_device(void* to, const void* from, std::size_t bytes, Stream stream,
                                    std::string_view what);

/// What plan() needs to know of a card; read once, when a backend is made.
struct CardFacts {
  int sm = 0;  ///< 10 * major + minor
  int num_sms = 0;
  int shared_bytes_per_block = 0;  ///< the opt-in maximum
};

[[nodiscard]] Result<CardFacts> card_facts(int ordinal);

/// Whether `pointer` may be read by kernels as it is. Ordinary host memory is not; nullptr is not.
[[nodiscard]] bool is_device_readable(const void* pointer);

}  // namespace attune::device::cuda
