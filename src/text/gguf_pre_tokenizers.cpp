#include "text/gguf_pre_tokenizers.hpp"

#include <algorithm>
#include <array>

namespace attune::text {
namespace {

// Building blocks that several families share. (?i:...) are the English contractions.
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekCjk = "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+";
constexpr std::string_view kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekCoderCjk = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";
constexpr std::string_view kFalconPunctuation = R"([\p{P}$+<=>^~|`]+)";
constexpr std::string_view kFalconDigits = R"([0-9][0-9][0-9])";
constexpr std::string_view kBloom = " ?[^(\\s|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)]+";

constexpr std::array kRows = {
    GgufPreTokenizer{.name = "default", .patterns = {kGpt2}},
    GgufPreTokenizer{.name = "gpt-2", .patterns = {kGpt2}},
    GgufPreTokenizer{.name = "phi-2", .patterns = {kGpt2}},
    GgufPreTokenizer{.name = "mpt", .patterns = {kGpt2}},
    GgufPreTokenizer{.name = "olmo", .patterns = {kGpt2}},
    GgufPreTokenizer{.name = "jais", .patterns = {kGpt2}},
    GgufPreTokenizer{.name = "trillion", .patterns = {kGpt2}},
    GgufPreTokenizer{.name = "exaone4", .patterns = {kGpt2}},
    GgufPreTokenizer{.name = "modern-bert", .patterns = {kGpt2}},
    GgufPreTokenizer{.name = "smollm", .patterns = {kDigit, kGpt2}},
    GgufPreTokenizer{.name = "starcoder", .patterns = {kDigit, kGpt2}},
    GgufPreTokenizer{.name = "refact", .patterns = {kDigit, kGpt2}},
    GgufPreTokenizer{.name = "command-r", .patterns = {kDigit, kGpt2}},
    GgufPreTokenizer{.name = "codeshell", .patterns = {kDigit, kGpt2}},
    GgufPreTokenizer{.name = "exaone", .patterns = {kDigit, kGpt2}},
    GgufPreTokenizer{.name = "minerva-7b", .patterns = {kDigit, kGpt2}},
    GgufPreTokenizer{
        .name = "llama-bpe", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true},
    GgufPreTokenizer{
        .name = "llama3", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true},
    GgufPreTokenizer{
        .name = "llama-v3", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true},
    GgufPreTokenizer{
        .name = "falcon3", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true},
    GgufPreTokenizer{
        .name = "pixtral", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true},
    GgufPreTokenizer{.name = "lfm2", .patterns = {kLlama3}, .ignore_merges = true, .add_bos = true},
    GgufPreTokenizer{.name = "dbrx", .patterns = {kLlama3}},
    GgufPreTokenizer{.name = "smaug-bpe", .patterns = {kLlama3}},
    GgufPreTokenizer{.name = "chatglm-bpe", .patterns = {kLlama3}},
    GgufPreTokenizer{.name = "glm4", .patterns = {kLlama3}},
    GgufPreTokenizer{.name = "qwen2", .patterns = {kQwen2}},
    GgufPreTokenizer{.name = "deepseek-r1-qwen", .patterns = {kQwen2}},
    GgufPreTokenizer{.name = "stablelm2", .patterns = {kQwen2}},
    GgufPreTokenizer{.name = "megrez", .patterns = {kQwen2}},
    GgufPreTokenizer{.name = "hunyuan", .patterns = {kQwen2}},
    GgufPreTokenizer{.name = "grok-2", .patterns = {kQwen2}},
    GgufPreTokenizer{.name = "qwen35", .patterns = {kQwen35}},
    GgufPreTokenizer{
        .name = "tekken", .patterns = {kTekken}, .ignore_merges = true, .add_bos = true},
    GgufPreTokenizer{.name = "gpt-4o", .patterns = {kGpt4o}},
    GgufPreTokenizer{.name = "llama4", .patterns = {kGpt4o}},
    GgufPreTokenizer{.name = "minimax-m2", .patterns = {kGpt4o}},
    GgufPreTokenizer{.name = "deepseek-v3", .patterns = {kThreeDigits, kDeepseekCjk, kDeepseekV3}},
    GgufPreTokenizer{.name = "hunyuan-dense",
                     .patterns = {kThreeDigits, kDeepseekCjk, kDeepseekV3}},
    GgufPreTokenizer{
        .name = "deepseek-coder",
        .patterns = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekCoderCjk, kDigit}},
    GgufPreTokenizer{.name = "falcon", .patterns = {kFalconPunctuation, kGpt2, kFalconDigits}},
    GgufPreTokenizer{.name = "bloom", .patterns = {kBloom}},
    GgufPreTokenizer{.name = "poro-chat", .patterns = {kBloom}},
    GgufPreTokenizer{.name = "gpt3-finnish", .patterns = {kBloom}},
    GgufPreTokenizer{.name = "viking", .patterns = {kBloom, kDigit}},
};

}  // namespace

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  const auto* row = std::find_if(kRows.begin(), kRows.end(),
                                 [&](const GgufPreTokenizer& r) { return r.name == name; });
  return row == kRows.end() ? nullptr : row;
}

}  // namespace attune::text
