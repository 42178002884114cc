// Files that appear whole or not at all (layer base): written beside their place and renamed, so that
// a run that fails or is interrupted leaves what was there before.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include <attune/status.hpp>

#include "base/join.hpp"

namespace attune::base {

namespace detail {
inline Status cannot_write(const std::string& path) {
  return invalid_argument(join("cannot write ", path, ": ", std::strerror(errno)));
}

/// The whole of `text`, and that the disk took it.
inline bool put(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool taken = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  const bool closed = std::fclose(file) == 0;
  if (!taken) errno = error;
  return taken && closed;
}
}  // namespace detail

/// Whether write_whole could write there, to be asked before long work. Creates nothing.
inline Status check_writable(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0) {
    if (S_ISDIR(facts.st_mode)) errno = EISDIR;
    if (S_ISDIR(facts.st_mode) || ::access(path.c_str(), W_OK) != 0)
      return detail::cannot_write(path);
    if (!S_ISREG(facts.st_mode)) return {};
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0)
    return detail::cannot_write(path);
  return {};
}

/// Devices and pipes are written in place, and a link's target is what is replaced.
inline Status write_whole(const std::string& path, std::string_view text) {
  struct stat facts {};
  const bool there = ::stat(path.c_str(), &facts) == 0;
  if (there && !S_ISREG(facts.st_mode))
    return detail::put(path, text) ? Status{} : detail::cannot_write(path);
  std::error_code unresolved;
  std::string target = path;
  if (there) target = std::filesystem::canonical(path, unresolved).string();
  if (unresolved) return invalid_argument(join("cannot write ", path, ": ", unresolved.message()));
  const std::string beside = join(target, ".", ::getpid());
  if (detail::put(beside, text) &&
      (!there || ::chmod(beside.c_str(), facts.st_mode & 07777) == 0) &&
      ::rename(beside.c_str(), target.c_str()) == 0)
    return {};
  const Status failed = detail::cannot_write(path);
  ::unlink(beside.c_str());
  return failed;
}

}  // namespace attune::base
