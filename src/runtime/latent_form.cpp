#include "runtime/latent_form.hpp"

#include <algorithm>

namespace attune::runtime {

LatentWork latent_work(const BatchView& batch) {
  LatentWork work;
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t queries = batch.qo_len(i);
    const std::int64_t prefix = batch.kv_len(i) - queries;
    work.queries += queries;
    work.prefix_keys += prefix;
    work.pairs += queries * prefix + queries * (queries + 1) / 2;
  }
  return work;
}

std::int64_t absorbed_cost(const model::AttentionConfig& config, const LatentWork& work) {
  const std::int64_t rank = config.kv_lora_rank;
  const std::int64_t pair = 2 * rank + config.qk_rope_head_dim;
  const std::int64_t query = rank * (config.qk_nope_head_dim + config.head_dim_vo);
  return work.pairs * pair + work.queries * query;
}

std::int64_t expanded_cost(const model::AttentionConfig& config, const LatentWork& work,
                           DeviceKind device) {
  const std::int64_t pair = config.head_dim_qk + config.head_dim_vo;
  const std::int64_t key =
      std::int64_t{config.kv_lora_rank} * (config.qk_nope_head_dim + config.head_dim_vo);
  return work.pairs * pair + (work.queries + work.prefix_keys) * key * expansion_factor(device);
}

}  // namespace attune::runtime
