#include "backends/shared/cuda/selection.hpp"

#include "backends/shared/alignment.hpp"
#include "base/join.hpp"
#include "base/math.hpp"
#include "device/cuda/memory.hpp"
#include "kernels/index_scores/sm80/launch.hpp"
#include "kernels/index_scores/sm90/launch.hpp"
#include "kernels/top_k/sm90/launch.hpp"

namespace attune::backends::shared::cuda {
namespace {

namespace scores = kernels::index_scores::sm80;
namespace products = kernels::index_scores::sm90;
namespace lists = kernels::top_k::sm90;
using device::cuda::native;

/// Blocks that share the keys of a token, of all tokens that are scored at once.
constexpr std::int64_t kScoreBlocksPerSm = 4;
/// Keys that a block of the score kernel has at least.
constexpr std::int64_t kKeysOfBlock = 128;

}  // namespace

void cut_selection(plan::WorkspaceCutter& cut, std::int64_t tokens, std::int64_t rows,
                   std::int32_t score_blocks, SelectionParts& parts) {
  parts.score_groups = cut.take<products::Group>(tokens);
  parts.score_shares = cut.take<products::Share>(base::ceil_div(tokens, rows) * score_blocks);
  parts.visible = cut.take<std::int32_t>(tokens);
  parts.entry_begin = cut.take<std::int32_t>(tokens);
}

Status check_seen(const Selection& selection, const std::vector<std::int32_t>& visible) {
  const std::int64_t most = visible.empty() ? 0 : *std::max_element(visible.begin(), visible.end());
  if (most <= selection.max_keys) return {};
  return invalid_argument(base::join("the plan's workspace holds lists and scores over ",
                                     selection.max_keys, " keys, the batch needs ", most,
                                     ": make a new plan"));
}

void put_selection(const std::vector<std::int32_t>& visible,
                   const std::vector<std::int32_t>& entry_begin, Selection& selection,
                   plan::WorkspaceImage& image) {
  list_scores(visible, entry_begin, selection.rules, selection.list);
  const SelectionParts& parts = selection.parts;
  image.put(parts.score_groups, selection.list.groups);
  image.put(parts.score_shares, selection.list.shares);
  image.put(parts.visible, visible);
  image.put(parts.entry_begin, entry_begin);
}

Status Selector::check_spec(std::string_view backend, const AttentionSpec& spec) {
  if (products::serves(spec.index_num_heads, spec.index_head_dim) ||
      scores::shared_bytes(spec.index_num_heads, spec.index_head_dim) <= scores::kMostShared)
    return {};
  return unsupported(base::join(backend, " keeps an index query in ", scores::kMostShared,
                                " bytes: ", spec.index_num_heads, " heads of ", spec.index_head_dim,
                                " numbers do not fit"));
}

Result<Selector> Selector::make(const AttentionSpec& spec, int num_sms) {
  if (products::serves(spec.index_num_heads, spec.index_head_dim))
    for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{64}})
      if (Status s =
              products::prepare(products::instance_of(spec.q_dtype, spec.index_num_heads, tokens));
          !s.ok())
        return s;
  const auto encoder = kernels::tensor_map::encoder();
  if (!encoder.ok()) return encoder.status();
  return Selector(spec, *encoder, num_sms);
}

void Selector::begin(std::int64_t longest_query, std::int64_t rows, Selection& selection) const {
  selection.rules = {.topk = spec_.index_topk, .rows = rows, .blocks = num_sms_};
  if (!products::serves(spec_.index_num_heads, spec_.index_head_dim)) return;
  selection.kernel = products::instance_of(spec_.q_dtype, spec_.index_num_heads, longest_query);
  selection.rules.tokens_per_group =
      selection.kernel.rows / products::rows_of_token(spec_.index_num_heads);
}

Status Selector::check_call(const Selection& selection, const SparseCall& call) {
  if (selection.kernel.kernel == nullptr || !call.index_q.defined()) return {};
  if (Status s = check_alignment("index_q", call.index_q); !s.ok()) return s;
  return check_alignment("the index cache", call.index_cache);
}

