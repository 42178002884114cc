// The named hard cases of one row and variant (layer conformance).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include <attune/descriptor.hpp>

#include "conformance/case.hpp"
#include "conformance/factors.hpp"

namespace attune::conformance {

/// Every property over typical shapes, and the shapes that have broken kernels before.
class HardCases {
 public:
  HardCases(const Capability& row, Variant variant)
      : row_(row), variant_(variant), factors_(factors_of(row, variant)) {}

  std::vector<Case> make();

  /// bf16, 16-token pages, groups of 4 (or what is nearest to it).
  [[nodiscard]] Case typical(BatchForm form, std::vector<RequestShape> requests) const;

 private:
  /// fp32, the other layout, small odd pages, groups of 3, 80-wide heads.
  [[nodiscard]] Case awkward(BatchForm form, std::vector<RequestShape> requests) const;

  [[nodiscard]] bool has(Feature f) const { return row_.features.has(f); }
  [[nodiscard]] HeadDims smallest_dims() const;
  void add(Case one, const Property& property, bool smoke, FeatureSet exercises = {},
           std::string_view label = {});

  void decode();
  void device_planning(const std::vector<RequestShape>& uneven);
  /// 65,536 requests, nearly all of one key: launch limits and bookkeeping.
  void many_requests();
  /// Every place of a window's start inside a tile of 32 and a page.
  void windows();
  /// q.k beyond the range of fp16 before it is scaled.
  void large_scores();

  void prefill();
  /// Prompts cut at multiples of the granule, whole or behind some that are cached.
  void cuts();
  /// Rows that see nothing at the start, the end and inside of tiles, with sinks if there are any.
  void blind_rows();
  /// Masks by blocks and score functions: hidden, whole and mixed blocks, of prompts and decodes.
  void flex(BatchForm form);
  /// A window across the seam of cached and new keys: prefill rows against single decodes.
  void windowed_decodes();
  /// One extend of more than 65,535 tokens.
  void long_extend();
  /// Draft tokens of requests that guess unequally far: one token beside many, from nothing and
  /// across pages; as chains and as trees, with windows.
  void drafts();

  /// Lists that the call brings; budgets of one key, of exactly the longest request's, of more.
  void kept_keys(BatchForm form, const std::vector<RequestShape>& uneven,
                 const std::vector<RequestShape>& growing);

  /// Chunks of one key, of what leaves borders in odd places, of all keys or one fewer.
  void chunks(BatchForm form, const std::vector<RequestShape>& uneven,
              const std::vector<RequestShape>& growing);

  /// dsv4: lengths around whatever a key stands for, budgets of one compressed key and of all.
  void compressed_keys(BatchForm form);

  /// minimax_sparse: lengths around blocks and around what a list holds; blocks that are always
  /// kept, none of them, and nothing else; blocks of one key.
  void kept_blocks(BatchForm form, const std::vector<RequestShape>& growing);
  void shared_blocks(BatchForm form);

  /// Trees of prefixes over requests of uneven tails, with whatever may stand in a level's way.
  void shared_prefixes(BatchForm form);

  const Capability& row_;
  Variant variant_;
  Factors factors_;
  std::vector<Case> cases_;
};

/// `wanted` where a factor may take it, else the factor's first value.
template <class T>
[[nodiscard]] T pick(const std::vector<T>& values, const T& wanted) {
  return std::find(values.begin(), values.end(), wanted) != values.end() ? wanted : values.front();
}

}  // namespace attune::conformance
