// The page pool: who holds which page of the KV cache (layer cache).
//
//   PagePool pool(/*num_pages=*/1024, /*page_size=*/16);
//   std::vector<PageId> row;
//   if (Status s = pool.allocate(3, row); !s.ok()) return s;   // out_of_pages: wait or evict
//   pool.retain(row);                     // a second holder: a prefix cache, a forked sample
//   pool.release(row); pool.release(row); // the second release frees them
//
// The pool hands out ids and counts holders; it never looks at bytes. One pool serves every layer
// whose keys live equally long: full-attention layers share one, layers of one window share
// another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <attune/status.hpp>

namespace attune {

/// A page's number, 0 … num_pages - 1. A type of its own, so that it never mixes with slots or
/// counts; BatchView::kv_indices holds the plain number.
enum class PageId : std::int32_t {};

/// Not thread-safe; outlives whatever holds its pages.
class PagePool {
 public:
  PagePool(std::int32_t num_pages, std::int32_t page_size);

  /// Appends `count` pages with one holder each to `row`, or appends nothing and says out_of_pages.
  Status allocate(std::int64_t count, std::vector<PageId>& row);

  /// One more holder for each page. Every page must be held already.
  Status retain(std::span<const PageId> pages);

  /// One holder fewer for each page; pages without a holder become free. A page released more often
  /// than it was held is refused, and then nothing changes.
  Status release(std::span<const PageId> pages);

  [[nodiscard]] std::int32_t num_pages() const {
    return static_cast<std::int32_t>(holders_.size());
  }
  [[nodiscard]] std::int32_t num_free() const { return static_cast<std::int32_t>(free_.size()); }
  [[nodiscard]] std::int32_t num_held() const { return num_pages() - num_free(); }
  [[nodiscard]] std::int32_t page_size() const { return page_size_; }
  /// 0 for a free page.
  [[nodiscard]] std::int32_t holders(PageId page) const;

 private:
  [[nodiscard]] bool known(PageId page) const;
  std::int32_t& count(PageId page) { return holders_[static_cast<std::size_t>(page)]; }

  std::int32_t page_size_;
  std::vector<std::int32_t> holders_;  ///< by page; kFree where the page is in free_
  std::vector<PageId> free_;           ///< a stack: the page last freed is the next handed out
};

/// The bytes of `from`, in every layer of the pool, must be copied to `to`.
struct PageCopy {
  PageId from{};
  PageId to{};
};

/// Copy on write. Parallel samples and beams fork a row by retaining all of it. Before one of them
/// writes into page `index` of its row, this gives the row a page of its own there, where others hold
/// the old one too, and says what must be copied; it returns nothing where the page was the row's
/// alone. out_of_pages leaves the row as it was.
Result<std::optional<PageCopy>> make_writable(PagePool& pool, std::vector<PageId>& row,
                                              std::size_t index);

}  // namespace attune
