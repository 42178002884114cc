// docs/cli.md has every option of every command.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include <fstream>
#include <sstream>
#include <string>

#include "cli/command.hpp"

namespace attune::cli {
namespace {

TEST(Contract, HasEveryOption) {
  std::ifstream file(std::string(ATTUNE_SOURCE_DIR) + "/docs/cli.md");
  std::stringstream contract;
  contract << file.rdbuf();
  CLI::App app{"attune", "attune"};
  int code = 0;
  for (const auto add : {add_backends, add_bench, add_doctor, add_embed, add_explain, add_generate,
                         add_tables, add_verify})
    add(app, code);
  for (const CLI::App* command : app.get_subcommands({}))
    for (const CLI::Option* option : command->get_options())
      if (option->get_single_name() != "help") {
        EXPECT_NE(contract.str().find("--" + option->get_single_name()), std::string::npos)
            << command->get_name() << " --" << option->get_single_name();
      }
}

}  // namespace
}  // namespace attune::cli
