// What weights were converted to, kept in a file between runs (layer model): repacked blocks and
// rounded rows are read back instead of made again, and pages of the model file that would only be
// converted are never touched.
//
//   file     header, records, index; every record begins on a line of 64 bytes
//   header   magic, source, offset of the index, number of records, checksum of the index
//   index    for each record: key, offset, bytes, checksum
//
// The file is read into the arena, not mapped: products stream through huge pages. It gets its name
// when it is whole, so that no reader meets half of one, nor does a run that is stopped leave one
// (but where the file system knows no nameless files: there it is written beside its place).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <attune/status.hpp>

#include "model/weights/weight_store.hpp"

namespace attune::model {

/// Changes with the files at `path` (a file, or the files of a folder): sizes and times of change.
Result<std::uint64_t> identity_of_files(const std::string& path);

class ConvertedWeights {
 public:
  enum class State : std::uint8_t {
    complete,   ///< every record is in the file
    absent,     ///< no such file: it is being made
    other,      ///< of other weights or another version: it is being made anew
    truncated,  ///< shorter than it says, or damaged: it is being made anew
  };

  /// `source`: identity of what the records are made from. A folder that cannot be written to is an
  /// error here, before weights are read; so is a file of another kind, which is never replaced.
  static Result<std::unique_ptr<ConvertedWeights>> open(const std::string& path,
                                                        std::uint64_t source);
  ~ConvertedWeights();
  ConvertedWeights(const ConvertedWeights&) = delete;
  ConvertedWeights& operator=(const ConvertedWeights&) = delete;

  [[nodiscard]] State state() const { return state_; }

  /// Names `view` made into `to`: shapes, types and a sample of the stored bytes.
  [[nodiscard]] static std::uint64_t key_of(const WeightView& view, WeightType to);

  /// Whether the file holds `key` in as many bytes, undamaged; they are in `out` then.
  bool read(std::uint64_t key, std::span<std::byte> out);
  /// A record of the file being made; nothing where the file is complete. Failures are told by
  /// finish().
  void write(std::uint64_t key, std::span<const std::byte> bytes);
  /// Puts a file being made in its place. One that lacked a record or was damaged goes: the next
  /// run makes it anew.
  Status finish();

 private:
  struct Record {
    std::uint64_t key = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t checksum = 0;
  };

  ConvertedWeights(std::string path, std::uint64_t source)
      : path_(std::move(path)), source_(source) {}
  State read_index();
  Status start_file();
  bool append(std::span<const std::byte> bytes, std::uint64_t offset);
  [[nodiscard]] bool put_in_place() const;

  std::string path_;
  std::string unfinished_;  ///< the file being made, or to be; empty = none
  bool nameless_ = false;   ///< it has no name yet, and goes with its last descriptor
  std::uint64_t source_;
  State state_ = State::absent;
  int file_ = -1;
  std::uint64_t end_ = 0;  ///< of the records written so far
  bool lacking_ = false;   ///< a complete file turned out not to be
  std::vector<Record> records_;
  Status failure_;
};

}  // namespace attune::model
