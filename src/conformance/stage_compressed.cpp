// What compressed keys need on a stage: pages of another pool, a second page table, a row for each new
// token of which most must not be read.
#include <cstring>
#include <utility>

#include "base/math.hpp"
#include "conformance/stage.hpp"
#include "conformance/stage_tensors.hpp"

namespace attune::conformance {

std::int64_t Stage::end_of(const Step::Part& part) const {
  const RequestShape& r = case_.requests[static_cast<std::size_t>(part.request)];
  return r.kv_offset + r.kv_len - (r.qo_len - part.first_row - part.num_rows);
}

Status Stage::prepare_compressed(Prepared& p) {
  const AttentionSpec& spec = case_.spec;
  if (spec.compress_ratio == 0) return {};
  const bool ragged = case_.source == KvSource::ragged;
  p.compressed_indptr = {0};
  for (const Step::Part& part : p.step.parts) {
    const auto keys = static_cast<std::int32_t>(compressed_before(spec, end_of(part)));
    const std::int32_t entries =
        ragged ? keys : base::ceil_div(keys, case_.page_size / spec.compress_ratio);
    p.compressed_indptr.push_back(p.compressed_indptr.back() + entries);
    if (ragged) continue;
    const auto& pages = compressed_pages_[static_cast<std::size_t>(part.request)];
    p.compressed_indices.insert(p.compressed_indices.end(), pages.begin(), pages.begin() + entries);
  }
  p.batch.compressed = {.kv_indptr = p.compressed_indptr, .kv_indices = p.compressed_indices};
  p.call.compressed = &p.compressed;
  p.compressed.cache = compressed_.cache;
  if (!ragged) return {};
  p.compressed.k =
      TensorView::dense(nullptr, spec.kv_dtype, {p.compressed_indptr.back(), spec.head_dim_qk});
  const std::vector<char> image = rows_of_parts(
      p.step, problem_.compressed.k, problem_.compressed.first,
      static_cast<std::size_t>(spec.head_dim_qk) * size_of(spec.kv_dtype), p.compressed_indptr);
  return place_rows(memory(), p.compressed.k, p.compressed_k, image);
}

Status Stage::append_compressed(const Step& step, DType dtype, Appended& made) {
  if (case_.spec.compress_ratio == 0) return {};
  std::vector<std::int64_t> slots;
  for (const Step::Part& part : step.parts) {
    const auto& pages = compressed_pages_[static_cast<std::size_t>(part.request)];
    for (std::int64_t p = end_of(part) - part.num_rows; p < end_of(part); ++p)
      slots.push_back(std::int64_t{pages[static_cast<std::size_t>(p / case_.page_size)]} *
                          case_.page_size +
                      p % case_.page_size);
  }
  std::vector<char> bytes(slots.size() * sizeof(std::int64_t));
  std::memcpy(bytes.data(), slots.data(), bytes.size());
  auto memory_made = GuardedMemory::make(memory(), bytes.size(), 0);
  if (!memory_made.ok()) return memory_made.status();
  made.compressed_slots = std::move(*memory_made);
  if (Status s = made.compressed_slots.upload(bytes); !s.ok()) return s;
  made.compressed = {
      .cache = compressed_.cache,
      .k = {},
      .slot_mapping = {reinterpret_cast<const std::int64_t*>(made.compressed_slots.data()),
                       slots.size()}};
  made.call.compressed = &made.compressed;
  const std::vector<char> image = appended_vectors(step, compressed_, dtype, made.compressed.k);
  return place_rows(memory(), made.compressed.k, made.compressed_k, image);
}

}  // namespace attune::conformance
