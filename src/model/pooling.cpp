#include "model/pooling.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>

#include "model/weights/mapped_file.hpp"

namespace attune::model {
namespace {

using Json = nlohmann::json;

/// The file as an object; absent = an empty one.
Result<Json> object_of(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Json::object();
  const Result<MappedFile> file = MappedFile::open(path.string());
  if (!file.ok()) return file.status();
  const auto* text = reinterpret_cast<const char*>(file->bytes().data());
  Json parsed = Json::parse(text, text + file->bytes().size(), nullptr, false);
  if (!parsed.is_object()) return invalid_argument(path.string() + " is no JSON object");
  return parsed;
}

}  // namespace

Result<PoolingConfig> load_pooling(const std::string& folder) {
  PoolingConfig config;
  const std::filesystem::path root(folder);
  const Result<Json> pooling = object_of(root / "1_Pooling" / "config.json");
  if (!pooling.ok()) return pooling.status();
  for (const auto& [key, value] : pooling->items()) {
    if (!key.starts_with("pooling_mode_") || !value.is_boolean() || !value.get<bool>()) continue;
    if (key == "pooling_mode_mean_tokens") {
      config.pooling = Pooling::mean;
    } else if (key == "pooling_mode_cls_token") {
      config.pooling = Pooling::cls;
    } else {
      return unsupported("1_Pooling/config.json asks for " + key +
                         ", wanted pooling_mode_mean_tokens or pooling_mode_cls_token");
    }
  }
  const Result<Json> lengths = object_of(root / "sentence_bert_config.json");
  if (!lengths.ok()) return lengths.status();
  const auto found = lengths->find("max_seq_length");
  if (found != lengths->end() && found->is_number_integer())
    config.max_tokens = found->get<std::int64_t>();
  return config;
}

}  // namespace attune::model
