// The prefix cache by itself, in an engine of your own: no model, no backend, no engine of
// Attune's.
//
//   c++ -std=c++20 main.cpp $(pkg-config --cflags --libs attune) -o prefix_cache
#include <attune/prefix_cache.hpp>

#include <cstdio>
#include <iterator>
#include <numeric>
#include <vector>

using namespace attune;

namespace {

/// Serves one prompt; how many of its tokens need not be computed.
std::int64_t serve(PrefixCache& cache, PagePool& pool, const std::vector<std::int32_t>& prompt) {
  PrefixMatch hit = cache.match({}, prompt, {.max_tokens = std::ssize(prompt) - 1});
  std::vector<PageId> row = hit.rows[0].pages;
  const std::int64_t pages = (std::ssize(prompt) + pool.page_size() - 1) / pool.page_size();
  const std::int64_t missing = pages - std::ssize(row);
  if (!cache.make_room(0, missing) || !pool.allocate(missing, row).ok()) return -1;

  // … here the tokens from hit.num_tokens on are computed into the row's pages …

  const RowView rows[] = {{.pages = row}};
  Result<PrefixInsertion> done = cache.insert({}, prompt, rows);
  if (!done.ok()) return -1;
  // … here the answer is generated under done->lock; then the request ends:
  done->lock.release();
  return pool.release(row).ok() ? hit.num_tokens : -1;
}

}  // namespace

int main() {
  PagePool pool(/*num_pages=*/256, /*page_size=*/16);
  Result<PrefixCache> cache = PrefixCache::make({.page_size = 16, .pools = {{.pool = &pool}}});
  if (!cache.ok()) return 1;
  std::vector<std::int32_t> prompt(100);  // a system prompt of 80 tokens and a question of 20
  std::iota(prompt.begin(), prompt.end(), 0);
  const std::int64_t first = serve(*cache, pool, prompt);
  for (auto token = prompt.begin() + 80; token != prompt.end(); ++token) *token += 1000;
  const std::int64_t second = serve(*cache, pool, prompt);
  std::printf("cached tokens: %d, then %d\n", static_cast<int>(first), static_cast<int>(second));
  return first == 0 && second == 80 && cache->check_invariants().ok() ? 0 : 1;
}
