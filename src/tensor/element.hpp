// One element of any dtype, as a double: for code that is right before it is fast (layer tensor).
#pragma once

#include <cstdint>
#include <cstring>

#include <attune/tensor.hpp>

#include "tensor/narrow_float.hpp"

namespace attune::tensor {

namespace detail {

template <class T>
[[nodiscard]] inline T read(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <class T>
inline void write(void* base, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(base) + index * static_cast<std::int64_t>(sizeof(T)), &value,
              sizeof(T));
}

}  // namespace detail

[[nodiscard]] inline double load_element(const void* base, DType dtype, std::int64_t index) {
  using detail::read;
  switch (dtype) {
    case DType::f32: return read<float>(base, index);
    case DType::bf16: return to_float(read<Bf16>(base, index));
    case DType::f16: return to_float(read<F16>(base, index));
    case DType::fp8_e4m3: return to_float(read<E4m3>(base, index));
    case DType::fp8_e5m2: return to_float(read<E5m2>(base, index));
    case DType::i8: return read<std::int8_t>(base, index);
    case DType::u8: return read<std::uint8_t>(base, index);
    case DType::i32: return read<std::int32_t>(base, index);
    case DType::i64: return static_cast<double>(read<std::int64_t>(base, index));
    case DType::f64: return read<double>(base, index);
  }
  return 0.0;
}

/// Rounds once. Integer types other than i8 truncate.
inline void store_element(void* base, DType dtype, std::int64_t index, double value) {
  using detail::write;
  switch (dtype) {
    case DType::f32: write(base, index, static_cast<float>(value)); return;
    case DType::bf16: write(base, index, round_to<Bf16>(value)); return;
    case DType::f16: write(base, index, round_to<F16>(value)); return;
    case DType::fp8_e4m3: write(base, index, round_to<E4m3>(value)); return;
    case DType::fp8_e5m2: write(base, index, round_to<E5m2>(value)); return;
    case DType::i8: write(base, index, round_to<std::int8_t>(value)); return;
    case DType::u8: write(base, index, static_cast<std::uint8_t>(value)); return;
    case DType::i32: write(base, index, static_cast<std::int32_t>(value)); return;
    case DType::i64: write(base, index, static_cast<std::int64_t>(value)); return;
    case DType::f64: write(base, index, value); return;
  }
}

}  // namespace attune::tensor
