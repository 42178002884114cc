// The prefix cache by hand: what each call promises, and the cases that went wrong elsewhere.
#include <attune/prefix_cache.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace attune {
namespace {

using testing::ElementsAre;
using Tokens = std::vector<std::int32_t>;

Tokens range(std::int32_t begin, std::int32_t end) {
  Tokens tokens(static_cast<std::size_t>(end - begin));
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A cache with one pool without window, unless a test makes more of it.
class PrefixCacheTest : public testing::Test {
 protected:
  explicit PrefixCacheTest(std::int32_t page_size = 4) : pool_(64, page_size) {
    make({.page_size = page_size, .pools = {{.pool = &pool_}}});
  }
  void make(PrefixCacheOptions options) {
    Result<PrefixCache> made = PrefixCache::make(std::move(options));
    ASSERT_TRUE(made.ok()) << made.status().text();
    cache_.emplace(std::move(*made));
  }

  std::vector<PageId> pages_for(const Tokens& tokens) {
    std::vector<PageId> row;
    const auto page = static_cast<std::size_t>(pool_.page_size());
    EXPECT_TRUE(pool_.allocate(static_cast<int>((tokens.size() + page - 1) / page), row).ok());
    return row;
  }

  /// A request that computes everything, inserts and ends.
  std::vector<PageId> add(const Tokens& tokens, const InsertOptions& options = {},
                          const CacheNamespace& space = {}) {
    const std::vector<PageId> row = pages_for(tokens);
    const RowView view{.pages = row};
    const auto done = cache_->insert(space, tokens, {&view, 1}, options);
    EXPECT_TRUE(done.ok()) << done.status().text();
    EXPECT_TRUE(pool_.release(row).ok());
    sound();
    return row;
  }

  /// Tokens of a hit, which is given back at once.
  std::int64_t hit(const Tokens& tokens, const CacheNamespace& space = {}) {
    PrefixMatch match = cache_->match(space, tokens);
    release(match);
    sound();
    return match.num_tokens;
  }
  void release(PrefixMatch& match) {
    match.lock.release();
    EXPECT_TRUE(pool_.release(match.rows[0].pages).ok());
    EXPECT_TRUE(pool_.release(match.partial_pages).ok());
  }
  void sound() {
    const Status s = cache_->check_invariants();
    EXPECT_TRUE(s.ok()) << s.text();
  }

  PagePool pool_;
  std::optional<PrefixCache> cache_;
};

TEST_F(PrefixCacheTest, AHitIsWholePagesOfTheLongestKnownBeginning) {
  const std::vector<PageId> row = add(range(0, 10));
  EXPECT_EQ(pool_.num_held(), 2) << "the third page was not full";
  EXPECT_EQ(hit(range(0, 3)), 0) << "a key shorter than a page";
  EXPECT_EQ(hit({}), 0);
  EXPECT_EQ(hit(range(0, 4)), 4);
  EXPECT_EQ(hit(range(0, 7)), 4);
  EXPECT_EQ(hit(range(0, 30)), 8);
  EXPECT_EQ(hit(Tokens{0, 1, 2, 9}), 0);
  PrefixMatch match = cache_->match({}, range(0, 8), {.max_tokens = 7});
  EXPECT_EQ(match.num_tokens, 4) << "a token must be left to compute";
  EXPECT_THAT(match.rows[0].pages, ElementsAre(row[0]));
  EXPECT_EQ(pool_.holders(row[0]), 2);
  release(match);
}

TEST_F(PrefixCacheTest, SplitsOnlyBetweenPages) {
  add(range(0, 12));
  add(Tokens{0, 1, 2, 3, 4, 5, 77, 78, 9, 10, 11, 12});
  EXPECT_EQ(cache_->metrics().tokens, 20) << "the first page is shared, half of the second is not";
  EXPECT_EQ(cache_->metrics().nodes, 3);
  EXPECT_EQ(hit(Tokens{0, 1, 2, 3, 4, 5, 77, 78}), 8);
  EXPECT_EQ(hit(range(0, 12)), 12);
  EXPECT_EQ(pool_.num_held(), 5);
}

TEST_F(PrefixCacheTest, NamespacesDoNotMeet) {
  add(range(0, 8), {}, {.adapter = 7, .salt = {}});
  add(range(0, 8), {}, {.adapter = 0, .salt = "7"});
  EXPECT_EQ(hit(range(0, 8)), 0);
  EXPECT_EQ(hit(range(0, 8), {.adapter = 7, .salt = "7"}), 0);
  EXPECT_EQ(hit(range(0, 8), {.adapter = 7, .salt = {}}), 8);
  EXPECT_EQ(pool_.num_held(), 4);
}

TEST_F(PrefixCacheTest, ASecondRowOfTheSameTokensIsToldWhatItNeedNotKeep) {
  const std::vector<PageId> first = add(range(0, 8));
  const Tokens longer = range(0, 12);
  std::vector<PageId> row = pages_for(longer);
  const RowView view{.pages = row};
  Result<PrefixInsertion> done = cache_->insert({}, longer, {&view, 1});
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->known_tokens, 8);
  ASSERT_EQ(done->duplicates.size(), 2u);
  for (const DuplicatePage& d : done->duplicates) EXPECT_EQ(d.kept, first[d.index]);
  EXPECT_EQ(pool_.holders(row[0]), 1) << "only the caller's";
  EXPECT_EQ(pool_.holders(row[2]), 2);
  // The same row again: nothing is double.
  done = cache_->insert({}, range(0, 12), {&view, 1});
  EXPECT_EQ(done->duplicates.size(), 2u);
  done->lock.release();
  EXPECT_TRUE(pool_.release(row).ok());
  EXPECT_EQ(pool_.num_held(), 3);
  sound();
}

TEST_F(PrefixCacheTest, NothingLockedIsEvicted) {
  add(range(0, 8));
  add(range(0, 8) + range(50, 54));
  PrefixMatch match = cache_->match({}, range(0, 8));
  EXPECT_EQ(cache_->evictable_pages(0), 1);
  EXPECT_EQ(cache_->evict(0, 100), 1) << "what hangs on the locked node may go";
  EXPECT_EQ(cache_->evict(0, 100), 0);
  EXPECT_EQ(hit(range(0, 8)), 8);
  PrefixLock moved = std::move(match.lock);
  EXPECT_EQ(cache_->evict(0, 100), 0);
  moved.release();
  moved.release();
  EXPECT_EQ(cache_->evict(0, 100), 0) << "the match still holds its pages";
  EXPECT_TRUE(pool_.release(match.rows[0].pages).ok());
  EXPECT_EQ(pool_.num_held(), 0);
  sound();
}

TEST_F(PrefixCacheTest, EvictionTakesJustEnoughFromTheEndOfWhatWasUsedLongestAgo) {
  add(range(0, 16));
  add(range(100, 116));
  EXPECT_EQ(hit(range(0, 16)), 16);
  EXPECT_EQ(cache_->evict(0, 1), 1);
  EXPECT_EQ(hit(range(100, 116)), 12);
  EXPECT_EQ(cache_->evict(0, 3), 3);
  EXPECT_EQ(hit(range(0, 16)), 4) << "it had become the older one";
  EXPECT_EQ(hit(range(100, 116)), 12);
  EXPECT_TRUE(cache_->make_room(0, 64));
  EXPECT_FALSE(cache_->make_room(0, 65));
  EXPECT_EQ(cache_->metrics().nodes, 0);
}

TEST_F(PrefixCacheTest, LeastFrequentlyUsedGoesFirst) {
  make({.page_size = 4, .pools = {{.pool = &pool_}}, .policy = EvictionPolicy::lfu});
  add(range(0, 8));
  add(range(100, 108));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(hit(range(0, 8)), 8);
  EXPECT_EQ(hit(range(100, 108)), 8) << "the last used, and less often";
  EXPECT_EQ(cache_->evict(0, 2), 2);
  EXPECT_EQ(hit(range(0, 8)), 8);
  EXPECT_EQ(hit(range(100, 108)), 0);
}

TEST_F(PrefixCacheTest, SmallestPriorityGoesFirst) {
  make({.page_size = 4, .pools = {{.pool = &pool_}}, .policy = EvictionPolicy::priority});
  add(range(0, 4) + range(10, 14), {.priority = 5});
  add(range(100, 108), {.priority = -1});
  add(range(0, 4) + range(20, 24), {.priority = 2});
  EXPECT_EQ(hit(range(100, 108)), 8);
  EXPECT_EQ(cache_->evict(0, 2), 2);
  EXPECT_EQ(hit(range(100, 108)), 0);
  EXPECT_EQ(cache_->evict(0, 1), 1);
  EXPECT_EQ(hit(range(0, 4) + range(20, 24)), 4) << "the shared page has the greater priority";
  EXPECT_EQ(hit(range(0, 4) + range(10, 14)), 8);
}

TEST_F(PrefixCacheTest, APartialPageIsFoundAndCopiedBeforeItIsWritten) {
  const std::vector<PageId> row = add(range(0, 7), {.keep_partial_page = true});
  EXPECT_EQ(pool_.num_held(), 2);
  PrefixMatch match = cache_->match({}, Tokens{0, 1, 2, 3, 4, 5, 99, 98}, {.partial_page = true});
  EXPECT_EQ(match.num_tokens, 4);
  EXPECT_EQ(match.partial_tokens, 2) << "the third token differs";
  EXPECT_THAT(match.partial_pages, ElementsAre(row[1]));
  std::vector<PageId> own = {match.rows[0].pages[0], match.partial_pages[0]};
  const auto copy = make_writable(pool_, own, 1);
  ASSERT_TRUE(copy.ok() && copy->has_value());
  EXPECT_EQ((*copy)->from, row[1]);
  EXPECT_EQ((*copy)->to, own[1]);
  EXPECT_EQ(pool_.holders(row[1]), 1);
  EXPECT_FALSE(make_writable(pool_, own, 1)->has_value()) << "it is alone on it already";
  EXPECT_TRUE(pool_.release(own).ok());
  match.lock.release();

  add(range(0, 6), {.keep_partial_page = true});
  EXPECT_EQ(cache_->metrics().nodes, 2) << "covered by the longer one";
  add(range(0, 8));
  EXPECT_EQ(cache_->metrics().nodes, 2) << "replaced by the full page";
  // A full page's beginning serves as well, and so does that of a longer node.
  match = cache_->match({}, Tokens{0, 1, 2, 3, 4, 77}, {.partial_page = true});
  EXPECT_EQ(match.partial_tokens, 1);
  release(match);
  match = cache_->match({}, Tokens{0, 1, 55}, {.partial_page = true});
  EXPECT_EQ(match.num_tokens, 0);
  EXPECT_EQ(match.partial_tokens, 2);
  release(match);
  EXPECT_TRUE(cache_->make_room(0, 64));
}

TEST_F(PrefixCacheTest, ForkedRowsShareUntilOneWrites) {
  const Tokens tokens = range(0, 10);
  std::vector<PageId> row = pages_for(tokens);
  std::vector<PageId> beam = row;
  ASSERT_TRUE(pool_.retain(beam).ok());
  EXPECT_EQ(pool_.num_held(), 3);
  EXPECT_TRUE(make_writable(pool_, beam, 2)->has_value());
  EXPECT_FALSE(make_writable(pool_, row, 2)->has_value());
  EXPECT_EQ(pool_.num_held(), 4);
  EXPECT_FALSE(make_writable(pool_, row, 3).ok());
  std::vector<PageId> all;
  ASSERT_TRUE(pool_.allocate(60, all).ok());
  EXPECT_EQ(make_writable(pool_, beam, 0).status().code(), StatusCode::out_of_pages);
  EXPECT_TRUE(pool_.release(row).ok());
  EXPECT_TRUE(pool_.release(beam).ok());
  EXPECT_EQ(pool_.num_held(), 60);
}

TEST_F(PrefixCacheTest, RefusesRowsThatDoNotHoldTheKey) {
  const Tokens tokens = range(0, 8);
  std::vector<PageId> row = pages_for(tokens);
  const auto text = [&](const RowView& view, const InsertOptions& options = {}) {
    const auto done = cache_->insert({}, tokens, {&view, 1}, options);
    EXPECT_EQ(done.status().code(), StatusCode::invalid_argument);
    return done.status().text();
  };
  EXPECT_NE(text({.pages = std::span(row).first(1)}).find("too few for 8 tokens"),
            std::string::npos);
  EXPECT_NE(text({.pages = row, .first_position = 4}).find("begins at position 4"),
            std::string::npos);
  EXPECT_NE(cache_->insert({}, tokens, {}).status().text().find("each of 1 pools"),
            std::string::npos);
  EXPECT_TRUE(pool_.release(row).ok());
  EXPECT_NE(text({.pages = row}).find("is not held"), std::string::npos);
  EXPECT_EQ(cache_->metrics().nodes, 0);
  EXPECT_FALSE(PrefixCache::make({.page_size = 8, .pools = {{.pool = &pool_}}}).ok());
  EXPECT_FALSE(PrefixCache::make({.page_size = 4, .pools = {{.pool = nullptr}}}).ok());
  EXPECT_FALSE(PrefixCache::make({.page_size = 4, .pools = {}, .granule = 6}).ok());
  EXPECT_FALSE(PrefixCache::make({.page_size = 0}).ok());
}

TEST_F(PrefixCacheTest, AWindowsPagesGoAloneAndHitsNeedThem) {
  PagePool window(16, 4);
  make({.page_size = 4, .pools = {{.pool = &pool_}, {.pool = &window, .window_left = 5}}});
  const Tokens tokens = range(0, 24);
  std::vector<PageId> full = pages_for(tokens);
  std::vector<PageId> tail;
  ASSERT_TRUE(window.allocate(3, tail).ok());
  const std::vector<RowView> rows = {{.pages = full}, {.pages = tail, .first_position = 12}};
  ASSERT_TRUE(cache_->insert({}, tokens, rows).ok());
  ASSERT_TRUE(pool_.release(full).ok());
  ASSERT_TRUE(window.release(tail).ok());
  sound();

  // The token at 24 sees keys from 19, at 20 from 15; at 16 from 11, which is not there.
  PrefixMatch match = cache_->match({}, tokens);
  EXPECT_EQ(match.num_tokens, 24);
  EXPECT_EQ(match.rows[1].first_position, 16);
  EXPECT_THAT(match.rows[1].pages, ElementsAre(tail[1], tail[2]));
  EXPECT_EQ(cache_->evict(1, 9), 1) << "the match holds the other two";
  ASSERT_TRUE(window.release(match.rows[1].pages).ok());
  match.rows[1].pages.clear();
  release(match);

  match = cache_->match({}, range(0, 23));
  EXPECT_EQ(match.num_tokens, 0);
  EXPECT_EQ(match.known_tokens, 20);
  EXPECT_EQ(cache_->evict(1, 9), 2);
  EXPECT_EQ(window.num_held(), 0);
  match = cache_->match({}, tokens);
  EXPECT_EQ(match.num_tokens, 0);
  EXPECT_EQ(cache_->held_pages(0), 6) << "the others are kept: the tokens may come again";
  sound();
  cache_.reset();
  EXPECT_EQ(pool_.num_held(), 0);
}

TEST_F(PrefixCacheTest, AHitEndsAtACheckpoint) {
  make({.page_size = 4,
        .pools = {{.pool = &pool_}},
        .needs_checkpoints = true,
        .max_checkpoint_bytes = 20});
  const auto state = [](int n) { return std::make_shared<const int>(n); };
  add(range(0, 8), {.checkpoint = state(8), .checkpoint_bytes = 10});
  add(range(0, 20));
  PrefixMatch match = cache_->match({}, range(0, 40));
  EXPECT_EQ(match.num_tokens, 8);
  EXPECT_EQ(match.known_tokens, 20);
  EXPECT_EQ(*static_cast<const int*>(match.checkpoint.get()), 8);
  release(match);
  add(range(0, 16), {.checkpoint = state(16), .checkpoint_bytes = 10});
  EXPECT_EQ(hit(range(0, 15)), 8);
  EXPECT_EQ(hit(range(0, 17)), 16);
  // A third does not fit: the one used least recently goes.
  add(range(0, 20), {.checkpoint = state(20), .checkpoint_bytes = 10});
  EXPECT_EQ(hit(range(0, 15)), 0);
  EXPECT_EQ(hit(range(0, 20)), 20);
  EXPECT_EQ(cache_->metrics().checkpoint_bytes, 20);
  add(range(0, 24), {.checkpoint = state(24), .checkpoint_bytes = 21});
  EXPECT_EQ(hit(range(0, 24)), 20) << "larger than all that may be kept";
  EXPECT_EQ(cache_->evict(0, 2), 2);
  EXPECT_EQ(hit(range(0, 24)), 16) << "its pages took the checkpoint along";
}

TEST_F(PrefixCacheTest, StatesAloneNeedNoPages) {
  make({.page_size = 4, .pools = {}, .needs_checkpoints = true, .max_checkpoint_bytes = 20});
  const auto insert = [&](const Tokens& tokens, bool checkpoint) {
    InsertOptions options;
    if (checkpoint) options.checkpoint = std::make_shared<const int>(0);
    options.checkpoint_bytes = 10;
    EXPECT_TRUE(cache_->insert({}, tokens, {}, options).ok());
    sound();
  };
  insert(range(0, 8), true);
  insert(range(0, 16), false);
  EXPECT_EQ(cache_->metrics().tokens, 8) << "what no hit can use is not kept";
  insert(range(0, 16), true);
  insert(range(50, 58), true);
  EXPECT_EQ(cache_->match({}, range(0, 8)).num_tokens, 0) << "two fit";
  EXPECT_EQ(cache_->match({}, range(0, 16)).num_tokens, 16);
  cache_->clear();
  EXPECT_EQ(cache_->metrics().checkpoint_bytes, 0);
}

TEST_F(PrefixCacheTest, CountsWhatItDid) {
  add(range(0, 8));
  hit(range(0, 12));
  hit(range(90, 95));
  add(range(0, 8));
  cache_->evict(0, 1);
  (void)cache_->match({}, range(0, 4), {.count = false});
  const PrefixMetrics m = cache_->metrics();
  EXPECT_EQ(m.lookups, 2);
  EXPECT_EQ(m.hits, 1);
  EXPECT_EQ(m.lookup_tokens, 17);
  EXPECT_EQ(m.hit_tokens, 8);
  EXPECT_EQ(m.inserted_tokens, 8);
  EXPECT_EQ(m.duplicate_pages, 2);
  EXPECT_EQ(m.evicted_pages, 1);
  EXPECT_EQ(m.tokens, 4);
}

}  // namespace
}  // namespace attune
