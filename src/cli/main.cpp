// attune: the command line. The contract is docs/cli.md; each command lives in a file of its own.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <new>
#include <sstream>
#include <string>
#include <system_error>

#include "cli/command.hpp"

namespace {

/// Help and the version go to stdout, a mistake to stderr; both by stdio, whose failures are seen.
int show_end_of_parse(const CLI::App& app, const CLI::ParseError& end) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = app.exit(end, out, err);
  fmt::print("{}", out.str());
  fmt::print(stderr, "{}", err.str());
  return code == 0 ? attune::cli::kDone : attune::cli::kBadInput;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace attune::cli;
  // A reader that leaves (attune … | head) ends the output, not the program with a signal.
  std::signal(SIGPIPE, SIG_IGN);

  CLI::App app{"attune: attention for LLM inference, with a reason for every choice", "attune"};
  app.require_subcommand(1);
  app.set_version_flag("--version", ATTUNE_VERSION);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return std::string("attune: ") + error.what() + "\n";
  });
  int exit_code = kDone;
  add_backends(app, exit_code);
  add_bench(app, exit_code);
  add_doctor(app, exit_code);
  add_embed(app, exit_code);
  add_explain(app, exit_code);
  add_generate(app, exit_code);
  add_tables(app, exit_code);
  add_verify(app, exit_code);
  app.footer(
      "Exit codes: 0 done, 1 the job ran and failed, 2 bad usage or input, 3 no backend can serve "
      "it.\n`attune COMMAND --help` has examples; docs/cli.md is the whole contract.\n");
  std::string names;
  bool known = argc < 2 || argv[1][0] == '-';
  for (const CLI::App* command : app.get_subcommands({})) {
    known = known || command->get_name() == argv[1];
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  if (!known) {
    std::fprintf(stderr, "attune: no command is called '%s'; wanted one of %s\n", argv[1],
                 names.c_str());
    return kBadInput;
  }
  try {
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      exit_code = show_end_of_parse(app, error);
    }
  } catch (const std::system_error& error) {
    // What fmt throws when stdout takes no more: a reader that left is no failure.
    if (error.code() == std::errc::broken_pipe) return exit_code;
    std::fprintf(stderr, "attune: %s\n", error.what());
    return kFailed;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "attune: this machine's memory does not suffice\n");
    return kFailed;
  }
  return finish(exit_code);
}
