#include "cli/command.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <system_error>

#include <attune/registry.hpp>

#include "registry/tables.hpp"

namespace attune::cli {
namespace {

/// The catalog under --help; plugins are not known while options are still being read.
std::string catalog_help() {
  const Result<Registry> registry = Registry::open({});
  return registry.ok() ? "Backends:\n" + registry::backends_help(registry->list()) : std::string();
}

/// A message is one line that a terminal can be given, whatever bytes a damaged file put into it.
std::string one_line(std::string text) {
  constexpr std::size_t kMost = 2000;
  constexpr std::size_t kEnds = 600;
  const auto inside_character = [&](std::size_t at) { return (text[at] & 0xc0) == 0x80; };
  if (text.size() > kMost) {
    std::size_t first = kEnds;
    std::size_t last = text.size() - kEnds;
    while (first > 0 && inside_character(first)) --first;
    while (last + 1 < text.size() && inside_character(last)) ++last;
    text = text.substr(0, first) + " … " + text.substr(last);
  }
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

bool stdout_has_a_reader() {
  struct stat status {};
  return fstat(fileno(stdout), &status) == 0 &&
         (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

std::string examples_help(const std::vector<std::string>& examples) {
  std::string text = "Examples:\n";
  for (const std::string& one : examples) text += "  " + one + "\n";
  return text;
}

}  // namespace

void add_model_option(CLI::App& app, CommonOptions& o, const std::string& what) {
  app.add_option("--model", o.model, what);
}

void add_device_options(CLI::App& app, CommonOptions& o, Devices devices) {
  app.add_option("--device", o.device,
                 devices == Devices::present
                     ? "auto, cpu, cuda or cuda:N"
                     : "auto, cpu, cuda, cuda:N, or one that is not there: cpu:avx512, cuda:sm90, "
                       "hip:gfx942, xpu, npu …")
      ->capture_default_str();
  app.add_option("--force-isa", o.force_isa,
                 "cap CPU kernels at scalar, avx2, avx512, avx512_bf16 or amx")
      ->check(not_empty());
  app.add_option("--plugin", o.plugins, "a shared object with backends; repeatable")
      ->envname("ATTUNE_PLUGINS")
      ->delimiter(':');
  app.add_flag("--json", o.json, "print exactly one JSON document on stdout");
}

void add_encoder_choice_options(CLI::App& app, CommonOptions& o) {
  app.add_option("--attention-backend", o.attention_backend, "a name of the catalog, or auto")
      ->check(not_empty())
      ->capture_default_str();
  app.add_option("--prefill-attention-backend", o.prefill_attention_backend,
                 "another backend for prefill")
      ->check(not_empty());
  app.add_option("--layer-attention-backend", o.layer_attention_backend,
                 "another backend for some layers, e.g. 0-3,7=reference; repeatable")
      ->take_all();
  app.add_option("--fallback", o.fallback,
                 "what an automatic choice may do when its first choice refuses")
      ->check(CLI::IsMember({"allow", "warn", "forbid"}))
      ->capture_default_str();
}

void add_selection_options(CLI::App& app, CommonOptions& o) {
  add_encoder_choice_options(app, o);
  app.add_option("--decode-attention-backend", o.decode_attention_backend,
                 "another backend for decode")
      ->check(not_empty());
  app.add_option("--page-size", o.page_size, "tokens a KV page holds, or auto")
      ->capture_default_str();
  app.add_option("--kv-cache-dtype", o.kv_cache_dtype,
                 "auto, fp32, bf16, fp16, fp8_e4m3, fp8_e5m2 or int8")
      ->capture_default_str();
}

void add_threads_option(CLI::App& app, CommonOptions& o) {
  app.add_option("--threads", o.threads, "CPU threads (default: the cores this process may use)")
      ->check(CLI::Range(1, 4096));
}

void add_seed_option(CLI::App& app, CommonOptions& o) {
  app.add_option("--seed", o.seed, "seed of every random choice")
      ->check(zero_or_more(std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
}

void add_common_options(CLI::App& app, CommonOptions& o) {
  add_model_option(app, o, "a folder in Hugging Face layout, or a .gguf file");
  add_device_options(app, o, Devices::present);
  add_selection_options(app, o);
  add_threads_option(app, o);
  add_seed_option(app, o);
}

CLI::Validator zero_or_more(std::uint64_t most) {
  return CLI::Validator(
      [most](std::string& text) {
        std::uint64_t number = 0;
        const char* const end = text.data() + text.size();
        const auto [read, error] = std::from_chars(text.data(), end, number);
        if (error == std::errc::result_out_of_range || (error == std::errc() && number > most))
          return "'" + text + "', wanted at most " + std::to_string(most);
        return error == std::errc() && read == end ? std::string()
                                                   : "'" + text + "', wanted 0 or more";
      },
      "");
}

CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) { return text.empty() ? "an empty value means nothing" : ""; }, "");
}

void add_examples(CLI::App& app, const std::vector<std::string>& examples) {
  app.footer(examples_help(examples));
}

void add_examples_and_backends(CLI::App& app, const std::vector<std::string>& examples) {
  app.footer([text = examples_help(examples)] { return text + "\n" + catalog_help(); });
}

Result<CpuIsa> isa_cap(const CommonOptions& options) {
  if (options.force_isa.empty()) return CpuIsa::amx;
  return parse_cpu_isa(options.force_isa);
}

Result<DeviceInfo> device_of(const CommonOptions& options) {
  const Result<CpuIsa> cap = isa_cap(options);
  if (!cap.ok()) return cap.status();
  return parse_device(options.device, *cap);
}

int thread_count(const CommonOptions& options) {
  return options.threads > 0 ? options.threads : std::max(1, cpu_device().num_units);
}

int report(const Status& status) {
  if (status.ok()) return kDone;
  fmt::print(stderr, "attune: {}\n", one_line(status.text()));
  std::size_t name_width = 0;
  std::size_t rule_width = 0;
  for (const Refusal& r : status.refusals()) {
    name_width = std::max(name_width, r.backend.size());
    rule_width = std::max(rule_width, r.rule.size());
  }
  for (const Refusal& r : status.refusals())
    fmt::print(stderr, "  {:<{}}  {:<{}}  wanted {}; have {}\n", r.backend, name_width, r.rule,
               rule_width, r.wanted, r.have);
  switch (status.code()) {
    case StatusCode::unsupported: return kNoBackend;
    case StatusCode::invalid_argument:
    case StatusCode::plugin_error: return kBadInput;
    default: return kFailed;
  }
}

int finish(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  // An earlier write took its errno with it: what stdout is tells whether a reader may have left.
  const int why = errno;
  if (why == EPIPE || (why == 0 && stdout_has_a_reader())) return code;
  fmt::print(stderr, "attune: cannot write to stdout{}{}\n", why == 0 ? "" : ": ",
             why == 0 ? "" : std::strerror(why));
  return code == kDone ? static_cast<int>(kFailed) : code;
}

}  // namespace attune::cli
