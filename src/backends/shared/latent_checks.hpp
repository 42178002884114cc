// What the latent kernels refuse, asked on the host before anything of CUDA is touched.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include <attune/backend.hpp>
#include <attune/validate.hpp>

#include "base/join.hpp"

namespace attune::backends::shared {

/// What an absorbed latent kernel wants; page_size 0 = any.
struct LatentWants {
  std::string_view backend;
  std::int32_t page_size = 0;
  std::string_view otherwise{};  ///< who takes other pages
  std::int32_t max_columns = 0;  ///< of latent and rope together, in eights; 0 = 512 + 64 alone
  bool packed = false;           ///< the fp8 cache too, under bf16 queries
  bool e4m3 = false;             ///< queries in e4m3 over latents in e4m3 too
};

[[nodiscard]] inline Status check_latent_dtypes(const AttentionSpec& spec, const LatentWants& wants,
                                                bool packed) {
  const auto unserved = [&](std::string_view wanted) {
    return unsupported(base::join(wants.backend, " wants ", wanted, ", have ", name(spec.q_dtype),
                                  ", ", name(spec.o_dtype), " and ", name(spec.kv_dtype)));
  };
  const bool bf16 = spec.q_dtype == DType::bf16 && spec.o_dtype == DType::bf16;
  if (packed) {
    if (bf16 && spec.kv_dtype == DType::fp8_e4m3) return {};
    return unserved("q and o in bf16 over latents in fp8_e4m3");
  }
  if (wants.e4m3 && spec.q_dtype == DType::fp8_e4m3) {
    if (spec.o_dtype == DType::bf16 && spec.kv_dtype == DType::fp8_e4m3) return {};
    return unserved("q and latents in fp8_e4m3 and o in bf16");
  }
  const bool alike = spec.kv_dtype == spec.q_dtype && spec.o_dtype == spec.q_dtype;
  if (alike && (bf16 || spec.q_dtype == DType::f16)) return {};
  return unserved(wants.e4m3
                      ? "q, o and latents all in bf16 or all in fp16, or q and latents in fp8_e4m3"
                      : "q, o and latents all in bf16 or all in fp16");
}

[[nodiscard]] inline Status check_latent_dims(const AttentionSpec& spec, const LatentWants& wants) {
  const int rope = spec.head_dim_qk - spec.head_dim_vo;
  if (wants.max_columns == 0) {
    if (spec.head_dim_qk == 576 && spec.head_dim_vo == 512) return {};
    return unsupported(base::join(wants.backend, " reads latents of 512 + 64 columns, have ",
                                  spec.head_dim_vo, " + ", rope));
  }
  if (spec.head_dim_qk % 8 == 0 && rope % 8 == 0 && spec.head_dim_qk <= wants.max_columns)
    return {};
  return unsupported(base::join(wants.backend, " reads latents whose columns are multiples of 8, ",
                                wants.max_columns, " at most, have ", spec.head_dim_vo, " + ",
                                rope));
}

[[nodiscard]] inline Status check_latent_context(const BackendContext& context,
                                                 const LatentWants& wants) {
  const AttentionSpec& spec = context.spec;
  const std::string_view who = wants.backend;
  if (context.device.kind != DeviceKind::cuda)
    return unsupported(base::join(who, " runs on cuda, not on ", name(context.device.kind)));
  if (spec.variant != Variant::mla)
    return unsupported(base::join(who, " serves mla here, not ", name(spec.variant)));
  if (Status s = attention::validate_spec(spec); !s.ok()) return s;
  if (Status s = check_latent_dims(spec, wants); !s.ok()) return s;
  const std::array<std::pair<bool, std::string_view>, 8> missing{
      {{spec.window_left >= 0 || spec.window_right > 0, "sliding windows"},
       {spec.logits_soft_cap > 0, "soft caps"},
       {spec.sinks, "attention sinks"},
       {spec.alibi, "alibi slopes"},
       {spec.custom_mask, "custom masks"},
       {spec.attention_chunk > 0, "attention chunks"},
       {spec.xai_temperature_len > 0, "temperatures by length"},
       {spec.relative_bias, "a learned relative bias"}}};
  for (const auto& [asked, what] : missing)
    if (asked) return unsupported(base::join(who, " has no latent kernel with ", what));
  if (context.batch_invariant)
    return unsupported(base::join(
        who, " cuts work by the whole batch: a request's bits may depend on its neighbours"));
  const bool packed = wants.packed && context.kv_layout == KvLayout::mla_latent_fp8;
  if (context.kv_layout != KvLayout::mla_latent && !packed)
    return unsupported(base::join(who, " reads mla_latent",
                                  wants.packed ? " and mla_latent_fp8" : "", ", not ",
                                  name(context.kv_layout)));
  if (wants.page_size > 0 && context.page_size != wants.page_size)
    return unsupported(base::join(who, " reads pages of ", wants.page_size, " tokens, have ",
                                  context.page_size, wants.otherwise));
  if (context.page_size < 1)
    return invalid_argument(base::join("page_size must be positive, have ", context.page_size));
  return check_latent_dtypes(spec, wants, packed);
}

}  // namespace attune::backends::shared
