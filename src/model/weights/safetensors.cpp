#include "model/weights/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/weights/mapped_file.hpp"
#include "model/weights/named_weights.hpp"

namespace attune::model {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 48;

std::uint64_t element_bytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, std::uint64_t> kSizes[] = {
      {"F64", 8},     {"I64", 8},     {"U64", 8},     {"F32", 4}, {"I32", 4}, {"U32", 4},
      {"F16", 2},     {"BF16", 2},    {"I16", 2},     {"U16", 2}, {"I8", 1},  {"U8", 1},
      {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"BOOL", 1}};
  for (const auto& [name, bytes] : kSizes)
    if (name == dtype) return bytes;
  return 0;
}

/// A header's object may name a tensor once; the JSON library would keep the last one silently.
struct HeaderParse {
  Json json;
  std::string duplicate;
};
HeaderParse parse_header(std::string_view text) {
  HeaderParse result;
  std::set<std::string> names;
  const Json::parser_callback_t see = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth == 1 && event == Json::parse_event_t::key &&
        !names.insert(value.get<std::string>()).second)
      result.duplicate = value.get<std::string>();
    return true;
  };
  result.json = Json::parse(text, see, /*allow_exceptions=*/false);
  return result;
}

/// An error text, or empty.
std::string read_entry(const Json& json, std::span<const std::byte> data, SafetensorsEntry& entry) {
  if (!json.is_object()) return "is not an object";
  const auto dtype = json.find("dtype");
  const auto shape = json.find("shape");
  const auto offsets = json.find("data_offsets");
  if (dtype == json.end() || !dtype->is_string()) return "has no dtype";
  if (shape == json.end() || !shape->is_array()) return "has no shape";
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned())
    return "has no pair of data_offsets";

  entry.dtype = dtype->get<std::string>();
  const std::uint64_t element = element_bytes(entry.dtype);
  if (element == 0) return "has the unknown dtype " + entry.dtype;
  std::uint64_t elements = 1;
  bool empty = false;
  for (const Json& dim : *shape) {
    if (!dim.is_number_unsigned()) return "has a dimension that is not a whole number";
    const auto n = dim.get<std::uint64_t>();
    empty = empty || n == 0;
    // An empty tensor's other dimensions must not overflow either.
    const std::uint64_t step = std::max<std::uint64_t>(n, 1);
    if (n > kMaxElements || elements > kMaxElements / step)
      return "has a shape too large to be true";
    elements *= step;
    entry.shape.push_back(static_cast<std::int64_t>(n));
  }
  const std::uint64_t bytes = empty ? 0 : elements * element;
  const auto begin = (*offsets)[0].get<std::uint64_t>();
  const auto end = (*offsets)[1].get<std::uint64_t>();
  if (begin > end || end > data.size())
    return "lies at bytes " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
           std::to_string(data.size()) + " bytes of data; the file is truncated or damaged";
  if (end - begin != bytes)
    return "needs " + std::to_string(bytes) + " bytes for its shape, its offsets span " +
           std::to_string(end - begin);
  entry.data = data.subspan(begin, end - begin);
  return {};
}

/// The format's own rule: the tensors lie one behind the other and fill the data. A header whose
/// length is off by a byte would shift them all. An error text, or empty.
std::string check_coverage(std::span<const SafetensorsEntry> entries,
                           std::span<const std::byte> data) {
  std::size_t next = 0;
  for (const SafetensorsEntry& e : entries) {
    const auto begin = static_cast<std::size_t>(e.data.data() - data.data());
    if (begin != next)
      return "tensor " + e.name + " begins at byte " + std::to_string(begin) +
             " of the data, wanted " + std::to_string(next) + ", where the one before it ends";
    next += e.data.size();
  }
  if (next != data.size())
    return "the tensors fill " + std::to_string(next) + " of " + std::to_string(data.size()) +
           " bytes of data; the file is damaged";
  return {};
}

std::optional<WeightType> weight_type(std::string_view dtype) {
  if (dtype == "F32") return WeightType::f32;
  if (dtype == "F16") return WeightType::f16;
  if (dtype == "BF16") return WeightType::bf16;
  return std::nullopt;
}

