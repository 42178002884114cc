#include "plan/decode_work.hpp"

#include <algorithm>
#include <cmath>

#include "base/math.hpp"

namespace attune::plan {

DecodeShape decode_shape(int num_kv_heads, int gqa_group_size, int rows_per_block,
                         int heads_per_cta) {
  DecodeShape shape;
  shape.row_blocks = base::ceil_div(gqa_group_size, rows_per_block);
  const int heads = num_kv_heads * shape.row_blocks;
  while (2 * shape.heads_per_cta <= heads_per_cta && heads % (2 * shape.heads_per_cta) == 0)
    shape.heads_per_cta *= 2;
  shape.units = heads / shape.heads_per_cta;
  return shape;
}

void list_decode_work(const BatchView& batch, const DecodeRules& rules,
                      const attention::CutRule& rule, std::int32_t tile, const Cascade& cascade,
                      DecodeList& list) {
  const std::int64_t num_requests = batch.batch_size();
  const bool shares = !cascade.levels.empty();
  list.requests.resize(static_cast<std::size_t>(num_requests));
  std::size_t count = 0;
  for (std::int64_t i = 0; i < num_requests; ++i) {
    if (batch.qo_len(i) != 1) continue;
    const auto n = static_cast<std::size_t>(i);
    const std::int64_t kv_len = batch.kv_len(i);
    const std::int64_t first = batch.first_kv_position(i);
    const std::int64_t position = first + kv_len - 1;
    attention::DecodeRequest request = attention::decode_request(rules.mask, batch.qo_indptr[n],
                                                                 batch.kv_indptr[n], kv_len, first);
    if (shares) {
      const std::int64_t own = std::min<std::int64_t>(cascade.own_begin(i), request.kv_end);
      request.kv_begin = std::max(request.kv_begin, static_cast<std::int32_t>(own));
    }
    if (rules.xai_temperature_len > 0 && position > rules.xai_temperature_len) {
      request.temperature =
          static_cast<float>(std::log2(static_cast<double>(position)) /
                             std::log2(static_cast<double>(rules.xai_temperature_len)));
    }
    list.requests[count++] = request;
  }
  list.requests.resize(count);
  if (list.chunks.size() < static_cast<std::size_t>(rule.max_chunks))
    list.chunks.resize(static_cast<std::size_t>(rule.max_chunks));
  list.states.resize(list.requests.size());
  list.work = attention::cut_requests(
      rule, tile, static_cast<std::int32_t>(list.requests.size()),
      [&](std::int32_t r) -> const attention::DecodeRequest& {
        return list.requests[static_cast<std::size_t>(r)];
      },
      [&](std::int32_t r) -> attention::CutState& {
        return list.states[static_cast<std::size_t>(r)];
      },
      [&](std::int32_t at, const attention::DecodeChunk& chunk) {
        list.chunks[static_cast<std::size_t>(at)] = chunk;
      });
}

}  // namespace attune::plan
