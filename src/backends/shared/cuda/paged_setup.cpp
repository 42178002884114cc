#include "backends/shared/cuda/paged_setup.hpp"

#include <string_view>
#include <utility>

#include <attune/descriptor.hpp>
#include <attune/validate.hpp>

#include "backends/shared/cuda/card.hpp"
#include "backends/shared/cuda/declared.hpp"
#include "base/join.hpp"
#include "kernels/ptx/code_form.hpp"

namespace attune::backends::shared::paged {
namespace {

namespace decode = kernels::paged_decode::sm80;
namespace prefill = kernels::ragged_prefill::sm80;
namespace levels = kernels::ragged_prefill::sm90;

/// The Hopper kernel that serves this spec's levels, where it has every option they may have.
Status find_level_kernel(const BackendContext& context, Setup& setup) {
  const AttentionSpec& spec = context.spec;
  const int group = spec.gqa_group_size();
  if (group > 64 || (group & (group - 1)) != 0 || context.page_size % 8 != 0 || spec.alibi ||
      spec.xai_temperature_len > 0 || spec.per_head_scales)
    return {};
  for (const levels::Instance& instance : levels::level_instances()) {
    if (instance.dtype != spec.q_dtype || instance.dtype != spec.kv_dtype ||
        instance.head_dim_qk != spec.head_dim_qk || instance.head_dim_vo != spec.head_dim_vo)
      continue;
    const auto encoder = kernels::tensor_map::encoder();
    if (!encoder.ok()) return encoder.status();
    setup.encoder = *encoder;
    setup.level = instance;
    return levels::prepare(instance).status();
  }
  return {};
}

Status check_context(const BackendContext& context, std::string_view self) {
  const AttentionSpec& spec = context.spec;
  if (context.device.kind != DeviceKind::cuda)
    return unsupported(base::join(self, " runs on cuda here, not on ", name(context.device.kind)));
  if (spec.variant != Variant::gqa)
    return unsupported(base::join(self, " serves gqa here, not ", name(spec.variant)));
  if (context.batch_invariant)
    return unsupported(base::join(
        self, " cuts work by the whole batch: a request's bits may depend on its neighbours"));
  if (Status s = attention::validate_spec(spec); !s.ok()) return s;
  if (context.page_size < 1)
    return invalid_argument(base::join("page_size must be positive, have ", context.page_size));
  const auto is_half = [](DType t) { return t == DType::bf16 || t == DType::f16; };
  if (!is_half(spec.o_dtype) && spec.o_dtype != DType::f32)
    return unsupported(
        base::join(self, " writes o in bf16, fp16 or fp32, not in ", name(spec.o_dtype)));
  return {};
}

}  // namespace

Result<Setup> make_setup(const BackendContext& context, const BackendDescriptor& descriptor,
                         const PagedOptions& options) {
  if (Status s = check_context(context, descriptor.name); !s.ok()) return s;
  const AttentionSpec& spec = context.spec;
  const auto card = cuda::enter_card(descriptor.name, context);
  if (!card.ok()) return card.status();
  if (Status s = cuda::check_declared(descriptor, context, card->sm); !s.ok()) return s;
  const kernels::ptx::CodeForm form = kernels::ptx::code_form(card->sm);
  const int shared_per_sm = form.shared_per_sm;
  // An SM keeps one KiB of it for each block.
  if (card->shared_bytes_per_block < shared_per_sm - 1024)
    return unsupported(base::join(descriptor.name, " wants ", shared_per_sm / 1024,
                                  " KiB of shared memory a SM, this card lets a block have ",
                                  card->shared_bytes_per_block / 1024));
  Setup setup{.descriptor = &descriptor,
              .spec = spec,
              .page_size = context.page_size,
              .decode = decode::find(spec.kv_dtype, spec.head_dim_qk, spec.head_dim_vo,
                                     spec.gqa_group_size(), shared_per_sm, options.lists),
              .prefill = prefill::find(spec.kv_dtype, spec.head_dim_qk, spec.head_dim_vo,
                                       card->shared_bytes_per_block, spec.block_mask),
              .plans_on_device = cuda::declared_features(descriptor).has(Feature::device_planning),
              .rule = {.causal = spec.causal && !spec.custom_mask && !spec.block_mask,
                       .window_left = spec.window_left,
                       .window_right = spec.window_right,
                       .attention_chunk = spec.attention_chunk},
              .cascade = options.cascade,
              .mails = options.mails};
  if (setup.decode == nullptr || setup.prefill == nullptr)
    return unsupported(base::join(descriptor.name, " has no kernel for ", name(spec.kv_dtype),
                                  " keys with head dims ", spec.head_dim_qk, "/",
                                  spec.head_dim_vo));
  const auto block = decode::prepare(*setup.decode, shared_per_sm);
  if (!block.ok()) return block.status();
  const auto ctas = prefill::prepare(*setup.prefill);
  if (!ctas.ok()) return ctas.status();
  setup.decode_block = *block;
  setup.overlap = form.overlap;
  setup.num_sms = card->num_sms;
  auto kernels = PrefillKernels::make(context, setup.prefill, options, card->sm, card->num_sms);
  if (!kernels.ok()) return kernels.status();
  setup.prefill_kernels = std::move(*kernels);
  if (options.cascade != plan::CascadeMode::off && card->sm == 90)
    if (Status s = find_level_kernel(context, setup); !s.ok()) return s;
  setup.decode_grid = card->num_sms * setup.decode->ctas_per_sm;
  setup.prefill_grid = card->num_sms * *ctas;
  return setup;
}

}  // namespace attune::backends::shared::paged
