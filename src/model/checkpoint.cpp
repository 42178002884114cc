#include "model/checkpoint.hpp"

#include <filesystem>
#include <utility>

#include "model/config_parse.hpp"
#include "model/gguf_config.hpp"
#include "model/weights/gguf_weights.hpp"
#include "model/weights/safetensors.hpp"

namespace attune::model {
namespace {

Result<Checkpoint> open_gguf_checkpoint(const std::string& path) {
  Result<std::unique_ptr<GgufWeights>> weights = open_gguf(path);
  if (!weights.ok()) return weights.status();
  const GgufFile& head = (*weights)->head();
  Result<ModelConfig> config = config_from_gguf(head, path);
  if (!config.ok()) return config.status();
  return Checkpoint{
      .path = path, .config = std::move(*config), .weights = std::move(*weights), .gguf = &head};
}

Result<Checkpoint> open_folder(const std::string& path, const LinearFamilies* families) {
  Result<ModelConfig> config = load_config(path, families);
  if (!config.ok()) return config.status();
  for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
    const std::filesystem::path file = std::filesystem::path(path) / name;
    std::error_code error;
    if (!std::filesystem::exists(file, error)) continue;
    Result<std::unique_ptr<WeightStore>> weights = open_safetensors(file.string());
    if (!weights.ok()) return weights.status();
    return Checkpoint{
        .path = path, .config = std::move(*config), .weights = std::move(*weights), .gguf = {}};
  }
  return invalid_argument(path + " has neither model.safetensors nor its index");
}

}  // namespace

Result<Checkpoint> open_checkpoint(const std::string& path, const LinearFamilies* families) {
  std::error_code error;
  if (path.empty()) return invalid_argument("no model given: --model wants a folder or a .gguf");
  if (!std::filesystem::exists(path, error)) return invalid_argument("no model at " + path);
  if (std::filesystem::is_directory(path, error)) return open_folder(path, families);
  if (path.ends_with(".gguf")) return open_gguf_checkpoint(path);
  return invalid_argument(
      path + " is no model: wanted a folder with config.json and *.safetensors, or a .gguf file");
}

}  // namespace attune::model
