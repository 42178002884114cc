// What a scheduler asks of the prefix cache (layer runtime): requests start from what is cached,
// leave what they computed, and the cache gives pages back when they run out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <attune/prefix_cache.hpp>

#include "runtime/cache_groups.hpp"
#include "runtime/request.hpp"

namespace attune::runtime {

struct PrefixOptions {
  bool enabled = false;
  EvictionPolicy policy = EvictionPolicy::lru;
  /// Of models with recurrent layers: memory for their states at cached prefixes, and how many
  /// tokens lie between two of them at least; 0 = as many as the memory holds for all cached
  /// tokens.
  std::int64_t checkpoint_bytes = std::int64_t{256} << 20;
  std::int64_t checkpoint_interval = 0;
};

class PrefixSharing {
 public:
  struct Setup {
    PrefixOptions options{};
    std::int64_t granule = 1;      ///< SchedulerOptions::granule
    bool batch_invariant = false;  ///< only prompts are shared, and only as prompts
    std::int64_t state_bytes = 0;  ///< of a request's recurrent states; 0 = the model has none
  };

  /// One pool a group. Both outlive this, and this outlives the requests it has met.
  static Result<std::unique_ptr<PrefixSharing>> make(const Setup& setup,
                                                     std::span<const CacheGroup> groups,
                                                     std::span<PagePool> pools);

  /// A request without pages gets those of its longest known beginning: `computed` says how long
  /// that is, prefix.state what its recurrent states start from.
  void match(Request& request);
  /// The request starts from what it matched: a request that waits asks anew, and counts once.
  void count(const Request& request) {
    cache_.count_lookup(request.num_tokens(), request.computed);
  }

  /// Offers the keys of the request's first `computed` tokens, which must be in its pages, and its
  /// prefix.state, if any, as the states after exactly those. Pages that turn out to be double are
  /// exchanged for the cache's.
  void insert(Request& request, std::int64_t computed);

  /// The request gives its pages back: they need no protection any more.
  static void forget(Request& request);

  /// Evicts until the group's pool has `pages` free pages. Whether it has.
  bool make_room(std::size_t group, std::int64_t pages) { return cache_.make_room(group, pages); }

  /// Where a step that computes up to `end` should stop for the recurrent states to be kept, at
  /// most `end`; 0 = they should not be kept after it.
  [[nodiscard]] std::int64_t checkpoint_before(const Request& request, std::int64_t end) const;

  /// How long a hit a request gets of `common` tokens that a neighbour is about to insert. With
  /// recurrent states, none that it could count on.
  [[nodiscard]] std::int64_t usable_after(std::int64_t common) const {
    return setup_.state_bytes > 0 ? 0 : common / setup_.granule * setup_.granule;
  }

  [[nodiscard]] const PrefixCache& cache() const { return cache_; }

 private:
  PrefixSharing(const Setup& setup, PrefixCache cache, std::span<PagePool> pools)
      : setup_(setup), cache_(std::move(cache)), pools_(pools) {}

  /// Leading tokens of `request` that may be shared.
  [[nodiscard]] std::int64_t shareable(const Request& request, std::int64_t computed) const {
    return setup_.batch_invariant ? std::min(computed, request.prompt_len) : computed;
  }

  Setup setup_;
  PrefixCache cache_;
  std::span<PagePool> pools_;
  std::int64_t interval_ = 0;
};

}  // namespace attune::runtime
