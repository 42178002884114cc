// Memory as mailboxes: a block sends words, another waits for them and leaves the box empty. Each
// word is its own flag, so that what is sent costs one way to the second-level cache and one back,
// with no fence and no counter. Whoever is waited for must be running: a cooperative launch.
#pragma once

#include <cstdint>

namespace attune::kernels::ptx {

/// What an empty box holds, all bits set: a NaN that no instruction makes.
inline constexpr std::uint32_t kNoMail = 0xffffffffu;

__device__ __forceinline__ std::uint32_t as_mail(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  return bits == kNoMail ? 0x7fffffffu : bits;
}

__device__ __forceinline__ void send(float4* box, float4 v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(box), "r"(as_mail(v.x)),
               "r"(as_mail(v.y)), "r"(as_mail(v.z)), "r"(as_mail(v.w))
               : "memory");
}
__device__ __forceinline__ void send(float2* box, float2 v) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(box), "r"(as_mail(v.x)),
               "r"(as_mail(v.y))
               : "memory");
}

/// Both boxes at once: a wait for one after the other would be two ways to the cache and back.
__device__ __forceinline__ void receive(float4* box, float2* other, float4& v, float2& w) {
  std::uint32_t a, b, c, d, e, f;
  do {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "l"(box)
                 : "memory");
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(e), "=r"(f)
                 : "l"(other)
                 : "memory");
  } while (a == kNoMail || b == kNoMail || c == kNoMail || d == kNoMail || e == kNoMail ||
           f == kNoMail);
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(box), "r"(kNoMail)
               : "memory");
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %1};" ::"l"(other), "r"(kNoMail)
               : "memory");
  v = make_float4(__uint_as_float(a), __uint_as_float(b), __uint_as_float(c), __uint_as_float(d));
  w = make_float2(__uint_as_float(e), __uint_as_float(f));
}

}  // namespace attune::kernels::ptx
