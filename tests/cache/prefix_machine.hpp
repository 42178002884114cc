// A prefix cache driven by numbers, next to a dictionary that knows what it must answer: the random
// test feeds it a generator, the fuzz target its input.
//
// The dictionary maps whole prefixes to pages. What eviction chose is read off the pool, and then
// held against the rules: nothing locked, no page before a longer one's, least recently used first.
#pragma once

#include <attune/prefix_cache.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attune::testing {

struct MachineSetup {
  std::int32_t page_size = 2;
  std::vector<std::int64_t> windows = {-1};  ///< one a pool
  std::vector<std::int32_t> num_pages = {40};
  EvictionPolicy policy = EvictionPolicy::lru;
  std::int64_t granule = 1;
  bool checkpoints = false;
  bool partial_pages = false;
};

class PrefixMachine {
 public:
  /// `next(n)` gives a number below n.
  PrefixMachine(const MachineSetup& setup, std::function<std::uint32_t(std::uint32_t)> next)
      : setup_(setup), next_(std::move(next)) {
    PrefixCacheOptions options{.page_size = setup.page_size,
                               .pools = {},
                               .policy = setup.policy,
                               .granule = setup.granule,
                               .needs_checkpoints = setup.checkpoints,
                               .max_checkpoint_bytes = 300};
    pools_.reserve(setup.windows.size());
    for (std::size_t p = 0; p < setup.windows.size(); ++p) {
      pools_.emplace_back(setup.num_pages[p], setup.page_size);
      options.pools.push_back({.pool = &pools_[p], .window_left = setup.windows[p]});
      mine_.emplace_back(static_cast<std::size_t>(setup.num_pages[p]), 0);
      content_.emplace_back(static_cast<std::size_t>(setup.num_pages[p]));
    }
    dictionary_.resize(pools_.size());
    cache_ = std::make_unique<PrefixCache>(*PrefixCache::make(options));
  }

  /// One operation; what went wrong, or nothing.
  std::string step() {
    ++now_;
    switch (next_(8)) {
      case 0:
      case 1:
      case 2:
      case 3: return start();
      case 4:
      case 5: finish(); return error_;
      case 6: evict(next_(static_cast<std::uint32_t>(pools_.size())), next_(12)); return error_;
      default:
        if (next_(200) == 0) {
          cache_->clear();
          forget_evicted();
        } else if (!requests_.empty()) {
          requests_[next_(static_cast<std::uint32_t>(requests_.size()))].unlock(*this);
        }
        return error_;
    }
  }

  [[nodiscard]] Status check() const { return cache_->check_invariants(); }
  [[nodiscard]] PrefixMetrics metrics() const { return cache_->metrics(); }

  /// Ends every request and empties the cache: pages in, pages out.
  std::string drain() {
    while (!requests_.empty()) finish();
    for (std::size_t p = 0; p < pools_.size(); ++p)
      if (cache_->held_pages(p) != pools_[p].num_held()) fail("pages leaked while idle");
    cache_->clear();
    for (const PagePool& pool : pools_)
      if (pool.num_held() != 0) fail("pages are held after the end");
    if (cache_->metrics().nodes != 0) fail("nodes are left after the end");
    return error_;
  }

 private:
  struct Entry {
    PageId page{};
    std::int64_t used = 0;
  };

  struct Request {
    std::string key;     ///< the namespace, then the tokens
    std::size_t locked;  ///< tokens under the lock
    std::vector<std::vector<PageId>> rows;
    PrefixLock lock;

    void unlock(PrefixMachine& machine) {
      if (!lock.held()) return;
      lock.release();
      const std::size_t tokens = std::exchange(locked, 0);
      machine.touch(key, tokens, /*unlocked=*/true);
      machine.forget_evicted();  // unlocking prunes what no hit can use
    }
  };

  std::string fail(const std::string& what) {
    if (error_.empty()) error_ = what;
    return error_;
  }

