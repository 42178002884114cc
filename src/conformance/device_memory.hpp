// DeviceMemory: the little that the suite needs to know about where a backend's tensors live (layer
// conformance). The caller gives one; host memory is here, an accelerator's comes from its library.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>

namespace attune::conformance {

/// Work recorded once and replayed at the same addresses (a CUDA graph).
class Recording {
 public:
  virtual ~Recording() = default;
  virtual Status replay() = 0;
};

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  [[nodiscard]] virtual Stream stream() const = 0;
  /// A queue beside it, for work at the same time; unsupported where threads take its place.
  virtual Result<Stream> second_stream() = 0;
  /// Aligned to 256 bytes.
  virtual Result<void*> allocate(std::size_t bytes) = 0;
  /// Address space for a pool of which few pages are touched; zero where untouched.
  virtual Result<void*> allocate_sparse(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  virtual Status copy_in(void* device, const void* host, std::size_t bytes) = 0;
  virtual Status copy_out(void* host, const void* device, std::size_t bytes) = 0;
  virtual Status fill(void* device, unsigned char byte, std::size_t bytes) = 0;
  /// Waits for both streams.
  virtual Status synchronize() = 0;
  /// Records what `work` puts on the stream; unsupported where there are no graphs.
  virtual Result<std::unique_ptr<Recording>> record(const std::function<Status(Stream)>& work) = 0;
};

/// Ordinary memory, for CPU backends.
[[nodiscard]] std::unique_ptr<DeviceMemory> host_memory();

/// Device memory between two guards of known bytes: a write before or behind it is found.
class GuardedMemory {
 public:
  static Result<GuardedMemory> make(DeviceMemory& memory, std::size_t bytes, unsigned char fill);
  GuardedMemory() = default;
  GuardedMemory(GuardedMemory&& other) noexcept { *this = std::move(other); }
  GuardedMemory& operator=(GuardedMemory&& other) noexcept;
  ~GuardedMemory();

  [[nodiscard]] char* data() const;
  [[nodiscard]] std::size_t size() const { return bytes_; }
  Status upload(const std::vector<char>& bytes);
  [[nodiscard]] Result<std::vector<char>> download() const;
  /// Failed when a guard changed.
  [[nodiscard]] Status check_guards(const char* what) const;

 private:
  DeviceMemory* memory_ = nullptr;
  char* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace attune::conformance
