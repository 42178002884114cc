#include "bench/suite.hpp"

#include <span>
#include <utility>

#include "base/join.hpp"

namespace attune::bench {
namespace {

using base::join;

struct SuiteRow {
  std::string_view suite;
  std::string_view name;
};

// Shapes of models in use; bench/README.md says which targets they stand for.
constexpr SuiteRow kHostRows[] = {
    {"prefill", "gqa/prefill/bf16/hd128/gqa4/page16/b1x512"},
    {"prefill", "gqa/prefill/bf16/hd128/gqa4/page16/b1x2048"},
    {"prefill", "gqa/prefill/bf16/hd128/gqa4/page16/b1x4096"},
    {"prefill", "gqa/prefill/bf16/hd64/gqa4/page16/b1x2048"},
    {"prefill", "gqa/prefill/fp32/hd128/gqa4/page16/b1x2048"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page16/b1x4096"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page16/b1x16384"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page16/b1x32768"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page16/b8x4096"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page1/b1x16384"},
    {"decode", "gqa/decode/fp8_e4m3/hd128/gqa4/page16/b1x16384"},
    {"decode", "gqa/decode/int8/hd128/gqa4/page16/b1x16384"},
    {"mla", "mla/decode/bf16/hd576/gqa16/page64/b1x8192"},
    {"mla", "mla/decode/bf16/hd576/gqa128/page64/b1x8192"},
    {"mla", "mla/decode/fp8_e4m3/hd576/gqa128/page64/b1x8192"},
    {"mla", "gqa/prefill/bf16/hd192-128/gqa1/page64/b1x2048"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page16/b4x256+2048"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page16/b4x256+2048/flat"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page16/b16x1024+8192"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page16/b16x1024+8192/flat"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page16/b64x1024+32768"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page16/b64x1024+32768/flat"},
    {"sparse", "sparse_mla/decode/bf16/hd576/gqa128/page64/b1x8192"},
    {"sparse", "sparse_mla/decode/bf16/hd576/gqa128/page64/b1x65536"},
    {"sparse", "sparse_mla/decode/fp8_e4m3/hd576/gqa128/page64/b1x65536"},
    {"sparse", "sparse_mla/prefill/bf16/hd576/gqa16/page64/b1x4096"},
    {"sparse", "minimax_sparse/decode/bf16/hd128/gqa16x4/page16/b1x16384"},
    {"sparse", "gqa/decode/bf16/hd128/gqa16x4/page16/b1x16384"},
    {"sparse", "minimax_sparse/decode/bf16/hd128/gqa16x4/page16/b1x65536"},
    {"sparse", "gqa/decode/bf16/hd128/gqa16x4/page16/b1x65536"},
    {"sparse", "minimax_sparse/prefill/bf16/hd128/gqa16x4/page16/b1x4096"},
    {"sparse", "gqa/prefill/bf16/hd128/gqa16x4/page16/b1x4096"},
    {"sparse", "dsv4/decode/bf16/hd512/gqa64/page256/m4/b1x65536"},
    {"sparse", "dsv4/decode/bf16/hd512/gqa64/page256/m128/b1x65536"},
    {"sparse", "dsv4/prefill/bf16/hd512/gqa64/page256/m4/b1x2048"},
    {"linear", "gdn/prefill/bf16/hd128/h32/b1x4096"},
    {"linear", "gdn/prefill/bf16/hd128/h32/b1x16384"},
    {"linear", "kda/prefill/bf16/hd128/h32/b1x4096"},
    {"linear", "mamba2/prefill/bf16/hd128-64/h64/b1x4096"},
    {"linear", "lightning/prefill/bf16/hd128/h32/b1x4096"},
    {"linear", "gdn/decode/bf16/hd128/h32/b16x1"},
    {"linear", "kda/decode/bf16/hd128/h32/b16x1"},
    {"linear", "mamba2/decode/bf16/hd128-64/h64/b16x1"},
    // Every number of a case by itself, for `attune bench growth`.
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b1x512"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b1x1024"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b1x2048"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b1x4096"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b1x8192"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b2x512"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b4x512"},
    {"growth", "gqa/prefill/bf16/hd128/gqa4/page16/b8x512"},
    {"growth", "gqa/prefill/bf16/hd128/gqa1/page16/b1x2048"},
    {"growth", "gqa/prefill/bf16/hd128/gqa2/page16/b1x2048"},
    {"growth", "gqa/prefill/bf16/hd128/gqa8/page16/b1x2048"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b1x2048"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b1x4096"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b1x8192"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b1x16384"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b1x32768"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b2x4096"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b4x4096"},
    {"growth", "gqa/decode/bf16/hd128/gqa4/page16/b8x4096"},
    {"growth", "gqa/decode/bf16/hd128/gqa1/page16/b1x16384"},
    {"growth", "gqa/decode/bf16/hd128/gqa2/page16/b1x16384"},
    {"growth", "gqa/decode/bf16/hd128/gqa8/page16/b1x16384"},
    {"growth", "mla/decode/bf16/hd576/gqa16/page64/b1x2048"},
    {"growth", "mla/decode/bf16/hd576/gqa16/page64/b1x4096"},
    {"growth", "mla/decode/bf16/hd576/gqa16/page64/b1x8192"},
    {"growth", "mla/decode/bf16/hd576/gqa16/page64/b1x16384"},
    {"growth", "mla/decode/bf16/hd576/gqa32/page64/b1x8192"},
    {"growth", "mla/decode/bf16/hd576/gqa64/page64/b1x8192"},
    {"growth", "mla/decode/bf16/hd576/gqa128/page64/b1x8192"},
    {"growth", "gdn/prefill/bf16/hd128/h32/b1x1024"},
    {"growth", "gdn/prefill/bf16/hd128/h32/b1x2048"},
    {"growth", "gdn/prefill/bf16/hd128/h32/b1x4096"},
    {"growth", "gdn/prefill/bf16/hd128/h32/b1x8192"},
    {"growth", "gdn/prefill/bf16/hd128/h32/b2x1024"},
    {"growth", "gdn/prefill/bf16/hd128/h32/b4x1024"},
    {"growth", "gdn/prefill/bf16/hd128/h8/b1x4096"},
    {"growth", "gdn/prefill/bf16/hd128/h16/b1x4096"},
};

// The same models as a GPU serves them: the shapes of docs/performance/cuda-*.md.
constexpr SuiteRow kGpuRows[] = {
    {"prefill", "gqa/prefill/bf16/hd128/gqa4/page64/b16x1024"},
    {"prefill", "gqa/prefill/bf16/hd128/gqa4/page64/b4x4096"},
    {"prefill", "gqa/prefill/bf16/hd128/gqa4/page64/b1x16384"},
    {"prefill", "gqa/prefill/bf16/hd64/gqa4/page64/b1x16384"},
    {"prefill", "gqa/prefill/bf16/hd256/gqa1/page64/b1x16384"},
    {"prefill", "gqa/prefill/bf16/hd512/gqa8x2/page64/b1x16384"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page1/b64x8192"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page16/b64x8192"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page64/b64x8192"},
    {"decode", "gqa/decode/bf16/hd128/gqa8/page64/b16x32768"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page64/b256x1024"},
    {"decode", "gqa/decode/bf16/hd128/gqa4/page64/b1x32768"},
    {"decode", "gqa/decode/bf16/hd512/gqa8x2/page64/b64x8192"},
    {"decode", "gqa/decode/fp8_e4m3/hd128/gqa8/page64/b128x2048"},
    {"mla", "mla/decode/bf16/hd576/gqa128/page64/b128x4096"},
    {"mla", "mla/decode/bf16/hd576/gqa16/page64/b128x8192"},
    {"mla", "mla/decode/bf16/hd576/gqa16/page64/b64x16384"},
    {"mla", "mla/decode/bf16/hd576/gqa128/page64/b1x65536"},
    {"mla", "mla/decode/bf16/hd576/gqa16/page64/b1x4096"},
    {"mla", "mla/decode/fp8_e4m3/hd576/gqa128/page64/b128x4096"},
    {"mla", "mla/decode/fp8_e4m3/hd576/gqa16/page64/b128x8192"},
    {"mla", "mla/decode/q_fp8_e4m3/hd576/gqa128/page64/b128x4096"},
    {"mla", "mla/decode/q_fp8_e4m3/hd576/gqa16/page64/b128x8192"},
    {"mla", "gqa/prefill/bf16/hd192-128/gqa16/page64/b2x8192"},
    {"sparse", "sparse_mla/decode/bf16/hd576/gqa128/page64/b1x65536"},
    {"sparse", "sparse_mla/decode/bf16/hd576/gqa128/page64/b64x16384"},
    {"sparse", "sparse_mla/prefill/bf16/hd576/gqa128/page64/b1x4096"},
    {"sparse", "sparse_mla/decode/fp8_e4m3/hd576/gqa128/page64/b1x65536"},
    {"sparse", "sparse_mla/decode/fp8_e4m3/hd576/gqa128/page64/b64x16384"},
    {"sparse", "sparse_mla/prefill/fp8_e4m3/hd576/gqa128/page64/b1x4096"},
    {"sparse", "dsv4/decode/bf16/hd512/gqa64/page256/m4/b1x65536"},
    {"sparse", "dsv4/decode/bf16/hd512/gqa64/page256/m4/b64x16384"},
    {"sparse", "dsv4/decode/bf16/hd512/gqa64/page256/m128/b1x65536"},
    {"sparse", "dsv4/decode/bf16/hd512/gqa64/page256/m128/b64x16384"},
    {"sparse", "dsv4/prefill/bf16/hd512/gqa64/page256/m4/b1x8192"},
    {"sparse", "dsv4/prefill/bf16/hd512/gqa64/page256/m128/b1x8192"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page64/b64x1024+32768"},
    {"cascade", "gqa/decode/bf16/hd128/gqa4/page64/b64x1024+32768/flat"},
    {"linear", "gdn/prefill/bf16/hd128/h32/b1x8192"},
    {"linear", "gdn/prefill/bf16/hd128/h32/b8x4096"},
    {"linear", "kda/prefill/bf16/hd128/h32/b1x8192"},
    {"linear", "kda/prefill/bf16/hd128/h32/b8x4096"},
    {"linear", "mamba2/prefill/bf16/hd128-64/h128/b1x8192"},
    {"linear", "lightning/prefill/bf16/hd128/h64/b1x8192"},
    {"linear", "gdn/decode/bf16/hd128/h32/b64x1"},
    {"linear", "kda/decode/bf16/hd128/h32/b64x1"},
    {"linear", "mamba2/decode/bf16/hd128-64/h128/b64x1"},
};

}  // namespace

Result<std::vector<Case>> suite(std::string_view wanted, DeviceKind device) {
  constexpr std::string_view kSuites[] = {"prefill", "decode", "mla",    "linear",
                                          "cascade", "sparse", "growth", "all"};
  bool known = false;
  for (std::string_view s : kSuites) known = known || s == wanted;
  if (!known)
    return invalid_argument(
        join("no suite is called '", wanted,
             "'; wanted prefill, decode, mla, linear, cascade, sparse, growth or all"));
  std::vector<Case> cases;
  const std::span<const SuiteRow> rows =
      device == DeviceKind::cpu ? std::span<const SuiteRow>(kHostRows) : kGpuRows;
  for (const SuiteRow& row : rows) {
    // The growth suite is no part of all: it takes minutes, on cases that mostly are there already.
    if (row.suite != wanted && (wanted != "all" || row.suite == "growth")) continue;
    Result<Case> c = parse_case(row.name);
    if (!c.ok()) return c.status();
    cases.push_back(std::move(*c));
  }
  if (cases.empty())
    return unsupported(join("suite ", wanted, ": no backend of this build serves it"),
                       {{"all", "variant", std::string(wanted),
                         "gqa, mla, sparse_mla, minimax_sparse and the linear variants"}});
  return cases;
}

}  // namespace attune::bench
