#include "cache/request_pages.hpp"

#include <algorithm>

#include "base/math.hpp"

namespace attune::cache {

std::int64_t RequestPages::pages_missing(std::int64_t end, std::int32_t page_size) const {
  const std::int64_t wanted = base::ceil_div<std::int64_t>(end - first_position_, page_size);
  return std::max<std::int64_t>(0, wanted - static_cast<std::int64_t>(pages_.size()));
}

Status RequestPages::extend(PagePool& pool, std::int64_t end) {
  return pool.allocate(pages_missing(end, pool.page_size()), pages_);
}

void RequestPages::drop_before(PagePool& pool, std::int64_t position) {
  const std::int64_t page_size = pool.page_size();
  const std::int64_t passed = std::max<std::int64_t>(0, (position - first_position_) / page_size);
  const auto held = std::min(passed, static_cast<std::int64_t>(pages_.size()));
  const Status released = pool.release(std::span(pages_).first(static_cast<std::size_t>(held)));
  require(released.ok(), "a request holds its pages");
  pages_.erase(pages_.begin(), pages_.begin() + held);
  first_position_ += passed * page_size;
}

void RequestPages::truncate(PagePool& pool, std::int64_t end) {
  const auto kept = static_cast<std::size_t>(std::max<std::int64_t>(
      0, base::ceil_div<std::int64_t>(end - first_position_, pool.page_size())));
  if (kept >= pages_.size()) return;
  require(pool.release(std::span(pages_).subspan(kept)).ok(), "a request holds its pages");
  pages_.resize(kept);
}

void RequestPages::clear(PagePool& pool) {
  require(pool.release(pages_).ok(), "a request holds its pages");
  pages_.clear();
  first_position_ = 0;
}

void RequestPages::adopt(std::span<const PageId> pages, std::int64_t first_position) {
  require(pages_.empty() && first_position_ == 0, "only an empty row adopts pages");
  pages_.assign(pages.begin(), pages.end());
  first_position_ = first_position;
}

void RequestPages::exchange(PagePool& pool, std::size_t index, PageId page) {
  require(pool.retain({&page, 1}).ok() && pool.release({&pages_[index], 1}).ok(),
          "both pages are held");
  pages_[index] = page;
}

std::int64_t RequestPages::slot(std::int64_t position, std::int32_t page_size) const {
  const std::int64_t local = position - first_position_;
  const auto page = static_cast<std::size_t>(local / page_size);
  require(local >= 0 && page < pages_.size(), "a position inside the row");
  return static_cast<std::int64_t>(pages_[page]) * page_size + local % page_size;
}

}  // namespace attune::cache