  [[nodiscard]] std::size_t page() const { return static_cast<std::size_t>(setup_.page_size); }
  static std::string prefix(const std::string& key, std::size_t tokens) {
    return key.substr(0, 1 + tokens);
  }
  [[nodiscard]] std::size_t unit() const {
    return std::max(static_cast<std::size_t>(setup_.granule), page());
  }
  [[nodiscard]] std::size_t round(std::size_t tokens) const { return tokens / unit() * unit(); }
  [[nodiscard]] std::size_t first_needed(std::size_t p, std::size_t next) const {
    if (setup_.windows[p] < 0) return 0;
    const std::int64_t first = static_cast<std::int64_t>(next) - setup_.windows[p];
    return round(static_cast<std::size_t>(std::max<std::int64_t>(0, first)));
  }
  [[nodiscard]] bool knows(std::size_t p, const std::string& key, std::size_t page_begin) const {
    return dictionary_[p].contains(prefix(key, page_begin + page()));
  }
  [[nodiscard]] bool usable(const std::string& key, std::size_t hit) const {
    for (std::size_t p = 0; p < pools_.size(); ++p)
      for (std::size_t at = first_needed(p, hit); at < hit; at += page())
        if (!knows(p, key, at)) return false;
    return true;
  }

  void hold(std::size_t p, PageId page, int count) {
    mine_[p][static_cast<std::size_t>(page)] += count;
  }
  [[nodiscard]] bool tree_holds(std::size_t p, PageId page) const {
    return pools_[p].holders(page) > mine_[p][static_cast<std::size_t>(page)];
  }

  /// A use of every whole page of the key's first `tokens`.
  void touch(const std::string& key, std::size_t tokens, bool unlocked = false) {
    for (auto& dictionary : dictionary_) {
      for (std::size_t at = page(); at <= tokens; at += page()) {
        const std::string part = prefix(key, at);
        const auto found = dictionary.find(part);
        if (found != dictionary.end() && !(unlocked && is_locked(part))) found->second.used = now_;
      }
    }
  }
  [[nodiscard]] bool is_locked(const std::string& part) const {
    return std::ranges::any_of(requests_, [&](const Request& r) {
      return part.size() - 1 <= r.locked && r.key.starts_with(part);
    });
  }

  std::string start() {
    // A key that often shares a beginning with earlier ones.
    std::string key(1, static_cast<char>(next_(2)));
    if (!keys_.empty() && next_(4) != 0) {
      const std::string& old = keys_[next_(static_cast<std::uint32_t>(keys_.size()))];
      key = old.substr(0, 1 + next_(static_cast<std::uint32_t>(old.size())));
    }
    for (std::uint32_t more = next_(10); more > 0 && key.size() < 25; --more)
      key.push_back(static_cast<char>(next_(3)));
    if (keys_.size() < 32)
      keys_.push_back(key);
    else
      keys_[next_(32)] = key;
    const std::vector<std::int32_t> tokens(key.begin() + 1, key.end());
    const CacheNamespace space{.adapter = key[0], .salt = {}};
    const std::size_t most = tokens.size() - std::min<std::size_t>(tokens.size(), next_(2));

    PrefixMatch match =
        cache_->match(space, tokens,
                      {.max_tokens = static_cast<int>(most), .partial_page = setup_.partial_pages});
    const auto hit = static_cast<std::size_t>(match.num_tokens);
    std::size_t expected = round(most);
    while (expected > 0 && !usable(key, expected)) expected -= unit();
    if (!setup_.checkpoints && hit != expected)
      return fail("a hit of " + std::to_string(hit) + " tokens, wanted " +
                  std::to_string(expected));
    if (hit > expected) return fail("a hit beyond what is known");
    if (setup_.checkpoints && hit > 0 &&
        *static_cast<const std::string*>(match.checkpoint.get()) != prefix(key, hit))
      return fail("the checkpoint of other tokens");
    for (std::size_t p = 0; p < pools_.size(); ++p) {
      const PrefixRow& row = match.rows[p];
      std::size_t at = static_cast<std::size_t>(row.first_position);
      if (hit > 0 && at != first_needed(p, hit)) return fail("a row that begins elsewhere");
      for (const PageId id : row.pages) {
        at += page();
        hold(p, id, 1);
        if (content_[p][static_cast<std::size_t>(id)] != prefix(key, at))
          return fail("a page of other tokens");
      }
      if (hit > 0 && at != hit) return fail("a row of another length");
    }
    const auto partial = static_cast<std::size_t>(match.partial_tokens);
    for (std::size_t p = 0; p < match.partial_pages.size(); ++p) {
      const PageId id = match.partial_pages[p];
      if (!content_[p][static_cast<std::size_t>(id)].starts_with(prefix(key, hit + partial)))
        return fail("a partial page of other tokens");
      if (Status s = pools_[p].release({&id, 1}); !s.ok()) return fail(s.text());
    }
    touch(key, hit);
    return grow(key, tokens, space, std::move(match));
  }

