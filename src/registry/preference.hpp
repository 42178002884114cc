// The defaults, in one place: device class x variant x phase -> names in order (layer registry).
// Changing a line here changes what people get without asking: a pull request that does so brings
// numbers.
//
// A candidate whose condition does not hold is left out of the row; one that refuses is passed over
// with its reason.
#pragma once

#include <attune/fixed_list.hpp>

#include "registry/condition.hpp"
#include "registry/device_class.hpp"
#include "registry/model_rules.hpp"

namespace attune::registry {

struct Candidate {
  std::string_view name;
  When when = When::always;
};

struct PreferenceRow {
  FixedList<DeviceClass, 11> devices{};
  FixedList<Variant, 4> variants{};
  FixedList<Phase, 2> phases{Phase::prefill, Phase::decode};
  FixedList<Candidate, 10> candidates{};
};

inline constexpr FixedList<DeviceClass, 11> kEverywhere{
    DeviceClass::cpu,  DeviceClass::cpu_amx, DeviceClass::sm7x,  DeviceClass::sm8x,
    DeviceClass::sm90, DeviceClass::sm100,   DeviceClass::sm110, DeviceClass::sm120,
    DeviceClass::hip,  DeviceClass::xpu,     DeviceClass::npu};
inline constexpr FixedList<DeviceClass, 11> kAllButNpu{
    DeviceClass::cpu,  DeviceClass::cpu_amx, DeviceClass::sm7x,  DeviceClass::sm8x,
    DeviceClass::sm90, DeviceClass::sm100,   DeviceClass::sm110, DeviceClass::sm120,
    DeviceClass::hip,  DeviceClass::xpu};

/// The first row that fits is the one.
inline constexpr PreferenceRow kPreferences[] = {
    {.devices = {DeviceClass::cpu},
     .variants = {Variant::gqa},
     .candidates = {{"cpu"}, {"torch_native"}, {"flex_attention"}, {"reference"}}},
    {.devices = {DeviceClass::cpu},
     .variants = {Variant::mla},
     .candidates = {{"cpu"}, {"torch_native"}, {"reference"}}},
    {.devices = {DeviceClass::cpu_amx},
     .variants = {Variant::gqa},
     .candidates = {{"intel_amx"}, {"cpu"}, {"torch_native"}, {"flex_attention"}, {"reference"}}},
    {.devices = {DeviceClass::cpu_amx},
     .variants = {Variant::mla},
     .candidates = {{"intel_amx"}, {"cpu"}, {"torch_native"}, {"reference"}}},

    {.devices = {DeviceClass::cpu, DeviceClass::cpu_amx},
     .variants = {Variant::sparse_mla, Variant::dual_chunk, Variant::dsv4, Variant::minimax_sparse},
     .candidates = {{"cpu"}, {"reference"}}},

    {.devices = {DeviceClass::sm7x},
     .variants = {Variant::gqa, Variant::mla},
     .candidates = {{"flashinfer", When::no_sinks}, {"triton"}, {"torch_native"}, {"reference"}}},
    {.devices = {DeviceClass::sm8x},
     .variants = {Variant::gqa},
     .candidates =
         {{"flashinfer", When::no_sinks}, {"triton"}, {"fa3"}, {"torch_native"}, {"reference"}}},
    {.devices = {DeviceClass::sm8x},
     .variants = {Variant::mla},
     .candidates = {{"triton"}, {"flashinfer"}, {"reference"}}},
    {.devices = {DeviceClass::sm90},
     .variants = {Variant::gqa},
     .candidates = {{"fa3", When::no_speculation_or_chain_at_page_one},
                    {"triton", When::kv_fp8_e5m2},
                    {"flashinfer", When::no_sinks},
                    {"triton"},
                    {"fa4"},
                    {"torch_native"},
                    {"reference"}}},
    {.devices = {DeviceClass::sm90},
     .variants = {Variant::mla},
     .candidates = {{"fa3"}, {"flashmla"}, {"flashinfer"}, {"triton"}, {"reference"}}},
    {.devices = {DeviceClass::sm100},
     .variants = {Variant::gqa},
     .candidates = {{"fa4", When::unequal_head_dims},
                    {"trtllm_mha", When::no_speculation_or_chain_at_page_one},
                    {"flashinfer", When::no_sinks},
                    {"triton"},
                    {"fa4"},
                    {"torch_native"},
                    {"reference"}}},
    {.devices = {DeviceClass::sm100},
     .variants = {Variant::mla},
     .candidates = {{"flashinfer"}, {"trtllm_mla"}, {"flashmla"}, {"triton"}, {"reference"}}},
    {.devices = {DeviceClass::sm110, DeviceClass::sm120},
     .variants = {Variant::gqa},
     .candidates =
         {{"flashinfer", When::no_sinks}, {"triton"}, {"fa4"}, {"torch_native"}, {"reference"}}},
    {.devices = {DeviceClass::sm110, DeviceClass::sm120},
     .variants = {Variant::mla},
     .candidates = {{"triton"}, {"flashinfer"}, {"reference"}}},

    {.devices = {DeviceClass::hip},
     .variants = {Variant::gqa},
     .candidates = {{"aiter"}, {"triton"}, {"wave"}, {"reference"}}},
    {.devices = {DeviceClass::hip},
     .variants = {Variant::mla},
     .candidates = {{"aiter", When::latent_heads_16_or_128}, {"triton"}, {"wave"}, {"reference"}}},
    {.devices = {DeviceClass::xpu},
     .variants = {Variant::gqa, Variant::mla},
     .candidates = {{"triton"}, {"intel_xpu"}, {"reference"}}},
    {.devices = {DeviceClass::npu},
     .variants = {Variant::gqa, Variant::mla},
     .candidates = {{"ascend"}, {"reference"}}},
    {.devices = {DeviceClass::npu},
     .variants = {Variant::sparse_mla},
     .candidates = {{"ascend"}, {"dsa"}, {"reference"}}},

    {.devices = kAllButNpu,
     .variants = {Variant::sparse_mla},
     .candidates = {{"dsa"}, {"reference"}}},
    {.devices = kEverywhere, .variants = {Variant::dsv4}, .candidates = {{"dsv4"}, {"reference"}}},
    {.devices = kEverywhere,
     .variants = {Variant::minimax_sparse},
     .candidates = {{"minimax_sparse"}, {"reference"}}},
    {.devices = kEverywhere,
     .variants = {Variant::dual_chunk},
     .candidates = {{"dual_chunk_flash_attn"}, {"reference"}}},
    {.devices = kEverywhere, .variants = {Variant::gdn}, .candidates = {{"gdn"}, {"reference"}}},
    {.devices = kEverywhere, .variants = {Variant::kda}, .candidates = {{"kda"}, {"reference"}}},
    {.devices = kEverywhere,
     .variants = {Variant::mamba2},
     .candidates = {{"mamba2"}, {"reference"}}},
    {.devices = kEverywhere,
     .variants = {Variant::lightning},
     .candidates = {{"lightning"}, {"reference"}}},
    {.devices = kEverywhere,
     .variants = {Variant::short_conv},
     .candidates = {{"short_conv"}, {"reference"}}},
};

}  // namespace attune::registry
