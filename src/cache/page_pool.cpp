#include <string>

#include <attune/cache.hpp>

namespace attune {
namespace {

// Distinct from "no holder left": a page between its last release and its return to the stack.
constexpr std::int32_t kFree = -1;

Status not_held(PageId page, const char* verb) {
  return invalid_argument("cannot " + std::string(verb) + " page " +
                          std::to_string(static_cast<std::int32_t>(page)) +
                          ": it is not held (freed twice, or never allocated)");
}

}  // namespace

PagePool::PagePool(std::int32_t num_pages, std::int32_t page_size) : page_size_(page_size) {
  require(num_pages >= 0 && page_size >= 1, "a page pool needs num_pages >= 0 and page_size >= 1");
  holders_.assign(static_cast<std::size_t>(num_pages), kFree);
  free_.reserve(holders_.size());
  // Low ids first: memory of pages that were never needed stays untouched.
  for (std::int32_t id = num_pages; id-- > 0;) free_.push_back(PageId{id});
}

bool PagePool::known(PageId page) const {
  const auto id = static_cast<std::int32_t>(page);
  return id >= 0 && id < num_pages();
}

std::int32_t PagePool::holders(PageId page) const {
  if (!known(page)) return 0;
  const std::int32_t n = holders_[static_cast<std::size_t>(page)];
  return n == kFree ? 0 : n;
}

Status PagePool::allocate(std::int64_t wanted, std::vector<PageId>& row) {
  require(wanted >= 0, "pages to allocate");
  if (wanted > num_free()) {
    return {StatusCode::out_of_pages, "wanted " + std::to_string(wanted) + " pages of " +
                                          std::to_string(page_size_) + " tokens, " +
                                          std::to_string(num_free()) + " of " +
                                          std::to_string(num_pages()) + " are free"};
  }
  for (std::int64_t i = 0; i < wanted; ++i) {
    const PageId page = free_.back();
    free_.pop_back();
    count(page) = 1;
    row.push_back(page);
  }
  return {};
}

Status PagePool::retain(std::span<const PageId> pages) {
  for (PageId page : pages)
    if (holders(page) == 0) return not_held(page, "retain");
  for (PageId page : pages) ++count(page);
  return {};
}

Status PagePool::release(std::span<const PageId> pages) {
  // Counted down one by one, so that a page named twice in `pages` needs two holders.
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (known(pages[i]) && count(pages[i]) > 0) {
      --count(pages[i]);
      continue;
    }
    for (std::size_t k = 0; k < i; ++k) ++count(pages[k]);
    return not_held(pages[i], "release");
  }
  for (PageId page : pages) {
    if (count(page) != 0) continue;
    count(page) = kFree;
    free_.push_back(page);
  }
  return {};
}

Result<std::optional<PageCopy>> make_writable(PagePool& pool, std::vector<PageId>& row,
                                              std::size_t index) {
  if (index >= row.size())
    return invalid_argument("page " + std::to_string(index) + " of a row of " +
                            std::to_string(row.size()));
  const PageId shared = row[index];
  if (pool.holders(shared) == 0) return not_held(shared, "write to");
  if (pool.holders(shared) == 1) return std::optional<PageCopy>{};
  std::vector<PageId> own;
  if (Status s = pool.allocate(1, own); !s.ok()) return s;
  require(pool.release({&shared, 1}).ok(), "a page with two holders");
  row[index] = own[0];
  return std::optional<PageCopy>({.from = shared, .to = own[0]});
}

}  // namespace attune
