#include "backends/shared/cuda/latent_setup.hpp"

#include <map>

#include "kernels/mla_decode/sm80/launch.hpp"
#include "kernels/mla_decode/sm90/launch.hpp"
#include "kernels/ptx/code_form.hpp"

namespace attune::backends::shared::cuda {
namespace {

namespace mla = kernels::mla_decode;

plan::LatentRules rules_of(const AttentionSpec& spec, LatentKeys keys, int rows, int tile,
                           int workers) {
  // Lists hold visible keys alone.
  return {.num_heads = spec.num_qo_heads,
          .causal = spec.causal && keys == LatentKeys::pages,
          .rows = rows,
          .least_rows = rows,
          .tile = tile,
          .workers = workers};
}

/// Hopper's kernels: one for each height of blocks.
Result<LatentSetup> hopper_setup(const BackendContext& context, const device::cuda::CardFacts& card,
                                 LatentKeys keys) {
  const DType dtype = context.spec.q_dtype;
  const bool packed = context.kv_layout == KvLayout::mla_latent_fp8;
  const auto instance_of = [&](int rows) {
    if (dtype == DType::fp8_e4m3) return mla::sm90::e4m3_instance(rows);
    if (packed)
      return mla::sm90::packed_instance(keys == LatentKeys::lists
                                            ? mla::sm90::KeySource::listed_packed
                                            : mla::sm90::KeySource::packed,
                                        rows);
    switch (keys) {
      case LatentKeys::lists: return mla::sm90::listed_instance(dtype, rows);
      case LatentKeys::pools: return mla::sm90::pooled_instance(dtype, rows);
      case LatentKeys::pages: break;
    }
    return mla::sm90::instance_of(dtype, context.page_size, rows);
  };
  plan::LatentRules rules =
      rules_of(context.spec, keys, mla::sm90::kRows, mla::sm90::kKeys, card.num_sms);
  rules.meetings = keys == LatentKeys::pages;
  rules.least_rows = mla::sm90::least_rows(dtype);
  rules.item_tiles = mla::sm90::kItemTiles;
  std::map<int, mla::sm90::Instance> of_rows;
  for (int rows = rules.least_rows; rows <= rules.rows; rows *= 2) {
    const mla::sm90::Instance instance = instance_of(rows);
    if (Status s = mla::sm90::prepare(instance); !s.ok()) return s;
    of_rows.emplace(rows, instance);
  }
  const auto encoder = kernels::tensor_map::encoder();
  if (!encoder.ok()) return encoder.status();
  return LatentSetup{
      .launch =
          [of_rows, encode = *encoder](const mla::Grid& grid, const mla::Params& params,
                                       cudaStream_t stream) {
            return mla::sm90::launch(of_rows.at(params.block_rows), encode, grid, params, stream);
          },
      .rules = rules,
      .merge_blocks = mla::kMergeBlocksPerSm * card.num_sms};
}

/// The kernel of older cards' instructions, and of widths that the others do not have.
Result<LatentSetup> portable_setup(const BackendContext& context,
                                   const device::cuda::CardFacts& card, LatentKeys keys) {
  const mla::sm80::Instance instance = mla::sm80::instance_of(
      context.spec.q_dtype, {context.spec.head_dim_qk, context.spec.head_dim_vo},
      context.spec.num_qo_heads, card.shared_bytes_per_block);
  const auto blocks_per_sm = mla::sm80::prepare(instance);
  if (!blocks_per_sm.ok()) return blocks_per_sm.status();
  return LatentSetup{
      .launch =
          [instance, overlap = kernels::ptx::code_form(card.sm).overlap](
              const mla::Grid& grid, const mla::Params& params, cudaStream_t stream) {
            return mla::sm80::launch(instance, grid, params, overlap, stream);
          },
      .rules = rules_of(context.spec, keys, instance.rows, mla::sm80::kKeys,
                        card.num_sms * *blocks_per_sm),
      .merge_blocks = mla::kMergeBlocksPerSm * card.num_sms};
}

}  // namespace

Result<LatentSetup> latent_setup(const BackendContext& context, const device::cuda::CardFacts& card,
                                 LatentKeys keys) {
  const int columns = keys == LatentKeys::pools ? mla::kDimVo : mla::kDimQk;
  const bool made_for_hopper = card.sm == 90 && context.spec.head_dim_qk == columns &&
                               context.spec.head_dim_vo == mla::kDimVo;
  return made_for_hopper ? hopper_setup(context, card, keys) : portable_setup(context, card, keys);
}

}  // namespace attune::backends::shared::cuda
