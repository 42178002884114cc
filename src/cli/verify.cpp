// attune verify: every usable backend against the fp64 reference (--cases), or whole models against
// logits that another implementation computed (--golden).
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/verify_cases.hpp"
#include "cli/verify_golden.hpp"

namespace attune::cli {
namespace {

struct VerifyOptions {
  CommonOptions common;
  VerifyCasesOptions cases;
  std::vector<std::string> golden;
  bool cascade = false;
};

/// Options that only one form honours are refused by the other.
Status check_form(const CLI::App& command, bool golden) {
  const std::vector<const char*> foreign =
      golden ? std::vector<const char*>{"--cases", "--match", "--cascade", "--seed"}
             : std::vector<const char*>{"--prefill-attention-backend",
                                        "--decode-attention-backend",
                                        "--layer-attention-backend",
                                        "--page-size",
                                        "--kv-cache-dtype",
                                        "--fallback"};
  for (const char* option : foreign)
    if (command.get_option(option)->count() > 0)
      return invalid_argument(
          fmt::format("{} means nothing to verify {}", option, golden ? "--golden" : "--cases"));
  return {};
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "verify", "hold every usable backend against the fp64 reference, or models to known logits");
  auto options = std::make_shared<VerifyOptions>();
  add_device_options(*command, options->common, Devices::present);
  add_selection_options(*command, options->common);
  add_threads_option(*command, options->common);
  add_seed_option(*command, options->common);
  add_examples_and_backends(*command,
                            {"attune verify", "attune verify --attention-backend cpu --cases full",
                             "attune verify --match 'gqa/decode/*page16/*'",
                             "attune verify --golden tests/golden/models"});
  command->add_option("--cases", options->cases.cases, "how many cases: smoke or full")
      ->check(CLI::IsMember({"smoke", "full"}))
      ->capture_default_str();
  command->add_option("--match", options->cases.match, "only cases whose name matches this glob")
      ->capture_default_str();
  command
      ->add_flag(
          "--cascade", options->cascade,
          "only cases of trees of shared prefixes, of backends that read these once, against "
          "the same batches read request by request")
      ->excludes("--match");
  command->add_option("--golden", options->golden,
                      "folders of checkpoints with a golden.safetensors, instead of cases");
  command->callback([options, command, &exit_code] {
    const bool golden = !options->golden.empty();
    if (const Status s = check_form(*command, golden); !s.ok()) {
      exit_code = report(s);
      return;
    }
    if (options->cascade) {
      options->cases.match = "*/cascade_equals_flat";
      options->cases.declared = Feature::cascade;
    }
    exit_code = golden ? verify_golden(options->common, options->golden)
                       : verify_cases(options->common, options->cases);
  });
}

}  // namespace attune::cli
