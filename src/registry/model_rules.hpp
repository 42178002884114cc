// What architectures ask for beyond their numbers: defaults that go before the preference row,
// backends they exclude, and cache types (layer registry). An architecture is matched by the
// beginning of its name in config.json.
#pragma once

#include <string_view>

#include <attune/descriptor.hpp>
#include <attune/fixed_list.hpp>
#include <attune/spec.hpp>

#include "registry/condition.hpp"
#include "registry/device_class.hpp"

namespace attune::registry {

/// Before the preference row: on these devices this architecture takes `backend`.
struct ModelRule {
  FixedList<std::string_view, 8> architectures{};
  FixedList<DeviceClass, 11> devices{};
  When when = When::always;
  FixedList<Variant, 2> variants{Variant::gqa};
  FixedList<Phase, 2> phases{Phase::prefill, Phase::decode};
  std::string_view backend;
  std::int32_t page_size = 0;  ///< preferred with it; 0 = the backend's own preference
};

inline constexpr FixedList<DeviceClass, 11> kAllCuda{DeviceClass::sm7x,  DeviceClass::sm8x,
                                                     DeviceClass::sm90,  DeviceClass::sm100,
                                                     DeviceClass::sm110, DeviceClass::sm120};
inline constexpr FixedList<DeviceClass, 11> kCudaButSm100{DeviceClass::sm7x, DeviceClass::sm8x,
                                                          DeviceClass::sm90, DeviceClass::sm110,
                                                          DeviceClass::sm120};
inline constexpr FixedList<DeviceClass, 11> kCudaButDataCentre{
    DeviceClass::sm7x, DeviceClass::sm8x, DeviceClass::sm110, DeviceClass::sm120};

inline constexpr ModelRule kModelRules[] = {
    {.architectures = {"Whisper"},
     .devices = {DeviceClass::sm7x, DeviceClass::sm8x, DeviceClass::sm90, DeviceClass::sm100,
                 DeviceClass::sm110, DeviceClass::sm120, DeviceClass::hip, DeviceClass::xpu},
     .backend = "flashinfer"},
    {.architectures = {"DeepseekV3For", "KimiK25", "MistralLarge3", "Longcat", "Dots3", "KimiK3"},
     .devices = {DeviceClass::sm100},
     .variants = {Variant::mla},
     .backend = "trtllm_mla"},

    {.architectures = {"GptOss", "Llama4"},
     .devices = {DeviceClass::sm100},
     .backend = "trtllm_mha"},
    {.architectures = {"GptOss", "Llama4"}, .devices = {DeviceClass::sm90}, .backend = "fa3"},
    {.architectures = {"GptOss", "Llama4"}, .devices = {DeviceClass::hip}, .backend = "aiter"},
    {.architectures = {"GptOss", "Llama4"}, .devices = {DeviceClass::xpu}, .backend = "intel_xpu"},
    {.architectures = {"GptOss", "Llama4"}, .devices = kCudaButDataCentre, .backend = "triton"},

    {.architectures = {"Gemma4"}, .devices = {DeviceClass::sm100}, .backend = "trtllm_mha"},
    {.architectures = {"Gemma4"},
     .devices = {DeviceClass::sm7x, DeviceClass::sm8x, DeviceClass::sm90, DeviceClass::sm110,
                 DeviceClass::sm120, DeviceClass::hip, DeviceClass::xpu},
     .backend = "triton"},

    {.architectures = {"Qwen3Next", "Qwen3_5", "InternS2"},
     .devices = {DeviceClass::sm100},
     .when = When::prefix_cache_without_speculation,
     .backend = "triton",
     .page_size = 1},
    {.architectures = {"Qwen3Next", "Qwen3_5", "InternS2"},
     .devices = {DeviceClass::sm100},
     .backend = "trtllm_mha"},
    {.architectures = {"FalconH1", "JetNemotron", "JetVLM", "MiniCPMV4_6"},
     .devices = {DeviceClass::sm100},
     .backend = "triton"},
    {.architectures = {"GraniteMoeHybrid"},
     .devices = {DeviceClass::sm100},
     .when = When::has_mamba2,
     .backend = "flashinfer"},
    {.architectures = {"Lfm2For", "Lfm2MoeFor", "NemotronH"},
     .devices = {DeviceClass::sm100},
     .backend = "flashinfer"},

    {.architectures = {"MiniMaxM3"}, .devices = {DeviceClass::hip}, .backend = "triton"},
    {.architectures = {"MiniMaxM3"},
     .devices = {DeviceClass::sm100},
     .when = When::kv_fp8_e4m3,
     .backend = "trtllm_mha",
     .page_size = 128},
    {.architectures = {"MiniMaxM3"},
     .devices = {DeviceClass::sm100},
     .backend = "fa4",
     .page_size = 128},
    {.architectures = {"MiniMaxM3"},
     .devices = {DeviceClass::sm90},
     .backend = "fa3",
     .page_size = 128},

    {.architectures = {"Olmo2"}, .devices = {DeviceClass::sm100}, .backend = "trtllm_mha"},
    {.architectures = {"Olmo2"},
     .devices = {DeviceClass::sm8x, DeviceClass::sm90},
     .backend = "fa3"},
    {.architectures = {"Olmo2"},
     .devices = {DeviceClass::sm7x, DeviceClass::sm110, DeviceClass::sm120},
     .backend = "triton"},
    {.architectures = {"Step3p5", "Step3p7"},
     .devices = {DeviceClass::sm100, DeviceClass::sm110, DeviceClass::sm120},
     .backend = "fa4"},
    {.architectures = {"Step3p5", "Step3p7"}, .devices = {DeviceClass::sm90}, .backend = "fa3"},
    {.architectures = {"Inkling"}, .devices = {DeviceClass::sm100}, .backend = "fa4"},
    {.architectures = {"Inkling"}, .devices = kCudaButSm100, .backend = "triton"},
    {.architectures = {"MossVL"},
     .devices = kAllCuda,
     .phases = {Phase::prefill},
     .backend = "flashinfer"},
    {.architectures = {"Qwen3VL"},
     .devices = {DeviceClass::hip},
     .backend = "aiter",
     .page_size = 16},
    {.architectures = {"HrmText"}, .devices = kAllCuda, .backend = "triton"},
};

/// Backends that an architecture excludes by something its numbers do not show. Softmax variants
/// only.
struct ModelConstraint {
  FixedList<std::string_view, 4> architectures{};  ///< empty = any that meets `when`
  When when = When::always;
  FixedList<DeviceClass, 11> devices{};       ///< empty = any
  FixedList<std::string_view, 12> allowed{};  ///< empty = all but the denied
  FixedList<std::string_view, 4> denied{};
  std::string_view because;
  FeatureSet withheld{};  ///< what the excluded names do not serve it with, whatever their rows say
};

inline constexpr ModelConstraint kModelConstraints[] = {
    {.architectures = {"GptOss"},
     .allowed = {"triton", "trtllm_mha", "fa3", "fa4", "aiter", "ascend", "intel_amx", "intel_xpu",
                 "cpu", "torch_native", "flex_attention", "reference"},
     .because = "sinks and windows together",
     .withheld = Feature::sinks},
    {.architectures = {"Llama4"},
     .allowed = {"fa3", "fa4", "aiter", "triton", "trtllm_mha", "ascend", "intel_amx", "intel_xpu",
                 "cpu", "torch_native", "flex_attention", "reference"},
     .because = "chunked layers beside full ones"},
    {.architectures = {"Gemma4"},
     .allowed = {"trtllm_mha", "triton", "ascend", "intel_amx", "intel_xpu", "cpu", "torch_native",
                 "flex_attention", "reference"},
     .because = "head dims differ by layer kind"},
    {.when = When::has_gdn,
     .devices = {DeviceClass::sm100, DeviceClass::sm110},
     .allowed = {"triton", "trtllm_mha", "fa4"},
     .because = "full attention beside gated-delta layers on Blackwell"},
    {.when = When::has_gdn,
     .devices = {DeviceClass::sm120},
     .allowed = {"triton", "trtllm_mha", "flashinfer"},
     .because = "full attention beside gated-delta layers on Blackwell"},
    {.architectures = {"Lfm2For", "Lfm2MoeFor", "NemotronH"},
     .denied = {"triton"},
     .because = "the first layer may not be attention"},
    {.architectures = {"Olmo2"}, .denied = {"flashinfer"}, .because = "norms over all heads"},
};

/// What `auto` means for the cache where it is not the model's own type.
struct CacheTypeRule {
  Variant variant = Variant::sparse_mla;
  FixedList<DeviceClass, 11> devices{};
  DType kv_dtype = DType::fp8_e4m3;
};

inline constexpr CacheTypeRule kCacheTypes[] = {
    {.variant = Variant::sparse_mla,
     .devices = {DeviceClass::sm100, DeviceClass::sm110, DeviceClass::sm120},
     .kv_dtype = DType::fp8_e4m3},
    {.variant = Variant::dsv4,
     .devices = {DeviceClass::sm7x, DeviceClass::sm8x, DeviceClass::sm100, DeviceClass::sm110,
                 DeviceClass::sm120, DeviceClass::hip, DeviceClass::xpu},
     .kv_dtype = DType::fp8_e4m3},
    {.variant = Variant::dsv4, .devices = {DeviceClass::npu}, .kv_dtype = DType::bf16},
};

/// Whether `architecture` begins with one of `beginnings`.
template <std::size_t N>
[[nodiscard]] constexpr bool matches(const FixedList<std::string_view, N>& beginnings,
                                     std::string_view architecture) {
  for (std::string_view beginning : beginnings)
    if (architecture.starts_with(beginning)) return true;
  return false;
}

}  // namespace attune::registry
