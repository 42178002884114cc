#include "registry/shared_pages.hpp"

#include <algorithm>

#include "registry/rules.hpp"

namespace attune::registry {
namespace {

constexpr std::int32_t kLargestPage = 256;

}  // namespace

PageSizes::PageSizes(const std::vector<const Capability*>& rows) : any_(false) {
  for (const Capability* row : rows) {
    any_ = any_ || row->page_sizes.empty();
    for (std::int32_t size : row->page_sizes) sizes_.push_back(size);
    if (preferred_ == 0)
      preferred_ = row->page_sizes.empty() ? row->preferred_page_size : row->page_sizes[0];
  }
  if (any_) sizes_.clear();
}

bool PageSizes::contains(std::int32_t size) const {
  if (any_) return size >= 1 && size <= kLargestPage;
  return std::find(sizes_.begin(), sizes_.end(), size) != sizes_.end();
}

PageSizes PageSizes::intersect(const PageSizes& other) const {
  PageSizes result;
  result.any_ = any_ && other.any_;
  const PageSizes& ordered = any_ ? other : *this;
  const PageSizes& filter = any_ ? *this : other;
  for (std::int32_t size : ordered.sizes_)
    if (filter.contains(size)) result.sizes_.push_back(size);
  for (std::int32_t wish : {preferred_, other.preferred_})
    if (result.preferred_ == 0 && wish != 0 && result.contains(wish)) result.preferred_ = wish;
  if (result.preferred_ == 0 && !result.sizes_.empty()) result.preferred_ = result.sizes_.front();
  return result;
}

void PageSizes::prefer(std::int32_t size) {
  if (contains(size)) preferred_ = size;
}

std::string PageSizes::text() const {
  if (any_) return "any page size";
  std::vector<std::string> words;
  for (std::int32_t size : sizes_) words.push_back(std::to_string(size));
  return "page size " + one_of(words);
}

std::optional<KvLayout> shared_layout(const Capability& a, const Capability& b) {
  for (KvLayout layout : a.kv_layouts)
    if (b.kv_layouts.contains(layout)) return layout;
  return std::nullopt;
}

}  // namespace attune::registry
