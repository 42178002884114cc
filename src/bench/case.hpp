// What is timed: one attention call of one shape, with the flops and bytes it cannot do without
// (layer bench).
//
// Names are paths: OPERATION/PHASE/DTYPE/hdN/gqaN/pageN/bNxL, as
// gqa/decode/bf16/hd128/gqa4/page16/b64x8192. bNxL+S puts S keys that all requests share in front
// of their own L; with /flat behind it the batch does not say so. DTYPE is that of the keys
// (activations are bf16, or fp32 where keys are), of queries too with q_ in front; hdK-V where key
// and value widths differ; gqaNxH where there are H KV heads and not 8; linear operations have hN
// heads in place of gqaN/pageN. In dsv4 mN stands before the batch: a compressed key is N tokens, as
// dsv4/decode/bf16/hd512/gqa64/page256/m4/b1x65536.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <attune/spec.hpp>
#include <attune/status.hpp>

namespace attune::bench {

struct Case {
  std::string name;
  AttentionSpec spec;
  Phase phase = Phase::decode;
  std::int32_t page_size = 16;
  std::int64_t batch = 1;
  std::int64_t length = 0;  ///< keys a request has for itself; prefill: queries too
  std::int64_t shared = 0;  ///< keys before those, the same pages for all; whole pages
  bool flat = false;        ///< they are not named in prefix_groups

  [[nodiscard]] std::int64_t qo_len() const { return phase == Phase::prefill ? length : 1; }
  [[nodiscard]] std::int64_t num_tokens() const { return batch * qo_len(); }
  /// Multiply-adds count twice; keys that no query sees count nothing.
  [[nodiscard]] double flops() const;
  /// Each input read once, each output written once; flat ones read the shared keys a request.
  [[nodiscard]] double bytes() const;
};

/// Reads a name back. What is wrong with it, and what was wanted.
[[nodiscard]] Result<Case> parse_case(std::string_view name);

}  // namespace attune::bench
