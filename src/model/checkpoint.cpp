#include "model/checkpoint.hpp"

#include <filesystem>
#include <utility>

#include "model/config_parse.hpp"
#include "model/weights/safetensors.hpp"

namespace attune::model {

Result<Checkpoint> open_checkpoint(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) return invalid_argument("no model at " + path);
  const fs::path folder(path);
  if (!fs::is_directory(folder, error)) {
    return invalid_argument(path +
                            " is no model: wanted a folder with config.json and *.safetensors, or "
                            "a .gguf file");
  }
  Result<ModelConfig> config = load_config(path);
  if (!config.ok()) return config.status();
  for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
    if (!fs::exists(folder / name, error)) continue;
    Result<std::unique_ptr<WeightStore>> weights = open_safetensors((folder / name).string());
    if (!weights.ok()) return weights.status();
    return Checkpoint{.config = std::move(*config), .weights = std::move(*weights)};
  }
  return invalid_argument(path + " has neither model.safetensors nor its index");
}

}  // namespace attune::model
