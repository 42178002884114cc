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
  if (golden)
    return refuse_foreign(command, {"--model", "--cases", "--match", "--cascade"},
                          "verify --golden");
  return refuse_foreign(command, kOfModels, "verify --cases");
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "verify", "hold every usable backend against the fp64 reference, or models to known logits");
  auto options = std::make_shared<VerifyOptions>();
  add_common_options(*command, options->common);
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
