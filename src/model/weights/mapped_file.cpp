#include "model/weights/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace attune::model {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const auto failed = [&](const char* verb) {
    return invalid_argument(std::string("cannot ") + verb + " " + path + ": " +
                            std::strerror(errno));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("open");
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) {
    const Status status = failed("inspect");
    ::close(fd);
    return status;
  }
  if (!S_ISREG(facts.st_mode) || facts.st_size == 0) {
    ::close(fd);
    return invalid_argument(path + " is " +
                            (S_ISREG(facts.st_mode) ? "empty" : "not a regular file") +
                            "; a weight file is needed");
  }
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) {
    const Status status = failed("map");
    ::close(fd);
    return status;
  }
  ::close(fd);
  MappedFile file;
  file.path_ = path;
  file.bytes_ = {static_cast<const std::byte*>(data), size};
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace attune::model
