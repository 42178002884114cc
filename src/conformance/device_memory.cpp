#include "conformance/device_memory.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "base/join.hpp"
#include "base/math.hpp"

namespace attune::conformance {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kGuardBytes = 512;
constexpr unsigned char kGuardByte = 0xa5;

class HostMemory final : public DeviceMemory {
 public:
  ~HostMemory() override {
    while (!sparse_.empty()) release(sparse_.begin()->first);
  }

  [[nodiscard]] Stream stream() const override { return {}; }
  Result<Stream> second_stream() override { return unsupported("a CPU has no streams"); }

  Result<void*> allocate(std::size_t bytes) override {
    void* memory = std::aligned_alloc(kAlignment, base::round_up(bytes + 1, kAlignment));
    if (memory == nullptr)
      return Status(StatusCode::out_of_memory, base::join("no memory for ", bytes, " bytes"));
    return memory;
  }

  Result<void*> allocate_sparse(std::size_t bytes) override {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      return Status(StatusCode::out_of_memory,
                    base::join("no address space for ", bytes, " bytes"));
    sparse_[memory] = bytes;
    return memory;
  }

  void release(void* memory) override {
    const auto found = sparse_.find(memory);
    if (found == sparse_.end()) {
      std::free(memory);
      return;
    }
    munmap(memory, found->second);
    sparse_.erase(found);
  }

  Status copy_in(void* device, const void* host, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
    return {};
  }
  Status copy_out(void* host, const void* device, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
    return {};
  }
  Status fill(void* device, unsigned char byte, std::size_t bytes) override {
    std::memset(device, byte, bytes);
    return {};
  }
  Status synchronize() override { return {}; }
  Result<std::unique_ptr<Recording>> record(const std::function<Status(Stream)>&) override {
    return unsupported("a CPU records no graphs");
  }

 private:
  std::map<void*, std::size_t> sparse_;
};

}  // namespace

std::unique_ptr<DeviceMemory> host_memory() { return std::make_unique<HostMemory>(); }

Result<GuardedMemory> GuardedMemory::make(DeviceMemory& memory, std::size_t bytes,
                                          unsigned char fill) {
  const Result<void*> base = memory.allocate(bytes + 2 * kGuardBytes);
  if (!base.ok()) return base.status();
  GuardedMemory made;
  made.memory_ = &memory;
  made.base_ = static_cast<char*>(*base);
  made.bytes_ = bytes;
  if (Status s = memory.fill(made.base_, kGuardByte, bytes + 2 * kGuardBytes); !s.ok()) return s;
  if (Status s = memory.fill(made.data(), fill, bytes); !s.ok()) return s;
  return made;
}

GuardedMemory& GuardedMemory::operator=(GuardedMemory&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

GuardedMemory::~GuardedMemory() {
  if (base_ != nullptr) memory_->release(base_);
}

char* GuardedMemory::data() const { return base_ == nullptr ? nullptr : base_ + kGuardBytes; }

Status GuardedMemory::upload(const std::vector<char>& bytes) {
  require(bytes.size() == bytes_, "an upload fills the memory exactly");
  return memory_->copy_in(data(), bytes.data(), bytes.size());
}

Result<std::vector<char>> GuardedMemory::download() const {
  std::vector<char> bytes(bytes_);
  if (bytes_ == 0) return bytes;
  if (Status s = memory_->copy_out(bytes.data(), data(), bytes_); !s.ok()) return s;
  return bytes;
}

Status GuardedMemory::check_guards(const char* what) const {
  if (base_ == nullptr) return {};
  std::vector<char> guard(kGuardBytes);
  for (const char* at : {base_, base_ + kGuardBytes + bytes_}) {
    if (Status s = memory_->copy_out(guard.data(), at, kGuardBytes); !s.ok()) return s;
    for (const char byte : guard)
      if (static_cast<unsigned char>(byte) != kGuardByte)
        return internal_error(
            base::join("bytes ", at == base_ ? "before " : "behind ", what, " were overwritten"));
  }
  return {};
}

}  // namespace attune::conformance
