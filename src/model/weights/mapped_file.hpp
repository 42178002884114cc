// A file mapped for reading, whole (layer model).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <attune/status.hpp>

namespace attune::model {

class MappedFile {
 public:
  /// An absent, unreadable or empty file, or one that is not a regular file, is an error with the
  /// system's reason.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace attune::model
