#include "model/checkpoint.hpp"

#include <filesystem>
#include <utility>

#include "model/config_parse.hpp"
#include "model/gguf_config.hpp"
#include "model/weights/gguf_weights.hpp"
#include "model/weights/safetensors.hpp"

namespace attune::model {
namespace {

namespace fs = std::filesystem;

Result<std::unique_ptr<WeightStore>> open_folder(const std::string& path) {
  std::error_code ignored;
  for (const char* name : {"model.safetensors.index.json", "model.safetensors"})
    if (const fs::path file = fs::path(path) / name; fs::exists(file, ignored))
      return open_safetensors(file.string());
  return invalid_argument(path +
                          " holds neither model.safetensors nor model.safetensors.index.json");
}

}  // namespace

Result<std::unique_ptr<WeightStore>> open_weights(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return open_folder(path);
  if (!path.ends_with(".gguf")) return open_safetensors(path);
  auto gguf = open_gguf(path);
  if (!gguf.ok()) return gguf.status();
  return std::unique_ptr<WeightStore>(std::move(*gguf));
}

Result<Checkpoint> open_checkpoint(const std::string& path) {
  Checkpoint checkpoint;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    Result<ModelConfig> config = load_config(path);
    if (!config.ok()) return config.status();
    auto weights = open_folder(path);
    if (!weights.ok()) return weights.status();
    checkpoint.config = std::move(*config);
    checkpoint.weights = std::move(*weights);
    checkpoint.folder = path;
    return checkpoint;
  }
  if (!fs::exists(path, ignored)) return invalid_argument("no model at " + path);
  auto gguf = open_gguf(path);
  if (!gguf.ok()) return gguf.status();
  Result<ModelConfig> config = config_from_gguf((*gguf)->head(), path);
  if (!config.ok()) return config.status();
  checkpoint.config = std::move(*config);
  checkpoint.gguf = &(*gguf)->head();
  checkpoint.weights = std::move(*gguf);
  checkpoint.folder = fs::path(path).parent_path().string();
  return checkpoint;
}

}  // namespace attune::model
