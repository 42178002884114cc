// Where an engine's keys and values live: a pool of page ids a cache group, and the bytes behind
// them (layer runtime).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <attune/cache.hpp>
#include <attune/status.hpp>

#include "cache/kv_storage.hpp"
#include "model/ops.hpp"
#include "runtime/backend_set.hpp"
#include "runtime/cache_groups.hpp"
#include "runtime/engine_options.hpp"

namespace attune::runtime {

class KvMemory {
 public:
  static Result<KvMemory> make(const model::ModelConfig& config, const BackendSet& backends,
                               const EngineOptions& options, model::Ops& ops);

  [[nodiscard]] std::span<const CacheGroup> groups() const { return groups_; }
  /// The cache group of an attention group; -1 = its layers keep no keys.
  [[nodiscard]] int group_of(std::size_t attention_group) const {
    return group_of_[attention_group];
  }
  /// The cache group of an attention group's compressed keys; -1 = it has none.
  [[nodiscard]] int compressed_group_of(std::size_t attention_group) const {
    return compressed_group_of_[attention_group];
  }
  /// One a cache group.
  [[nodiscard]] std::span<PagePool> pools() { return pools_; }
  [[nodiscard]] std::span<const PagePool> pools() const { return pools_; }
  [[nodiscard]] const cache::KvStorage& storage() const { return storage_; }
  /// The most that one request of up to `length` tokens ever holds.
  [[nodiscard]] std::int64_t pages_of_request(std::size_t cache_group, std::int64_t length) const {
    return max_pages_per_request(groups_[cache_group], length, max_request_tokens_, page_size_);
  }

 private:
  KvMemory(const BackendSet& backends, const EngineOptions& options);
  [[nodiscard]] std::int64_t pages_of_pool(std::size_t cache_group,
                                           const EngineOptions& options) const;
  Status count_pages(const EngineOptions& options);

  std::int32_t page_size_;
  std::int64_t max_request_tokens_;
  std::vector<CacheGroup> groups_;
  std::vector<int> group_of_;
  std::vector<int> compressed_group_of_;
  std::vector<std::int32_t> num_pages_;  ///< one a cache group
  std::vector<PagePool> pools_;
  cache::KvStorage storage_;
};

}  // namespace attune::runtime
