// Requests over common pages: their order in a step, and the groups that its batches name.
#include "runtime/prefix_order.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "runtime/batch_builder.hpp"

namespace attune::runtime {
namespace {

constexpr std::int32_t kPage = 4;

class Rows {
 public:
  void add(const std::vector<int>& pages, std::int64_t computed, std::int64_t count = 1) {
    Request& request = requests_.emplace_back();
    request.id = RequestId(static_cast<std::int64_t>(requests_.size()) - 1);
    request.tokens.assign(static_cast<std::size_t>(computed + count), 1);
    request.computed = computed;
    std::vector<PageId> ids;
    for (const int page : pages) ids.push_back(static_cast<PageId>(page));
    request.pages.emplace_back().adopt(ids);
    rows.push_back({.request = &request, .count = count, .decode = count == 1});
  }
  [[nodiscard]] std::vector<int> ids() const {
    std::vector<int> found;
    for (const ScheduledRow& row : rows) found.push_back(static_cast<int>(row.request->id));
    return found;
  }
  std::vector<ScheduledRow> rows;

 private:
  std::deque<Request> requests_;  // rows point into it
};

TEST(PrefixOrder, SharersStandTogetherTheRestStaysInOrder) {
  Rows r;
  r.add({1, 2, 3}, 9);
  r.add({7}, 2);
  r.add({1, 5}, 6);
  r.add({1, 2, 4}, 9);
  r.add({8}, 1);
  r.add({1, 5, 6}, 9);
  r.add({1}, 3);
  order_by_prefix(r.rows);
  EXPECT_EQ(r.ids(), (std::vector<int>{0, 3, 2, 5, 6, 1, 4}));
}

TEST(PrefixOrder, PartsAreNotMixed) {
  Rows r;
  r.add({1, 2}, 5);
  r.add({9}, 2);
  r.add({1, 3}, 4, 2);
  order_by_prefix(r.rows);
  EXPECT_EQ(r.ids(), (std::vector<int>{0, 1, 2}));
  std::vector<ScheduledRow> none;
  order_by_prefix(none);
}

TEST(PrefixOrder, NothingSharedNothingMoved) {
  Rows r;
  r.add({5}, 1);
  r.add({3}, 1);
  r.add({4}, 1);
  order_by_prefix(r.rows);
  EXPECT_EQ(r.ids(), (std::vector<int>{0, 1, 2}));
}

TEST(PrefixOrder, BatchesNameWhatTheirRowsShare) {
  Rows r;
  r.add({1, 2, 3}, 8);
  r.add({7}, 2);
  r.add({1, 2, 4}, 9);
  r.add({1, 6}, 7);
  order_by_prefix(r.rows);
  const std::vector<CacheGroup> groups(1);
  StepBatch batch;
  ASSERT_TRUE(batch.assign(r.rows, groups, kPage).ok());
  ASSERT_EQ(batch.parts().size(), 1u);
  const auto found = batch.parts()[0].views[0].prefix_groups;
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].first_request, 0);
  EXPECT_EQ(found[0].num_requests, 3);
  EXPECT_EQ(found[0].num_pages, 1);
  EXPECT_EQ(found[1].num_requests, 2);
  EXPECT_EQ(found[1].num_pages, 2);
}

}  // namespace
}  // namespace attune::runtime
