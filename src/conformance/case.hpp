// A case: one problem, one property, one name (layer conformance).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <attune/backend.hpp>
#include <attune/batch.hpp>
#include <attune/descriptor.hpp>
#include <attune/device.hpp>
#include <attune/spec.hpp>

#include "conformance/device_memory.hpp"

namespace attune::conformance {

/// Makes a backend, whoever it comes from.
using MakeBackend = std::function<Result<std::unique_ptr<Backend>>(const BackendContext&)>;

/// What is tested, on a device whose memory the caller knows, and the oracle it is held to.
struct Subject {
  const BackendDescriptor* descriptor = nullptr;
  MakeBackend make{};
  MakeBackend oracle{};  ///< the fp64 reference; runs on the CPU
  DeviceInfo device{};
  Executor* executor = nullptr;  ///< of the oracle, and of CPU backends
  DeviceMemory* memory = nullptr;
  int repeats = 10;  ///< of a run whose bits may not change; fewer where nothing is left to chance
};

enum class Verdict : std::uint8_t { passed, failed, skipped };

[[nodiscard]] constexpr std::string_view name(Verdict v) {
  switch (v) {
    case Verdict::passed: return "passed";
    case Verdict::failed: return "failed";
    case Verdict::skipped: return "skipped";
  }
  return "?";
}

struct Outcome {
  Verdict verdict = Verdict::passed;
  std::string reason{};  ///< why it failed or was skipped
  double max_abs_err = 0.0;
  double max_rel_err = 0.0;
  double tolerance = 0.0;  ///< absolute part of the bound on o
  double excess = 0.0;     ///< largest error as a multiple of its bound; at most 1 passes
};

[[nodiscard]] inline Outcome failed(std::string reason) {
  return {.verdict = Verdict::failed, .reason = std::move(reason)};
}
[[nodiscard]] inline Outcome skipped(std::string reason) {
  return {.verdict = Verdict::skipped, .reason = std::move(reason)};
}

enum class MaskKind : std::uint8_t {
  none,
  random,  ///< any bits, some rows without any
  tree,    ///< the whole prefix, then ancestors among the draft tokens
};

struct RequestShape {
  std::int32_t qo_len = 1;
  std::int32_t kv_len = 0;  ///< linear variants: beyond qo_len, the state has a history
  std::int64_t kv_offset = 0;
  bool padding = false;  ///< linear variants: state slot -1
};

/// How the gates of a linear variant are drawn.
enum class Gates : std::uint8_t {
  typical,
  forgetful,  ///< decays so near 0 that products of them underflow
  lasting,    ///< decays that round to 1
  steep,      ///< gates beyond softplus's linear threshold, both ways
};

struct Case;

/// One sentence about backends that must hold; a function each.
struct Property {
  std::string_view name;
  Outcome (*check)(const Subject& subject, const Case& one) = nullptr;
};

struct Case {
  std::string name{};
  AttentionSpec spec{};
  BatchForm form = BatchForm::extend;
  KvSource source = KvSource::paged;
  KvLayout layout = KvLayout::nhd;
  std::int32_t page_size = 16;
  MaskKind mask = MaskKind::none;
  bool want_lse = true;
  bool strided = false;
  bool mask_by_head = false;  ///< of block_mask: each query head has its own
  bool given_lists = false;   ///< the call brings what is kept instead of an indexer
  std::vector<RequestShape> requests{};
  /// Requests whose leading pages are the same, with the same keys in them; groups nest, outer ones
  /// first. Their batches say so.
  std::vector<PrefixGroup> sharing{};
  const Property* property = nullptr;
  FeatureSet exercises{};    ///< beyond those the spec itself asks for
  std::string_view label{};  ///< a hard case's name
  double gain = 1.0;         ///< on queries and keys
  Gates gates = Gates::typical;
  std::uint64_t seed = 1;
  bool smoke = false;  ///< also part of the short run
};

[[nodiscard]] inline Phase phase_of(const Case& one) {
  return one.form == BatchForm::decode ? Phase::decode : Phase::prefill;
}

/// OPERATION/PHASE/DTYPE/hdN/gqaN/pageN/bNxL/what-else/property
[[nodiscard]] std::string case_name(const Case& one);

/// Features that serving this case asks for.
[[nodiscard]] FeatureSet features_of(const Case& one);

/// The context a subject's backend is made with.
[[nodiscard]] BackendContext context_of(const Subject& subject, const Case& one);

}  // namespace attune::conformance
