#include "runtime/kv_memory.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "base/math.hpp"
#include "runtime/device_memory.hpp"

namespace attune::runtime {

KvMemory::KvMemory(const BackendSet& backends, const EngineOptions& options)
    : page_size_(backends.page_size),
      max_request_tokens_(options.max_request_tokens()),
      groups_(cache_groups(backends.attention, options.scheduler.granule)),
      group_of_(backends.attention.size(), -1),
      compressed_group_of_(backends.attention.size(), -1) {
  for (std::size_t c = 0; c < groups_.size(); ++c) {
    for (int g : groups_[c].attention_groups)
      group_of_[static_cast<std::size_t>(g)] = static_cast<int>(c);
    for (int g : groups_[c].compressed_groups)
      compressed_group_of_[static_cast<std::size_t>(g)] = static_cast<int>(c);
  }
}

Status KvMemory::count_pages(const EngineOptions& options) {
  for (std::size_t c = 0; c < groups_.size(); ++c) {
    const std::int64_t pages = pages_of_pool(c, options);
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (pages > kMost)
      return invalid_argument("a KV pool of " + std::to_string(options.pool_tokens) +
                              " tokens has " + std::to_string(pages) + " pages of " +
                              std::to_string(page_size_) + ", wanted at most " +
                              std::to_string(kMost) + ": page ids are 32-bit numbers");
    num_pages_.push_back(static_cast<std::int32_t>(pages));
  }
  return {};
}

std::int64_t KvMemory::pages_of_pool(std::size_t cache_group, const EngineOptions& options) const {
  const std::int64_t tokens = options.pool_tokens > 0 ? options.pool_tokens : options.context_limit;
  // Not ceil_div: any number of tokens may have been asked for.
  const std::int64_t pages = tokens / page_size_ + (tokens % page_size_ != 0 ? 1 : 0);
  if (!groups_[cache_group].bounded()) return pages;
  // Of a window, as much again for prefixes that nobody uses now.
  const std::int64_t rows = options.scheduler.max_batch * (options.prefix.enabled ? 2 : 1);
  return std::min(pages, pages_of_request(cache_group, options.context_limit) * rows);
}

Result<KvMemory> KvMemory::make(const model::ModelConfig& config, const BackendSet& backends,
                                const EngineOptions& options, model::Ops& ops) {
  KvMemory memory(backends, options);
  if (Status s = memory.count_pages(options); !s.ok()) return s;
  std::vector<cache::LayerPages> layers(static_cast<std::size_t>(config.num_layers()));
  for (std::size_t g = 0; g < backends.attention.size(); ++g) {
    const int cache_group = memory.group_of(g);
    if (cache_group < 0) continue;
    const model::AttentionGroup& attention = backends.attention[g];
    const int compressed = memory.compressed_group_of(g);
    for (int layer : attention.layers) {
      // A layer that reads another's cache keeps nothing of its own.
      if (config.layers[static_cast<std::size_t>(layer)].kv_source >= 0) continue;
      layers[static_cast<std::size_t>(layer)] = {
          .shape = {.layout = backends.groups[g].kv_layout,
                    .dtype = attention.spec.kv_dtype,
                    .page_size = backends.page_size,
                    .num_kv_heads = attention.spec.num_kv_heads,
                    .head_dim_qk = attention.spec.head_dim_qk,
                    .head_dim_vo = attention.spec.head_dim_vo},
          .num_pages = memory.num_pages_[static_cast<std::size_t>(cache_group)],
          .index_head_dim = config.layers[static_cast<std::size_t>(layer)].owns_indexer
                                ? attention.spec.index_head_dim
                                : 0,
          .index_dtype = attention.spec.index_dtype,
          .compress_ratio = attention.spec.compress_ratio,
          .compressed_pages =
              compressed < 0 ? 0 : memory.num_pages_[static_cast<std::size_t>(compressed)]};
    }
  }
  Result<cache::KvStorage> storage = cache::KvStorage::make(
      layers, [&ops](std::size_t bytes) { return allocate_shared(ops, bytes); });
  if (!storage.ok()) return storage.status();
  memory.storage_ = std::move(*storage);
  // After the memory that they stand for: what is too much for it would be for their lists, too.
  for (std::int32_t pages : memory.num_pages_) memory.pools_.emplace_back(pages, memory.page_size_);
  return memory;
}

}  // namespace attune::runtime
