#include "runtime/tokenizer_files.hpp"

#include <filesystem>
#include <string>
#include <string_view>

#include "model/weights/mapped_file.hpp"

namespace attune::runtime {
namespace {

using model::GgufArray;
using model::GgufFile;

std::string_view text_of(const model::MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::optional<text::TokenId> token(const GgufFile& gguf, const char* role) {
  const auto id = gguf.integer("tokenizer.ggml." + std::string(role) + "_token_id");
  if (!id) return std::nullopt;
  return static_cast<text::TokenId>(*id);
}

std::vector<std::string> strings(const GgufFile& gguf, const char* key) {
  std::vector<std::string> out;
  if (const GgufArray* array = gguf.array(key))
    out.assign(array->strings.begin(), array->strings.end());
  return out;
}

/// A small number of a file that may be damaged: what no `int` holds is 0.
int small(double number) {
  constexpr double kMost = 1 << 30;
  return number >= -kMost && number <= kMost ? static_cast<int>(number) : 0;
}

text::GgufVocabulary vocabulary_of(const GgufFile& gguf) {
  text::GgufVocabulary v;
  v.model = gguf.string("tokenizer.ggml.model").value_or("");
  v.pre = gguf.string("tokenizer.ggml.pre").value_or("");
  v.tokens = strings(gguf, "tokenizer.ggml.tokens");
  v.merges = strings(gguf, "tokenizer.ggml.merges");
  if (const GgufArray* scores = gguf.array("tokenizer.ggml.scores"))
    for (std::uint64_t i = 0; i < scores->count; ++i)
      v.scores.push_back(static_cast<float>(scores->number(i)));
  if (const GgufArray* types = gguf.array("tokenizer.ggml.token_type"))
    for (std::uint64_t i = 0; i < types->count; ++i)
      v.token_types.push_back(static_cast<text::GgufTokenType>(small(types->number(i))));
  if (const GgufArray* map = gguf.array("tokenizer.ggml.precompiled_charsmap"))
    for (std::uint64_t i = 0; i < map->count; ++i)
      v.precompiled_charsmap.push_back(static_cast<char>(small(map->number(i))));
  v.bos = token(gguf, "bos");
  v.eos = token(gguf, "eos");
  v.eot = token(gguf, "eot");
  v.eom = token(gguf, "eom");
  v.unk = token(gguf, "unknown");
  v.sep = token(gguf, "seperator");  // the format's own spelling
  if (!v.sep) v.sep = token(gguf, "separator");
  v.pad = token(gguf, "padding");
  v.cls = token(gguf, "cls");
  v.mask = token(gguf, "mask");
  v.add_bos_token = gguf.boolean("tokenizer.ggml.add_bos_token");
  v.add_eos_token = gguf.boolean("tokenizer.ggml.add_eos_token");
  v.add_sep_token = gguf.boolean("tokenizer.ggml.add_sep_token");
  v.add_space_prefix = gguf.boolean("tokenizer.ggml.add_space_prefix");
  v.remove_extra_whitespaces = gguf.boolean("tokenizer.ggml.remove_extra_whitespaces");
  v.chat_template = gguf.string("tokenizer.chat_template").value_or("");
  return v;
}

Result<text::TokenizerPtr> read_tokenizer(const model::Checkpoint& checkpoint) {
  namespace fs = std::filesystem;
  if (checkpoint.gguf != nullptr) return text::tokenizer_from_gguf(vocabulary_of(*checkpoint.gguf));
  const fs::path folder(checkpoint.path);
  std::error_code error;
  model::MappedFile config;
  if (fs::exists(folder / "tokenizer_config.json", error)) {
    Result<model::MappedFile> file =
        model::MappedFile::open((folder / "tokenizer_config.json").string());
    if (!file.ok()) return file.status();
    config = std::move(*file);
  }
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (!fs::exists(folder / name, error)) continue;
    const Result<model::MappedFile> file = model::MappedFile::open((folder / name).string());
    if (!file.ok()) return file.status();
    return std::string_view(name) == "tokenizer.json"
               ? text::tokenizer_from_json(text_of(*file), text_of(config))
               : text::tokenizer_from_sentencepiece(text_of(*file), text_of(config));
  }
  return invalid_argument(checkpoint.path +
                          " has neither tokenizer.json nor tokenizer.model: text cannot become "
                          "tokens (attune generate takes --tokens)");
}

}  // namespace

Result<text::TokenizerPtr> open_tokenizer(const model::Checkpoint& checkpoint) {
  Result<text::TokenizerPtr> opened = read_tokenizer(checkpoint);
  // Not for want of a backend: the file is an input that cannot be used.
  if (!opened.ok() && opened.status().code() == StatusCode::unsupported)
    return invalid_argument(opened.status().text());
  return opened;
}

Result<text::ChatTemplate> open_chat_template(const model::Checkpoint& checkpoint,
                                              const text::Tokenizer& tokenizer) {
  const std::filesystem::path path = std::filesystem::path(checkpoint.path) / "chat_template.jinja";
  std::error_code error;
  if (checkpoint.gguf == nullptr && std::filesystem::exists(path, error)) {
    const Result<model::MappedFile> file = model::MappedFile::open(path.string());
    if (!file.ok()) return file.status();
    return text::ChatTemplate::parse(text_of(*file));
  }
  if (tokenizer.chat_template().empty())
    return invalid_argument("this model came without a chat template: leave out --chat");
  return text::ChatTemplate::parse(tokenizer.chat_template());
}

}  // namespace attune::runtime