/// Blocks that choose a token's keys together: no more than have a multiprocessor each, for two
/// there get in each other's way, and each has something to do.
int Selector::sharers(std::int64_t tokens, std::int64_t max_keys) const {
  constexpr std::int64_t kKeysOfSharer = 2048;
  int count = 1;
  while (count < lists::kMostSharers && tokens * count * 2 <= num_sms_ &&
         max_keys >= kKeysOfSharer * count * 2)
    count *= 2;
  return count;
}

/// Of `tokens` tokens from `first` on, which is a multiple of a launch's.
Status Selector::score(const Selection& selection, const SparseCall& call, std::int64_t first,
                       std::int64_t tokens, Stream stream) const {
  const scores::Params params{.q = call.index_q.data,
                              .q_token_stride = call.index_q.stride[0],
                              .q_head_stride = call.index_q.stride[1],
                              .weights = call.index_weights.as<float>(),
                              .weights_stride = call.index_weights.stride[0],
                              .keys = call.index_cache.data,
                              .page_stride = call.index_cache.stride[0],
                              .token_stride = call.index_cache.stride[1],
                              .page_size = selection.page_size,
                              .kv_indices = selection.kv_indices,
                              .entry_begin = selection.parts.entry_begin,
                              .visible = selection.parts.visible,
                              .scores = selection.parts.scores,
                              .scores_stride = selection.max_keys,
                              .first_token = static_cast<std::int32_t>(first),
                              .num_tokens = static_cast<std::int32_t>(tokens),
                              .num_heads = spec_.index_num_heads,
                              .head_dim = spec_.index_head_dim,
                              .topk = spec_.index_topk};
  if (selection.kernel.kernel != nullptr) {
    const std::int32_t blocks = selection.rules.blocks;
    return products::launch(
        selection.kernel, encoder_, params,
        {.q_tokens = selection.tokens,
         .num_pages = call.index_cache.shape[0],
         .groups = selection.parts.score_groups,
         .shares = selection.parts.score_shares + first / selection.rules.rows * blocks,
         .blocks = blocks},
        native(stream));
  }
  // A captured run meets longer requests: what it may see at most decides.
  const std::int64_t blocks =
      std::clamp<std::int64_t>(base::ceil_div(kScoreBlocksPerSm * num_sms_, tokens), 1,
                               base::ceil_div(selection.max_keys, kKeysOfBlock));
  return scores::launch(spec_.q_dtype, params, static_cast<int>(blocks), native(stream));
}

Status Selector::select(const Selection& selection, const SparseCall& call, Stream stream) const {
  lists::Params keep{.scores = selection.parts.scores,
                     .scores_stride = selection.max_keys,
                     .lists = call.topk_indices.as<std::int32_t>(),
                     .lists_stride = call.topk_indices.stride[0],
                     .kv_indices = selection.kv_indices,
                     .entry_begin = selection.parts.entry_begin,
                     .visible = selection.parts.visible,
                     .page_size = selection.page_size,
                     .slots = selection.slots,
                     .slots_stride = selection.slots_stride,
                     .slots_before = selection.slots_before,
                     .kept = selection.kept,
                     .num_tokens = static_cast<std::int32_t>(selection.tokens),
                     .topk = spec_.index_topk};
  if (!call.index_q.defined()) return lists::launch_read(keep, native(stream));
  const std::int64_t rows = selection.rules.rows;
  const bool scored = selection.max_keys > spec_.index_topk;
  for (std::int64_t first = 0; first < selection.tokens; first += rows) {
    const std::int64_t count = std::min(rows, selection.tokens - first);
    if (scored)
      if (Status s = score(selection, call, first, count, stream); !s.ok()) return s;
    keep.first_token = static_cast<std::int32_t>(first);
    keep.num_tokens = static_cast<std::int32_t>(count);
    if (Status s = lists::launch_choose(keep, sharers(count, selection.max_keys), native(stream));
        !s.ok())
      return s;
  }
  return {};
}

}  // namespace attune::backends::shared::cuda
