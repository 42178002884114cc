// DType, KvLayout, TensorView: what memory means, never who owns it (layer tensor).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace attune {

enum class DType : std::uint8_t { f32, bf16, f16, fp8_e4m3, fp8_e5m2, i8, u8, i32, i64, f64 };

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::i8:
    case DType::u8: return 1;
  }
  return 0;
}

/// The word of the command line: fp32, bf16, fp16, fp8_e4m3, fp8_e5m2, int8, …
[[nodiscard]] constexpr std::string_view name(DType t) {
  switch (t) {
    case DType::f32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::f16: return "fp16";
    case DType::fp8_e4m3: return "fp8_e4m3";
    case DType::fp8_e5m2: return "fp8_e5m2";
    case DType::i8: return "int8";
    case DType::u8: return "uint8";
    case DType::i32: return "int32";
    case DType::i64: return "int64";
    case DType::f64: return "fp64";
  }
  return "?";
}

[[nodiscard]] constexpr std::optional<DType> parse_dtype(std::string_view word) {
  constexpr DType kAll[] = {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3, DType::fp8_e5m2,
                            DType::i8,  DType::u8,   DType::i32, DType::i64,      DType::f64};
  for (DType t : kAll)
    if (name(t) == word) return t;
  if (word == "float32") return DType::f32;
  if (word == "bfloat16") return DType::bf16;
  if (word == "float16") return DType::f16;
  return std::nullopt;
}

/// How the tokens of one page lie in memory. A backend's descriptor says which it reads; its
/// append_kv writes it.
enum class KvLayout : std::uint8_t {
  nhd,             ///< [page, token, head, dim]
  hnd,             ///< [page, head, token, dim]
  mla_latent,      ///< [page, token, kv_lora_rank + qk_rope_head_dim]; V is the first kv_lora_rank
                   ///< columns of K
  mla_latent_fp8,  ///< [page, token, 656 bytes]: 512 e4m3, an fp32 scale for each 128 of them, 64
                   ///< bf16 (FlashMLA's layout for DeepSeek-V3.2)
};

[[nodiscard]] constexpr std::string_view name(KvLayout l) {
  switch (l) {
    case KvLayout::nhd: return "nhd";
    case KvLayout::hnd: return "hnd";
    case KvLayout::mla_latent: return "mla_latent";
    case KvLayout::mla_latent_fp8: return "mla_latent_fp8";
  }
  return "?";
}

/// A strided window onto memory owned by somebody else. Strides count elements and are 64-bit:
/// pools beyond 2^31 elements are ordinary. The innermost stride must be 1 wherever a backend reads
/// vectors; it refuses otherwise.
struct TensorView {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> stride{};

  [[nodiscard]] constexpr bool defined() const { return data != nullptr; }

  [[nodiscard]] constexpr std::int64_t num_elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[static_cast<std::size_t>(i)];
    return n;
  }

  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data);
  }

  /// A dense row-major view of `dims`.
  [[nodiscard]] static constexpr TensorView dense(void* data, DType dtype,
                                                  std::initializer_list<std::int64_t> dims) {
    TensorView v;
    v.data = data;
    v.dtype = dtype;
    v.rank = static_cast<int>(dims.size());
    std::size_t i = 0;
    for (std::int64_t d : dims) v.shape[i++] = d;
    std::int64_t step = 1;
    for (std::size_t k = dims.size(); k-- > 0;) {
      v.stride[k] = step;
      step *= v.shape[k];
    }
    return v;
  }
};

}  // namespace attune