  /// Takes pages for the rest of the key, computes it and inserts it.
  std::string grow(const std::string& key, const std::vector<std::int32_t>& tokens,
                   const CacheNamespace& space, PrefixMatch match) {
    Request request{.key = key,
                    .locked = static_cast<std::size_t>(match.num_tokens),
                    .rows = {},
                    .lock = std::move(match.lock)};
    const std::size_t wanted = (tokens.size() + page() - 1) / page();
    bool room = true;
    for (std::size_t p = 0; p < pools_.size(); ++p) {
      std::vector<PageId> row = std::move(match.rows[p].pages);
      const auto first = static_cast<std::size_t>(match.rows[p].first_position) / page();
      const auto missing = static_cast<std::int64_t>(wanted - first - row.size());
      requests_.push_back(std::move(request));  // it counts as locked while others are evicted
      if (missing > pools_[p].num_free())
        evict(p, static_cast<std::uint32_t>(missing - pools_[p].num_free()));
      request = std::move(requests_.back());
      requests_.pop_back();
      const std::size_t old = row.size();
      if (room && pools_[p].allocate(missing, row).ok()) {
        for (std::size_t i = old; i < row.size(); ++i) {
          hold(p, row[i], 1);
          content_[p][static_cast<std::size_t>(row[i])] =
              prefix(key, std::min(tokens.size(), (first + i + 1) * page()));
        }
      } else {
        room = false;
      }
      request.rows.push_back(std::move(row));
    }
    if (room && error_.empty()) insert(request, tokens, space, match);
    requests_.push_back(std::move(request));
    if (!room || requests_.size() > 6) finish();
    return error_;
  }

  void insert(Request& request, const std::vector<std::int32_t>& tokens,
              const CacheNamespace& space, const PrefixMatch& match) {
    std::vector<RowView> rows;
    for (std::size_t p = 0; p < pools_.size(); ++p)
      rows.push_back({.pages = request.rows[p], .first_position = match.rows[p].first_position});
    InsertOptions options{.priority = next_(3), .keep_partial_page = setup_.partial_pages};
    if (setup_.checkpoints && tokens.size() % unit() == 0 && !tokens.empty()) {
      options.checkpoint = std::make_shared<const std::string>(request.key);
      options.checkpoint_bytes = 5 + next_(10);
    }
    Result<PrefixInsertion> done = cache_->insert(space, tokens, rows, options);
    if (!done.ok()) {
      fail(done.status().text());
      return;
    }
    const auto whole = static_cast<std::size_t>(done->num_tokens);
    if (whole != tokens.size() / page() * page()) fail("a part of the key was not inserted");
    std::size_t duplicates = 0;
    for (std::size_t p = 0; p < pools_.size(); ++p) {
      const auto first = static_cast<std::size_t>(rows[p].first_position);
      for (std::size_t at = first; at < whole; at += page()) {
        const PageId own = request.rows[p][(at - first) / page()];
        const auto [entry, added] =
            dictionary_[p].try_emplace(prefix(request.key, at + page()), Entry{.page = own});
        if (!added && entry->second.page != own) ++duplicates;
        if (!tree_holds(p, entry->second.page)) fail("a page inserted is not held");
      }
    }
    for (const DuplicatePage& d : done->duplicates) {
      const std::size_t end =
          static_cast<std::size_t>(rows[d.pool].first_position) + (d.index + 1) * page();
      const auto entry = dictionary_[d.pool].find(prefix(request.key, end));
      if (entry == dictionary_[d.pool].end() || entry->second.page != d.kept)
        fail("a duplicate of an unknown page");
    }
    if (duplicates != done->duplicates.size()) fail("duplicates are miscounted");
    touch(request.key, whole);
    // Where both locks cover the same pages, the order of taking and giving does not matter.
    if (done->lock.held()) {
      PrefixLock old = std::move(request.lock);
      request.lock = std::move(done->lock);
      request.locked = whole;
    }
    forget_evicted();  // checkpoints may have gone, and nodes with them
  }

