#include <utility>

#include "conformance/hard_cases.hpp"
#include "conformance/properties.hpp"

namespace attune::conformance {

void HardCases::chunks(BatchForm form, const std::vector<RequestShape>& uneven,
                       const std::vector<RequestShape>& growing) {
  if (variant_ != Variant::dual_chunk) return;
  const auto with = [&](Case one, const Property& property, bool smoke, std::int64_t chunk,
                        std::string_view label) {
    one.spec.dual_chunk_len = chunk;
    add(std::move(one), property, smoke, {}, label);
  };
  std::int32_t longest = 0;
  for (const RequestShape& r : uneven) longest = std::max(longest, r.kv_len);
  for (const bool typically : {true, false}) {
    const Case one = typically ? typical(form, uneven) : awkward(form, uneven);
    for (const std::int64_t chunk : {1, 16, 63, 64, 65})
      with(one, kMatchesReference, typically, chunk, "chunks");
    with(one, kMatchesReference, typically, longest - 1, "one_key_too_many");
    with(one, kOneChunkEqualsDense, typically, longest, "");
    with(one, kOneChunkEqualsDense, false, 262144, "");
  }
  // Every place of a border inside a tile and a page.
  std::vector<RequestShape> borders;
  for (std::int32_t kv = 120; kv < 120 + 24; ++kv)
    borders.push_back({form == BatchForm::decode ? 1 : 5, kv});
  with(typical(form, borders), kMatchesReference, true, 48, "every_border");
  if (form == BatchForm::decode) {
    with(typical(form, growing), kRefreshEqualsFresh, true, 32, "across_a_border");
    if (has(Feature::cuda_graph))
      with(typical(form, growing), kGraphReplay, true, 32, "across_a_border");
    return;
  }
  for (const std::int64_t chunk : {7, 33})
    with(typical(form, {{19, 40}, {7, 7}}), kPrefillEqualsDecodes, true, chunk, "chunks");
  // Blocks of rows of which some are of one chunk, some of the next, some without any key.
  with(typical(form, {{200, 200}, {150, 41}, {3, 64}}), kMatchesReference, true, 37, "mixed_rows");
  if (has(Feature::batch_invariant) && has(Feature::chunked_prefix)) {
    Case one = typical(form, {{300, 300}, {1, 1}, {200, 264}, {65, 65}});
    one.spec.dual_chunk_len = 96;
    add(std::move(one), kCutsKeepBits, true, Feature::batch_invariant, "chunks");
  }
}

}  // namespace attune::conformance
