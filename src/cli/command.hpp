// What every command shares: the options of the contract, exit codes, and the two streams (layer
// cli).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <attune/device.hpp>
#include <attune/status.hpp>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace attune::cli {

/// Exit codes of the contract.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,     ///< the job ran and failed: a mismatch, a regression
  kBadInput = 2,   ///< usage, file, flag or model
  kNoBackend = 3,  ///< nobody can serve the request; the refusals are printed
};

/// The options shared by commands that run or explain something, as typed.
struct CommonOptions {
  std::string model;
  std::string device = "auto";
  std::string attention_backend = "auto";
  std::string prefill_attention_backend;
  std::string decode_attention_backend;
  std::vector<std::string> layer_attention_backend;
  std::string page_size = "auto";
  std::string kv_cache_dtype = "auto";
  std::string fallback = "warn";
  std::string force_isa;
  int threads =
      0;  ///< 0 = the cores this process may use; the option itself refuses values below 1
  std::uint64_t seed = 0;
  std::vector<std::string> plugins;  ///< --plugin and ATTUNE_PLUGINS
  bool json = false;
};

/// Which words of --device make sense to a command.
enum class Devices : std::uint8_t {
  present,
  imagined,  ///< such as cuda:sm90 too
};

// Each command adds what it honours: an option that it would ignore must not be accepted.

void add_model_option(CLI::App& app, CommonOptions& options, const std::string& what);
/// --device, --force-isa, --plugin and --json.
void add_device_options(CLI::App& app, CommonOptions& options, Devices devices);
/// What decides who serves which layers of an encoder, which never decodes: --attention-backend and
/// its relatives, --fallback.
void add_encoder_choice_options(CLI::App& app, CommonOptions& options);
/// The same for decode too, and of what the cache is: --page-size and --kv-cache-dtype.
void add_selection_options(CLI::App& app, CommonOptions& options);
void add_threads_option(CLI::App& app, CommonOptions& options);
void add_seed_option(CLI::App& app, CommonOptions& options);
/// All of them, as a command has that runs a model.
void add_common_options(CLI::App& app, CommonOptions& options);

/// Refuses signs, and numbers beyond `most`: the option's type would take "-1", or its own limit.
[[nodiscard]] CLI::Validator zero_or_more(
    std::uint64_t most = std::numeric_limits<std::int64_t>::max());
/// Of options that a command would otherwise take for not given.
[[nodiscard]] CLI::Validator not_empty();

/// Shown under --help: commands that work as they stand (a test runs those of the files that the
/// tree has), and the backends.
void add_examples(CLI::App& app, const std::vector<std::string>& examples);
void add_examples_and_backends(CLI::App& app, const std::vector<std::string>& examples);

/// The cap of --force-isa (the highest level when it is not given).
[[nodiscard]] Result<CpuIsa> isa_cap(const CommonOptions& options);

/// The device of --device under --force-isa.
[[nodiscard]] Result<DeviceInfo> device_of(const CommonOptions& options);

/// --threads, or the cores this process may use.
[[nodiscard]] int thread_count(const CommonOptions& options);

/// One line on stderr (and the table of refusals, if the status carries one); returns the
/// contract's exit code.
int report(const Status& status);

/// Flushes stdout; a closed pipe is an ordinary end, a full disk is a failure.
int finish(int code);

/// Each command registers itself on the app and writes its exit code when it ran.
void add_backends(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
void add_embed(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_tables(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);

}  // namespace attune::cli
