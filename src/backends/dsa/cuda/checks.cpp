#include "backends/dsa/cuda/checks.hpp"

#include <attune/validate.hpp>

#include "backends/dsa/descriptor.hpp"
#include "backends/shared/cuda/selection.hpp"
#include "base/join.hpp"
#include "kernels/mla_decode/params.hpp"

namespace attune::backends::dsa {
namespace {

namespace mla = kernels::mla_decode;

/// Latents of the queries' 16-bit type, or the fp8 cache under bf16 queries.
Status check_latents(const BackendContext& context) {
  const AttentionSpec& spec = context.spec;
  const int rope = spec.head_dim_qk - spec.head_dim_vo;
  if (context.kv_layout == KvLayout::mla_latent_fp8) {
    if (spec.head_dim_qk != mla::kDimQk || spec.head_dim_vo != mla::kDimVo)
      return unsupported(base::join("dsa reads mla_latent_fp8 of 512 + 64 columns, have ",
                                    spec.head_dim_vo, " + ", rope));
    if (spec.q_dtype == DType::bf16 && spec.o_dtype == DType::bf16 &&
        spec.kv_dtype == DType::fp8_e4m3)
      return {};
    return unsupported(
        base::join("dsa wants q and o in bf16 over mla_latent_fp8 in fp8_e4m3, have ",
                   name(spec.q_dtype), ", ", name(spec.o_dtype), " and ", name(spec.kv_dtype)));
  }
  if (context.kv_layout != KvLayout::mla_latent)
    return unsupported(
        base::join("dsa reads mla_latent and mla_latent_fp8, not ", name(context.kv_layout)));
  if (spec.head_dim_qk % 8 != 0 || spec.head_dim_vo % 8 != 0 || spec.head_dim_qk > mla::kDimQk)
    return unsupported(base::join("dsa reads latents whose columns are multiples of 8, ",
                                  mla::kDimQk, " at most, have ", spec.head_dim_vo, " + ", rope));
  if ((spec.q_dtype == DType::bf16 || spec.q_dtype == DType::f16) &&
      spec.kv_dtype == spec.q_dtype && spec.o_dtype == spec.q_dtype)
    return {};
  return unsupported(base::join("dsa wants q, o and latents all in bf16 or all in fp16, have ",
                                name(spec.q_dtype), ", ", name(spec.o_dtype), " and ",
                                name(spec.kv_dtype)));
}

Status check_indexer(const AttentionSpec& spec) {
  if (spec.index_dtype != spec.q_dtype)
    return unsupported(base::join("dsa wants index keys in the type of q, ", name(spec.q_dtype),
                                  ", have ", name(spec.index_dtype)));
  return shared::cuda::Selector::check_spec(kDescriptor.name, spec);
}

}  // namespace

Status check_context(const BackendContext& context) {
  const AttentionSpec& spec = context.spec;
  if (context.device.kind != DeviceKind::cuda)
    return unsupported(base::join("dsa runs on cuda, not on ", name(context.device.kind)));
  if (spec.variant != Variant::sparse_mla)
    return unsupported(base::join("dsa serves sparse_mla, not ", name(spec.variant)));
  if (Status s = attention::validate_spec(spec); !s.ok()) return s;
  if (context.batch_invariant)
    return unsupported(
        "dsa cuts work by the whole batch: a request's bits may depend on its neighbours");
  if (context.page_size < 1)
    return invalid_argument(base::join("page_size must be positive, have ", context.page_size));
  if (Status s = check_latents(context); !s.ok()) return s;
  return check_indexer(spec);
}

}  // namespace attune::backends::dsa
