// The GGUF format, versions 2 and 3, little end first (layer model).
//
//   "GGUF" u32 version, u64 tensors, u64 keys
//   keys × (string key, u32 type, value)              string = u64 length and bytes
//   tensors × (string name, u32 rank, u64 dims[rank] innermost first, u32 type, u64 offset)
//   padding to `general.alignment`, then the data that offsets count from
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <attune/status.hpp>

#include "model/weights/weight_store.hpp"

namespace attune::model {

enum class GgufType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
};

[[nodiscard]] std::string_view name(GgufType type);

/// Elements of a fixed size stay in the file; read them with at_*.
struct GgufArray {
  GgufType element = GgufType::u8;
  std::uint64_t count = 0;
  std::span<const std::byte> data;
  std::vector<std::string_view> strings;
  std::vector<GgufArray> arrays;

  /// Element i of an array of numbers or booleans.
  [[nodiscard]] double number(std::uint64_t i) const;
};

using GgufValue =
    std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray>;

struct GgufTensor {
  std::string_view name;
  WeightView view;         ///< undefined if the type is not one we read
  std::uint32_t type = 0;  ///< ggml's number
  int rank = 0;
};

/// The head of a file, parsed and checked; points into the bytes it was made from.
class GgufFile {
 public:
  /// `path` is for error texts. Everything that a reader will trust later is checked here: lengths,
  /// counts, types, duplicate names, and that each tensor lies inside the file.
  static Result<GgufFile> parse(std::span<const std::byte> file, const std::string& path);

  [[nodiscard]] std::uint32_t version() const { return version_; }
  [[nodiscard]] std::span<const GgufTensor> tensors() const { return tensors_; }

  [[nodiscard]] const GgufValue* find(std::string_view key) const;
  /// Absent, or of a type that cannot be read so: nullopt. integer() takes any integer type,
  /// number() any numeric one.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  [[nodiscard]] std::optional<std::string_view> string(std::string_view key) const;
  [[nodiscard]] const GgufArray* array(std::string_view key) const;

 private:
  std::uint32_t version_ = 0;
  std::map<std::string_view, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
};

/// ggml's number of a tensor type, if it is one we read.
[[nodiscard]] std::optional<WeightType> weight_type_of_ggml(std::uint32_t type);

}  // namespace attune::model
