// Builds GGUF files in memory for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/weights/gguf.hpp"

namespace attune::model {

class GgufBuilder {
 public:
  template <class T>
  GgufBuilder& value(std::string_view key, GgufType type, T v) {
    head(key, type);
    put(values_, v);
    return *this;
  }
  GgufBuilder& u32(std::string_view key, std::uint32_t v) { return value(key, GgufType::u32, v); }
  GgufBuilder& f32(std::string_view key, float v) { return value(key, GgufType::f32, v); }
  GgufBuilder& text(std::string_view key, std::string_view v) {
    head(key, GgufType::string);
    put_string(values_, v);
    return *this;
  }
  GgufBuilder& texts(std::string_view key, const std::vector<std::string>& v) {
    head(key, GgufType::array);
    put(values_, static_cast<std::uint32_t>(GgufType::string));
    put(values_, static_cast<std::uint64_t>(v.size()));
    for (const std::string& s : v) put_string(values_, s);
    return *this;
  }
  template <class T>
  GgufBuilder& numbers(std::string_view key, GgufType element, const std::vector<T>& v) {
    head(key, GgufType::array);
    put(values_, static_cast<std::uint32_t>(element));
    put(values_, static_cast<std::uint64_t>(v.size()));
    for (T x : v) put(values_, x);
    return *this;
  }
  /// `shape` outermost first; the bytes are padded to 32.
  GgufBuilder& tensor(std::string_view name, std::vector<std::uint64_t> shape, std::uint32_t type,
                      std::string bytes) {
    put_string(tensors_, name);
    put(tensors_, static_cast<std::uint32_t>(shape.size()));
    for (std::size_t i = shape.size(); i-- > 0;) put(tensors_, shape[i]);
    put(tensors_, type);
    put(tensors_, static_cast<std::uint64_t>(data_.size()));
    data_ += bytes;
    data_.resize((data_.size() + 31) / 32 * 32);
    ++num_tensors_;
    return *this;
  }
  [[nodiscard]] std::string build(std::uint32_t version = 3) const {
    std::string file = "GGUF";
    put(file, version);
    put(file, num_tensors_);
    put(file, num_values_);
    file += values_ + tensors_;
    file.resize((file.size() + 31) / 32 * 32);
    return file + data_;
  }

 private:
  template <class T>
  static void put(std::string& to, T v) {
    to.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  static void put_string(std::string& to, std::string_view s) {
    put(to, static_cast<std::uint64_t>(s.size()));
    to += s;
  }
  void head(std::string_view key, GgufType type) {
    put_string(values_, key);
    put(values_, static_cast<std::uint32_t>(type));
    ++num_values_;
  }

  std::uint64_t num_tensors_ = 0;
  std::uint64_t num_values_ = 0;
  std::string values_, tensors_, data_;
};

inline std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

}  // namespace attune::model
