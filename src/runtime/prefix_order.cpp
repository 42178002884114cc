#include "runtime/prefix_order.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

namespace attune::runtime {
namespace {

constexpr auto kNoPage = static_cast<PageId>(-1);

PageId page_at(const ScheduledRow& row, std::size_t depth) {
  const auto pages = row.request->pages[0].pages();
  return depth < pages.size() ? pages[depth] : kNoPage;
}

/// Orders rows whose first `depth` pages are the same.
void order(std::span<ScheduledRow> rows, std::size_t depth) {
  if (rows.size() < 2) return;
  const auto follows_first = [&](const ScheduledRow& row) {
    return page_at(row, depth) == page_at(rows[0], depth);
  };
  while (page_at(rows[0], depth) != kNoPage && std::all_of(rows.begin(), rows.end(), follows_first))
    ++depth;

  // Branches in the order of their first rows.
  std::map<PageId, std::size_t> branch_of;
  std::vector<std::vector<ScheduledRow>> branches;
  for (const ScheduledRow& row : rows) {
    const PageId page = page_at(row, depth);
    const auto [at, is_new] = branch_of.try_emplace(page, branches.size());
    if (is_new || page == kNoPage) {
      at->second = branches.size();
      branches.emplace_back();
    }
    branches[at->second].push_back(row);
  }
  if (branches.size() == rows.size()) return;
  std::size_t begin = 0;
  for (const std::vector<ScheduledRow>& branch : branches) {
    std::copy(branch.begin(), branch.end(), rows.begin() + static_cast<std::ptrdiff_t>(begin));
    order(rows.subspan(begin, branch.size()), depth + 1);
    begin += branch.size();
  }
}

}  // namespace

void order_by_prefix(std::span<ScheduledRow> rows) {
  if (rows.empty() || rows[0].request->pages.empty()) return;
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin + 1;
    while (end < rows.size() && rows[end].part() == rows[begin].part()) ++end;
    order(rows.subspan(begin, end - begin), 0);
    begin = end;
  }
}

}  // namespace attune::runtime