  void finish() {
    if (requests_.empty()) return;
    const auto i = next_(static_cast<std::uint32_t>(requests_.size()));
    std::swap(requests_[i], requests_.back());
    requests_.back().unlock(*this);
    Request request = std::move(requests_.back());
    requests_.pop_back();
    for (std::size_t p = 0; p < request.rows.size(); ++p) {
      for (const PageId id : request.rows[p]) hold(p, id, -1);
      if (Status s = pools_[p].release(request.rows[p]); !s.ok()) fail(s.text());
    }
  }

  void evict(std::size_t p, std::uint32_t wanted) {
    const std::int32_t free_before = pools_[p].num_free();
    const std::int64_t freed = cache_->evict(p, wanted);
    if (freed != pools_[p].num_free() - free_before) fail("evict() miscounts what it freed");
    if (freed > wanted) fail("more was evicted than wanted");
    const bool bounded = setup_.windows[p] >= 0;
    for (const auto& [part, entry] : dictionary_[p])
      if (bounded && mine_[p][static_cast<std::size_t>(entry.page)] > 0 &&
          !tree_holds(p, entry.page))
        fail("a window's page was evicted while a request holds it");
    const std::int64_t latest = forget_evicted();
    std::int64_t earliest_left = INT64_MAX;
    for (const auto& [part, entry] : dictionary_[p]) {
      if (is_locked(part)) continue;
      const bool held = mine_[p][static_cast<std::size_t>(entry.page)] > 0;
      if (freed < wanted && !(bounded && held)) fail("evict() gave up too early");
      earliest_left = std::min(earliest_left, entry.used);
    }
    if (setup_.policy == EvictionPolicy::lru && !bounded && !setup_.partial_pages &&
        latest > earliest_left)
      fail("a page went before one that was used earlier");
  }

  /// Drops from the dictionary what the tree dropped; when the last of it was used.
  std::int64_t forget_evicted() {
    std::int64_t latest = 0;
    for (std::size_t p = 0; p < pools_.size(); ++p) {
      for (auto it = dictionary_[p].begin(); it != dictionary_[p].end();) {
        if (tree_holds(p, it->second.page)) {
          ++it;
          continue;
        }
        if (setup_.windows[p] < 0 && is_locked(it->first)) fail("a locked page was evicted");
        latest = std::max(latest, it->second.used);
        it = dictionary_[p].erase(it);
      }
      if (setup_.windows[p] >= 0) continue;
      for (const auto& [part, entry] : dictionary_[p])
        if (part.size() > 1 + page() &&
            !dictionary_[p].contains(part.substr(0, part.size() - page())))
          fail("a page stays whose predecessor is gone");
    }
    return latest;
  }

  MachineSetup setup_;
  std::function<std::uint32_t(std::uint32_t)> next_;
  std::vector<PagePool> pools_;
  std::unique_ptr<PrefixCache> cache_;
  std::vector<std::unordered_map<std::string, Entry>> dictionary_;  ///< by pool
  std::vector<std::vector<int>> mine_;             ///< holders that are requests, by pool and page
  std::vector<std::vector<std::string>> content_;  ///< the prefix whose keys a page holds
  std::vector<Request> requests_;
  std::vector<std::string> keys_;
  std::int64_t now_ = 0;
  std::string error_;
};

}  // namespace attune::testing
