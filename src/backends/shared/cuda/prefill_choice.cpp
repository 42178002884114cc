#include "backends/shared/cuda/prefill_choice.hpp"

#include <algorithm>
#include <utility>

#include "base/math.hpp"

namespace attune::backends::shared::paged {
namespace {

/// Of the plain kernel on an H200, a cycle and multiprocessor (docs/performance/cuda-prefill.md).
constexpr std::int64_t kPlainFlop = 1400;
constexpr std::int64_t kPlainFlopFp8 = 1050;  ///< its fragments are widened one by one
/// What a batch takes beyond Hopper's however small it is.
constexpr std::int64_t kPlainBeginning = 30000;

}  // namespace

Result<PrefillKernels> PrefillKernels::make(const BackendContext& context,
                                            const kernels::ragged_prefill::sm80::Instance* plain,
                                            const PagedOptions& options, int sm, int num_sms) {
  PrefillKernels made;
  made.spec_ = context.spec;
  made.plain_ = plain;
  made.num_sms_ = num_sms;
  made.by_cost_ = options.keys == hopper::Keys::by_cost;
  if (!options.hopper) {
    made.reason_ = "this backend keeps to the plain kernel";
  } else if (sm != 90) {
    made.reason_ = "the card's compute capability is not 9.0";
  } else if (const std::string_view what = hopper::unserved(context.spec); !what.empty()) {
    made.reason_ = what;
  } else {
    auto tiler = hopper::Tiler::make(context, kernels::ragged_prefill::sm90::Strategy::fa4, false,
                                     options.keys);
    if (!tiler.ok()) return tiler.status();
    if (tiler->serves_some())
      made.tiler_.emplace(std::move(*tiler));
    else
      made.reason_ = "head dims without a Hopper kernel";
  }
  return made;
}

/// With its rows and keys spread evenly over the card, as its planner cuts them.
std::int64_t PrefillKernels::plain_cycles(const BatchView& batch) const {
  const int group = spec_.gqa_group_size();
  const std::int32_t tokens = std::max(1, plain_->rows / group);
  const plan::PrefillCount count =
      plan::count_prefill({.tile_tokens = tokens,
                           .tile_heads = group,
                           .key_tile = plain_->key_tile,
                           .num_qo_heads = spec_.num_qo_heads,
                           .num_kv_heads = spec_.num_kv_heads,
                           .decodes_too = false,
                           .window_left = spec_.window_left,
                           .window_right = spec_.causal ? 0 : spec_.window_right},
                          batch);
  const std::int64_t blocks = base::ceil_div(tokens * group, plain_->rows);
  const std::int64_t flop =
      std::int64_t{2} * plain_->rows * plain_->key_tile * (spec_.head_dim_qk + spec_.head_dim_vo);
  const std::int64_t key_tiles = count.key_tiles * spec_.num_kv_heads;
  const std::int64_t rate = size_of(spec_.kv_dtype) == 1 ? kPlainFlopFp8 : kPlainFlop;
  return kPlainBeginning + key_tiles * blocks * flop / rate / num_sms_;
}

PrefillChoice PrefillKernels::choose(const BatchView& batch, bool writes_states) const {
  if (!tiler_) return {.reason = reason_};
  if (writes_states) return {.reason = "beside levels of shared prefixes, rows leave as states"};
  const hopper::Choice tiles = tiler_->choose(batch);
  if (tiles.kernel.kernel == nullptr)
    return {.reason =
                "no Hopper kernel takes these keys as they are stored, nor may they be copied"};
  if (by_cost_ && plain_cycles(batch) < tiles.cycles)
    return {.reason = "so few rows see so many keys that cutting the keys is faster"};
  return {.tiled = true,
          .tiles = tiles,
          .reason = tiles.copies_first
                        ? "the expected time of Hopper's tiles over rows copied first is less"
                        : "the expected time of Hopper's tiles is less"};
}

}  // namespace attune::backends::shared::paged
