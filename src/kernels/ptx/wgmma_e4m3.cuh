// wgmma on bytes: D[64, 64] (+)= A[64, 32] B[32, 64] of e4m3. Both operands are K-major, in shared
// memory as wgmma_descriptor() has them: a row of 128 bytes is 128 elements, and 32 more of K are as
// many bytes. Products are exact, their sums are not fp32's: a step's terms and the accumulator are
// cut to about 14 bits below the largest of them, so long sums do not belong here.
#pragma once

#include <cstdint>

namespace attune::kernels::ptx {

/// d = a b (+ d where `accumulate`).
__device__ __forceinline__ void wgmma_e4m3(float (&d)[32], std::uint64_t a, std::uint64_t b,
                                           bool accumulate) {
  const std::int32_t on = accumulate ? 1 : 0;
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(on));
}

}  // namespace attune::kernels::ptx
