// One request's pages in one pool, in order of position (layer cache).
//
// A full-attention layer keeps every page; a windowed one gives back pages that no later query can
// see, so the row starts at a position of its own: BatchView::kv_offset.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attune/cache.hpp>
#include <attune/status.hpp>

namespace attune::cache {

class RequestPages {
 public:
  /// Makes room for positions below `end`; out_of_pages changes nothing.
  Status extend(PagePool& pool, std::int64_t end);

  /// Returns the pages that lie wholly before `position`. A row that is dropped beyond its end
  /// starts anew at the page of `position`.
  void drop_before(PagePool& pool, std::int64_t position);

  /// Returns the pages that lie wholly at or beyond `end`: of tokens that were not kept.
  void truncate(PagePool& pool, std::int64_t end);

  /// Returns every page; the row is as new.
  void clear(PagePool& pool);

  /// Starts the row with pages that are already filled and already retained for it; the first holds
  /// the token at `first_position`.
  void adopt(std::span<const PageId> pages, std::int64_t first_position = 0);

  /// Takes `page`, which somebody else holds and which holds the same keys, in place of its own.
  void exchange(PagePool& pool, std::size_t index, PageId page);

  /// Position of the first key of the first page: a multiple of the page size.
  [[nodiscard]] std::int64_t first_position() const { return first_position_; }
  [[nodiscard]] std::span<const PageId> pages() const { return pages_; }
  /// Where the token at `position` lies: page · page_size + place.
  [[nodiscard]] std::int64_t slot(std::int64_t position, std::int32_t page_size) const;
  /// Pages that extend(end) would take.
  [[nodiscard]] std::int64_t pages_missing(std::int64_t end, std::int32_t page_size) const;

 private:
  std::vector<PageId> pages_;
  std::int64_t first_position_ = 0;
};

}  // namespace attune::cache
