// A checkpoint of random bf16 weights in Hugging Face's layout, for tests that need shapes which
// the golden models lack.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tensor/narrow_float.hpp"

namespace attune::testing_support {

class RandomCheckpoint {
 public:
  explicit RandomCheckpoint(std::uint64_t seed) : state_(seed) {}

  /// Uniform, of variance `scale` squared; 0 = one over the columns.
  void matrix(const std::string& name, int rows, int columns, double scale = 0) {
    if (scale == 0) scale = 1 / std::sqrt(columns);
    add(name, rows, columns, [&] {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      const double uniform = static_cast<double>(state_ >> 40) / (1 << 23) - 1;
      return static_cast<float>(uniform * scale * std::sqrt(3.0));
    });
  }
  void ones(const std::string& name, int width) {
    add(name, 1, width, [] { return 1.0f; });
  }
  /// The last matrix or vector that was added, as floats.
  [[nodiscard]] const std::vector<float>& last() const { return last_; }

  /// `config`: the text of config.json.
  void write(const std::filesystem::path& folder, const std::string& config) const {
    std::ofstream weights(folder / "model.safetensors", std::ios::binary);
    const std::string header = "{" + header_ + "}";
    const std::uint64_t size = header.size();
    weights.write(reinterpret_cast<const char*>(&size), sizeof size);
    weights << header;
    weights.write(reinterpret_cast<const char*>(numbers_.data()),
                  static_cast<std::streamsize>(numbers_.size() * sizeof(tensor::Bf16)));
    std::ofstream(folder / "config.json") << config;
  }

 private:
  void add(const std::string& name, int rows, int columns, const auto& number) {
    const std::size_t begin = numbers_.size() * sizeof(tensor::Bf16);
    last_.clear();
    for (int i = 0; i < rows * columns; ++i) {
      numbers_.push_back(tensor::to_bf16(number()));
      last_.push_back(tensor::to_float(numbers_.back()));
    }
    const std::string shape =
        rows == 1 ? std::to_string(columns) : std::to_string(rows) + "," + std::to_string(columns);
    header_ += (header_.empty() ? "\"" : ",\"") + name + R"(":{"dtype":"BF16","shape":[)" + shape +
               "],\"data_offsets\":[" + std::to_string(begin) + "," +
               std::to_string(numbers_.size() * sizeof(tensor::Bf16)) + "]}";
  }

  std::string header_;
  std::vector<tensor::Bf16> numbers_;
  std::vector<float> last_;
  std::uint64_t state_;
};

}  // namespace attune::testing_support
