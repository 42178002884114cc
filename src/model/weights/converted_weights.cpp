#include "model/weights/converted_weights.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/join.hpp"
#include "base/math.hpp"

namespace attune::model {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the file holds little-endian words");

// Its last character: the version of every layout that a record may have.
constexpr std::array<char, 16> kMagic{'a', 't', 't', 'u', 'n', 'e', ' ', 'w',
                                      'e', 'i', 'g', 'h', 't', 's', ' ', '1'};
constexpr std::string_view kName(kMagic.data(), kMagic.size() - 1);
constexpr std::uint64_t kLine = 64;

struct Header {
  std::array<char, 16> magic = kMagic;
  std::uint64_t source = 0;
  std::uint64_t index_offset = 0;
  std::uint64_t num_records = 0;
  std::uint64_t index_checksum = 0;
  std::array<std::uint64_t, 2> unused{};
};
static_assert(sizeof(Header) == kLine);

/// Four sums side by side, so that it runs as fast as the bytes arrive. Against damage, not against
/// an adversary.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    std::size_t at = 0;
    for (; at + 32 <= bytes.size(); at += 32)
      for (std::size_t lane = 0; lane < 4; ++lane) mix(lane, word(bytes.subspan(at + 8 * lane, 8)));
    for (std::size_t lane = 0; at < bytes.size(); ++lane) {
      const std::size_t n = std::min<std::size_t>(8, bytes.size() - at);
      mix(lane, word(bytes.subspan(at, n)));
      at += n;
    }
    mix(0, bytes.size());
  }
  void add(std::uint64_t value) { mix(0, value); }

  [[nodiscard]] std::uint64_t value() const {
    std::uint64_t all = 0;
    for (const std::uint64_t lane : lanes_) all = std::rotl(all, 23) ^ finished(lane);
    return all;
  }

 private:
  static std::uint64_t word(std::span<const std::byte> bytes) {
    std::uint64_t w = 0;
    std::memcpy(&w, bytes.data(), bytes.size());
    return w;
  }
  static std::uint64_t finished(std::uint64_t x) {
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 29);
  }
  void mix(std::size_t lane, std::uint64_t w) {
    lanes_[lane] = (std::rotl(lanes_[lane], 27) ^ w) * 0x9e3779b97f4a7c15u;
  }

  std::array<std::uint64_t, 4> lanes_{1, 2, 3, 4};
};

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.value();
}

