// What a fuzzer, and the corpus as an ordinary test, do with the bytes of a weight file: everything
// a loader would. The result does not matter; reading outside the bytes does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops/dequant.hpp"
#include "model/gguf_config.hpp"
#include "model/weights/gguf.hpp"
#include "model/weights/gguf_names.hpp"
#include "model/weights/safetensors.hpp"

namespace attune::fuzz {

inline void read_ends(const model::WeightView& view) {
  if (!view.defined() || view.bytes() == 0) return;
  const std::int64_t block = kernels::ops::block_size(view.type).per_block;
  std::vector<float> out(static_cast<std::size_t>(block));
  const std::byte* last =
      view.data + view.bytes() - kernels::ops::block_size(view.type).bytes_per_block;
  for (const std::byte* at : {view.data, last})
    kernels::ops::dequantise(view.type, at, block, out.data());
}

inline void read_gguf(std::span<const std::byte> bytes) {
  const auto file = model::GgufFile::parse(bytes, "file");
  if (!file.ok()) return;
  for (const model::GgufTensor& tensor : file->tensors()) {
    read_ends(tensor.view);
    (void)model::hugging_face_name("llama", tensor.name);
    (void)model::expert_name("qwen3moe", tensor.name, 0);
  }
  (void)model::config_from_gguf(*file, "file");
}

inline void read_safetensors(std::span<const std::byte> bytes) {
  const auto entries = model::parse_safetensors(bytes, "file");
  if (!entries.ok()) return;
  std::uint64_t sum = 0;
  for (const model::SafetensorsEntry& e : *entries)
    if (!e.data.empty())
      sum += static_cast<std::uint64_t>(e.data.front()) + static_cast<std::uint64_t>(e.data.back());
  volatile std::uint64_t keep = sum;
  (void)keep;
}

}  // namespace attune::fuzz
