// Reading the data of these tests.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace attune::text {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string data_path(const std::string& name) {
  return std::string(ATTUNE_SOURCE_DIR) + "/tests/data/text/" + name;
}

inline std::string read_data(const std::string& name) { return read_file(data_path(name)); }

}  // namespace attune::text
