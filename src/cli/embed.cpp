// attune embed: sentence embeddings from an encoder.
#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <memory>
#include <utility>

#include "cli/command.hpp"
#include "cli/model_options.hpp"
#include "runtime/embedder.hpp"
#include "runtime/tokenizer_files.hpp"

namespace attune::cli {
namespace {

struct EmbedOptions {
  CommonOptions common;
  std::vector<std::string> texts;
  std::string weights = "fp32";
};

int embed(const EmbedOptions& o) {
  if (o.texts.empty()) return report(invalid_argument("no text given: wanted --text"));
  Result<model::Checkpoint> checkpoint = model::open_checkpoint(o.common.model);
  if (!checkpoint.ok()) return report(checkpoint.status());
  const Result<text::TokenizerPtr> tokenizer = runtime::open_tokenizer(*checkpoint);
  if (!tokenizer.ok()) return report(tokenizer.status());
  const Result<model::PoolingConfig> pooling = model::load_pooling(o.common.model);
  if (!pooling.ok()) return report(pooling.status());
  auto embedder = open_embedder(o.common, o.weights, *pooling, std::move(*checkpoint));
  if (!embedder.ok()) return report(embedder.status());

  std::vector<std::vector<std::int32_t>> ids;
  for (const std::string& text : o.texts) {
    Result<std::vector<text::TokenId>> encoded = (*tokenizer)->encode(text);
    if (!encoded.ok()) return report(encoded.status());
    // The published pipeline cuts long texts and keeps the closing token.
    const auto limit = static_cast<std::size_t>((*embedder)->max_tokens());
    if (encoded->size() > limit) {
      fmt::print(stderr, "attune: a text of {} tokens is cut to the model's {}\n", encoded->size(),
                 limit);
      const text::TokenId last = encoded->back();
      encoded->resize(limit);
      encoded->back() = last;
    }
    ids.push_back(std::move(*encoded));
  }
  const Result<std::vector<std::vector<float>>> vectors = (*embedder)->embed(ids);
  if (!vectors.ok()) return report(vectors.status());

  if (o.common.json) {
    nlohmann::ordered_json out;
    out["dimensions"] = vectors->front().size();
    out["embeddings"] = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < vectors->size(); ++i)
      out["embeddings"].push_back(
          {{"text", o.texts[i]}, {"tokens", ids[i]}, {"embedding", (*vectors)[i]}});
    fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return kDone;
  }
  for (const std::vector<float>& vector : *vectors) {
    for (std::size_t i = 0; i < vector.size(); ++i)
      fmt::print("{}{:.7g}", i == 0 ? "" : " ", vector[i]);
    fmt::print("\n");
  }
  print_selection((*embedder)->selection());
  return kDone;
}

}  // namespace

void add_embed(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("embed", "sentence embeddings from an encoder, one line a text");
  auto options = std::make_shared<EmbedOptions>();
  add_model_option(*command, options->common, "a folder in Hugging Face layout");
  add_device_options(*command, options->common, Devices::present);
  add_encoder_choice_options(*command, options->common);
  add_threads_option(*command, options->common);
  add_examples_and_backends(
      *command, {"attune embed --model all-MiniLM-L6-v2 --text \"a first text\" --text another"});
  command->add_option("--text", options->texts, "a text to embed; repeatable")->take_all();
  command->add_option("--weights", options->weights, "as_stored, bf16 or fp32")
      ->capture_default_str();
  command->callback([options, &exit_code] { exit_code = embed(*options); });
}

}  // namespace attune::cli