bool read_all(int file, std::span<std::byte> out, std::uint64_t offset) {
  while (!out.empty()) {
    const ssize_t n = ::pread(file, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return true;
}

/// A file being made takes the place of what is there: that must be an older one of these, not
/// somebody's model or a device.
Status check_replaceable(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return {};
  if (!S_ISREG(facts.st_mode))
    return invalid_argument(
        base::join(path, " is no ordinary file: converted weights cannot be kept there"));
  std::array<char, kName.size()> start{};
  const auto length = std::min<std::size_t>(start.size(), static_cast<std::size_t>(facts.st_size));
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return invalid_argument(base::join("cannot read ", path, ": ", std::strerror(errno)));
  const bool read = read_all(file, std::as_writable_bytes(std::span(start).first(length)), 0);
  ::close(file);
  if (!read || std::string_view(start.data(), length) != kName.substr(0, length))
    return invalid_argument(
        base::join(path, " is not a file of converted weights and is left as it is: name another"));
  return {};
}

}  // namespace

Result<std::uint64_t> identity_of_files(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> files;
  if (fs::is_directory(path, error)) {
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
      if (at->is_regular_file(error)) files.push_back(at->path());
    std::ranges::sort(files);
  } else {
    files.emplace_back(path);
  }
  Checksum sum;
  for (const fs::path& file : files) {
    struct stat facts {};
    if (::stat(file.c_str(), &facts) != 0)
      return invalid_argument(
          base::join("cannot inspect ", file.string(), ": ", std::strerror(errno)));
    sum.add(static_cast<std::uint64_t>(facts.st_size));
    sum.add(static_cast<std::uint64_t>(facts.st_mtim.tv_sec));
    sum.add(static_cast<std::uint64_t>(facts.st_mtim.tv_nsec));
  }
  if (error) return invalid_argument(base::join("cannot list ", path, ": ", error.message()));
  return sum.value();
}

Result<std::unique_ptr<ConvertedWeights>> ConvertedWeights::open(const std::string& path,
                                                                 std::uint64_t source) {
  if (Status s = check_replaceable(path); !s.ok()) return s;
  std::unique_ptr<ConvertedWeights> made(new ConvertedWeights(path, source));
  made->state_ = made->read_index();
  if (made->state_ == State::complete) return made;
  if (Status s = made->start_file(); !s.ok()) return s;
  return made;
}

ConvertedWeights::~ConvertedWeights() {
  if (file_ >= 0) ::close(file_);
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
}

ConvertedWeights::State ConvertedWeights::read_index() {
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return State::absent;
  file_ = file;
  struct stat facts {};
  Header header;
  if (::fstat(file, &facts) != 0 ||
      !read_all(file, std::as_writable_bytes(std::span(&header, 1)), 0))
    return State::truncated;
  if (header.magic != kMagic || header.source != source_) return State::other;
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  // Divided, not multiplied: a damaged number must not wrap around.
  if (header.index_offset > size ||
      (size - header.index_offset) / sizeof(Record) < header.num_records)
    return State::truncated;
  records_.resize(header.num_records);
  const auto index = std::as_writable_bytes(std::span(records_));
  if (!read_all(file, index, header.index_offset) || checksum_of(index) != header.index_checksum) {
    records_.clear();
    return State::truncated;
  }
  std::ranges::sort(records_, {}, &Record::key);
  return State::complete;
}

Status ConvertedWeights::start_file() {
  if (file_ >= 0) ::close(file_);
  unfinished_ = base::join(path_, ".", ::getpid());
  const std::string folder = fs::path(path_).parent_path().string();
  file_ = ::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
  nameless_ = file_ >= 0;
  if (!nameless_) file_ = ::open(unfinished_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) {
    return invalid_argument(base::join("cannot write ", std::exchange(unfinished_, {}), ": ",
                                       std::strerror(errno),
                                       "; converted weights need a folder that can be written to"));
  }
  end_ = kLine;
  return {};
}

std::uint64_t ConvertedWeights::key_of(const WeightView& view, WeightType to) {
  constexpr std::size_t kSamples = 4;
  const auto bytes = static_cast<std::size_t>(view.bytes());
  Checksum sum;
  for (const std::int64_t word : {static_cast<std::int64_t>(view.type),
                                  static_cast<std::int64_t>(to), view.rows(), view.columns()})
    sum.add(static_cast<std::uint64_t>(word));
  const std::size_t piece = std::min<std::size_t>(bytes, kLine);
  for (std::size_t i = 0; i < kSamples; ++i)
    sum.add(std::span(view.data + (bytes - piece) * i / (kSamples - 1), piece));
  return sum.value();
}

bool ConvertedWeights::read(std::uint64_t key, std::span<std::byte> out) {
  if (state_ != State::complete) return false;
  const auto at = std::ranges::lower_bound(records_, key, {}, &Record::key);
  const bool whole = at != records_.end() && at->key == key && at->bytes == out.size() &&
                     read_all(file_, out, at->offset) && checksum_of(out) == at->checksum;
  lacking_ = lacking_ || !whole;
  return whole;
}

bool ConvertedWeights::append(std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      failure_ = invalid_argument(
          base::join("cannot write ", unfinished_, ": ", std::strerror(n < 0 ? errno : ENOSPC)));
      return false;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return true;
}

void ConvertedWeights::write(std::uint64_t key, std::span<const std::byte> bytes) {
  if (state_ == State::complete || !failure_.ok() || !append(bytes, end_)) return;
  records_.push_back(
      {.key = key, .offset = end_, .bytes = bytes.size(), .checksum = checksum_of(bytes)});
  end_ = base::round_up<std::uint64_t>(end_ + bytes.size(), kLine);
}

bool ConvertedWeights::put_in_place() const {
  const std::string open_file = base::join("/proc/self/fd/", file_);
  if (nameless_) ::unlink(unfinished_.c_str());  // of a process of this number that was killed
  if (nameless_ &&
      ::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, unfinished_.c_str(), AT_SYMLINK_FOLLOW) != 0)
    return false;
  return ::rename(unfinished_.c_str(), path_.c_str()) == 0;
}

Status ConvertedWeights::finish() {
  if (lacking_) ::unlink(path_.c_str());
  if (unfinished_.empty()) return {};
  const auto index = std::as_bytes(std::span(records_));
  const Header header{.source = source_,
                      .index_offset = end_,
                      .num_records = records_.size(),
                      .index_checksum = checksum_of(index)};
  if (failure_.ok() && append(index, end_) && append(std::as_bytes(std::span(&header, 1)), 0) &&
      !put_in_place())
    failure_ = invalid_argument(base::join("cannot write ", path_, ": ", std::strerror(errno)));
  if (!failure_.ok()) return failure_;
  unfinished_.clear();
  ::close(std::exchange(file_, -1));
  return {};
}

}  // namespace attune::model
