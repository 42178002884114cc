// attune tables: the catalog and the defaults as text, for docs, programs and --help.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "base/whole_file.hpp"
#include "cli/command.hpp"
#include "cli/models_table.hpp"
#include "cli/selection_options.hpp"
#include "registry/tables.hpp"

namespace attune::cli {
namespace {

struct TablesOptions {
  CommonOptions common;
  std::string format = "md";
  std::string write;
  std::string models;
};

int run_tables(const TablesOptions& options) {
  const Result<Registry> registry = open_registry(options.common);
  if (!registry.ok()) return report(registry.status());
  const auto backends = registry->list();
  if (!options.write.empty()) {
    Status status =
        base::write_whole(options.write + "/backends.md", registry::backends_markdown(backends));
    if (status.ok())
      status = base::write_whole(options.write + "/selection.md", registry::selection_markdown());
    if (status.ok() && !options.models.empty()) {
      const Result<std::string> models = models_markdown(options.models, *registry);
      status =
          models.ok() ? base::write_whole(options.write + "/models.md", *models) : models.status();
    }
    return report(status);
  }
  if (options.format == "json")
    fmt::print("{}", registry::backends_json(backends));
  else if (options.format == "help")
    fmt::print("{}", registry::backends_help(backends));
  else
    fmt::print("{}\n{}", registry::backends_markdown(backends), registry::selection_markdown());
  return kDone;
}

}  // namespace

void add_tables(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<TablesOptions>();
  CLI::App* command = app.add_subcommand("tables", "the catalog and the defaults as text");
  command->add_option("--format", options->format, "md, json or help")
      ->check(CLI::IsMember({"md", "json", "help"}))
      ->capture_default_str();
  command
      ->add_option("--write", options->write, "a folder to write backends.md and selection.md to")
      ->check(not_empty());
  command
      ->add_option("--models", options->models,
                   "a folder of models: with --write, models.md tells who serves them")
      ->check(not_empty())
      ->needs("--write");
  command
      ->add_option("--plugin", options->common.plugins, "a shared object with backends; repeatable")
      ->envname("ATTUNE_PLUGINS")
      ->delimiter(':');
  add_examples(*command, {"attune tables --format json", "attune tables --write docs"});
  command->callback([options, &exit_code] { exit_code = run_tables(*options); });
}

}  // namespace attune::cli