Status add_file(const std::string& path, NamedWeights& weights) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) return file.status();
  Result<std::vector<SafetensorsEntry>> entries = parse_safetensors(file->bytes(), path);
  if (!entries.ok()) return entries.status();
  for (const SafetensorsEntry& e : *entries) {
    const std::optional<WeightType> type = weight_type(e.dtype);
    bool added = false;
    if (!type || e.shape.size() > WeightView::kMaxRank) {
      added = weights.add_unreadable(
          e.name, "is of type " + e.dtype + " with " + std::to_string(e.shape.size()) +
                      " dimensions; F32, F16 and BF16 with up to 4 can be read");
    } else {
      WeightView view{.data = e.data.data(),
                      .type = *type,
                      .rank = static_cast<int>(e.shape.size()),
                      .shape = {}};
      std::ranges::copy(e.shape, view.shape.begin());
      added = weights.add(e.name, view);
    }
    if (!added)
      return invalid_argument(path + ": tensor " + e.name + " is in another shard already");
  }
  weights.keep(std::move(*file));
  return {};
}

Status add_shards(const std::string& index_path, NamedWeights& weights) {
  Result<MappedFile> index = MappedFile::open(index_path);
  if (!index.ok()) return index.status();
  const auto bytes = index->bytes();
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const Json json = Json::parse(text, text + bytes.size(), nullptr, false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    return invalid_argument(index_path + " has no weight_map object; it is not a shard index");
  std::set<std::string> shards;
  for (const auto& [name, shard] : json["weight_map"].items()) {
    if (!shard.is_string() || shard.get<std::string>().find('/') != std::string::npos)
      return invalid_argument(index_path + ": the shard of " + name +
                              " is not a plain file name beside the index");
    shards.insert(shard.get<std::string>());
  }
  const std::string folder = std::filesystem::path(index_path).parent_path().string();
  for (const std::string& shard : shards)
    if (Status s = add_file((folder.empty() ? "." : folder) + "/" + shard, weights); !s.ok())
      return s;
  for (const auto& [name, shard] : json["weight_map"].items())
    if (!weights.has(name))
      return invalid_argument(index_path + " places " + name + " in " + shard.get<std::string>() +
                              ", which does not hold it");
  return {};
}

}  // namespace

Result<std::vector<SafetensorsEntry>> parse_safetensors(std::span<const std::byte> file,
                                                        const std::string& path) {
  if (file.size() < kLengthBytes)
    return invalid_argument(path + " is " + std::to_string(file.size()) +
                            " bytes long; a safetensors file has at least 8");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeader || length > file.size() - kLengthBytes)
    return invalid_argument(path + " announces a header of " + std::to_string(length) +
                            " bytes in a file of " + std::to_string(file.size()) +
                            "; it is truncated or not a safetensors file");
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  const std::span<const std::byte> data = file.subspan(kLengthBytes + length);

  const HeaderParse header = parse_header(text);
  if (!header.json.is_object())
    return invalid_argument(path +
                            ": the header is not a JSON object; this is not a safetensors "
                            "file, or it is damaged");
  if (!header.duplicate.empty())
    return invalid_argument(path + ": the header names tensor " + header.duplicate + " twice");

  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, json] : header.json.items()) {
    if (name == "__metadata__") continue;
    SafetensorsEntry entry{.name = name, .dtype = {}, .shape = {}, .data = {}};
    if (const std::string problem = read_entry(json, data, entry); !problem.empty())
      return invalid_argument(path + ": tensor " + name + " " + problem);
    entries.push_back(std::move(entry));
  }
  std::ranges::stable_sort(entries, {}, [](const SafetensorsEntry& e) {
    return std::pair(e.data.data(), e.data.size());
  });
  if (const std::string problem = check_coverage(entries, data); !problem.empty())
    return invalid_argument(path + ": " + problem);
  return entries;
}

Result<std::unique_ptr<WeightStore>> open_safetensors(const std::string& path) {
  auto weights = std::make_unique<NamedWeights>();
  const Status status =
      path.ends_with(".json") ? add_shards(path, *weights) : add_file(path, *weights);
  if (!status.ok()) return status;
  return std::unique_ptr<WeightStore>(std::move(weights));
}

}  // namespace attune::model
