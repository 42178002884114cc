// The safetensors format (layer model): 8 bytes of header length, a JSON header, the data.
//
//   {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, "__metadata__": {…}}
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <attune/status.hpp>

#include "model/weights/weight_store.hpp"

namespace attune::model {

/// One entry as the header says it, bounds checked.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< F32, BF16, I32, …
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

/// All entries of a file in memory, ordered by place in the file. `path` is for error texts. Every
/// offset, shape and size is checked against the bytes there are.
Result<std::vector<SafetensorsEntry>> parse_safetensors(std::span<const std::byte> file,
                                                        const std::string& path);

/// `path`: a .safetensors file, or a model.safetensors.index.json whose shards lie beside it.
Result<std::unique_ptr<WeightStore>> open_safetensors(const std::string& path);

}  // namespace attune::model
