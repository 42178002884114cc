// What may vary from case to case, and the case of one combination (layer conformance).
#pragma once

#include <cstdint>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/pairwise.hpp"

namespace attune::conformance {

enum class Window : std::uint8_t { none, left, both };
enum class Scales : std::uint8_t { none, whole, per_head };
enum class Lengths : std::uint8_t { edges, one_long, full_pages, many };
enum class Place : std::uint8_t { paged, ragged };
/// dsv4: of 4 tokens behind an indexer, of many without one, not at all.
enum class Compression : std::uint8_t { indexed, whole, none };
/// Masks by blocks: none, one for all heads, one for each.
enum class Blocks : std::uint8_t { none, shared, by_head };
/// Of leading pages: by nobody, by all requests, by a tree of them.
enum class Sharing : std::uint8_t { none, all, tree };

/// The values each factor may take for one row.
struct Factors {
  std::vector<BatchForm> form;
  std::vector<DType> q_dtype, kv_dtype;
  std::vector<HeadDims> dims;
  std::vector<int> group;
  std::vector<std::int32_t> page_size;
  std::vector<KvLayout> layout;
  std::vector<Place> place;
  std::vector<AttentionKind> kind;
  std::vector<Window> window;
  std::vector<MaskKind> mask;
  std::vector<Scales> scales;
  std::vector<Lengths> lengths{Lengths::edges, Lengths::one_long, Lengths::full_pages,
                               Lengths::many};
  std::vector<Sharing> sharing;
  std::vector<Blocks> blocks;
  std::vector<int> cap, sinks, alibi, xai, chunk, lse, score_mod;
  std::vector<int> offset{0, 1}, strided{0, 1}, given_lists{0};
  std::vector<Compression> compression{Compression::indexed};
};

[[nodiscard]] Factors factors_of(const Capability& row, Variant variant);

/// Rows that hold every pair of values that mean something together.
[[nodiscard]] std::vector<FactorRow> factor_rows(const Factors& factors, std::uint64_t seed);

[[nodiscard]] Case case_of(const Factors& factors, const FactorRow& row, Variant variant,
                           std::uint64_t seed);

/// Puts `sharing`'s pages, about `keys` keys a level, in front of a case's requests.
void share_prefixes(Case& one, Sharing sharing, std::int32_t keys);

/// Of a dsv4 case, whose spec and page are settled otherwise.
void set_compression(Case& one, Compression compression);

/// Heads, dims, dtypes and a scale; nothing special.
[[nodiscard]] AttentionSpec base_spec(Variant variant, HeadDims dims, int group, DType q, DType kv);

}  // namespace attune::conformance
