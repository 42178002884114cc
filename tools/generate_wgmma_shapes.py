#!/usr/bin/env python3
"""Writes src/kernels/ptx/wgmma_*shapes.cuh: one wgmma instruction per (type, N) that a kernel uses.

An asm statement names every accumulator register, so the shapes are text, not templates. Add an N
to SHAPES and run, in src/kernels/ptx:

generate_wgmma_shapes.py > wgmma_shapes.cuh                        # A in shared memory
generate_wgmma_shapes.py registers > wgmma_register_shapes.cuh     # A in registers
generate_wgmma_shapes.py narrow > wgmma_narrow_shapes.cuh          # both, few columns
"""

import sys

KIND = sys.argv[1] if len(sys.argv) > 1 else "shared"
NARROW = KIND == "narrow"
SHAPES = [16, 32] if NARROW else [64, 72, 80, 96, 128, 176, 192, 256]
TYPES = [("__nv_bfloat16", "bf16"), ("__half", "f16")]

HEAD = """\
// clang-format off
// Written by tools/generate_wgmma_shapes.py: the asm statements of wgmma.cuh, one per type and N.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace attune::kernels::ptx {

/// Which way a 16-bit operand's 64-element rows run in shared memory.
enum class Major : int { k = 0, mn = 1 };
"""

REGISTERS_HEAD = """\
// clang-format off
// Written by tools/generate_wgmma_shapes.py registers: as wgmma_shapes.cuh, with A in registers.
#pragma once

#include "kernels/ptx/wgmma_shapes.cuh"

namespace attune::kernels::ptx {
"""

NARROW_HEAD = """\
// clang-format off
// Written by tools/generate_wgmma_shapes.py narrow: as wgmma_shapes.cuh, for few columns.
#pragma once

#include "kernels/ptx/wgmma.cuh"

namespace attune::kernels::ptx::narrow {
"""

SS_COMMENT = """
/// d = a b (+ d where `accumulate`); a and b are descriptors of shared memory.
"""
RS_COMMENT = """
/// The same with A[64, 16] in registers.
"""


def wrap(items, indent, width=98):
    lines, line = [], indent
    for i, item in enumerate(items):
        piece = item + (", " if i + 1 < len(items) else "")
        if len(line) + len(piece.rstrip()) > width and line.strip():
            lines.append(line.rstrip())
            line = indent
        line += piece
    lines.append(line.rstrip())
    return lines


def statement(ptx, n, registers):
    count = n // 2
    a = count
    out = ["    asm volatile(", '        "{\\n.reg .pred p;\\n"']
    after = count + (4 if registers else 1)  # index of the B descriptor
    out.append(f'        "setp.ne.b32 p, %{after + 1}, 0;\\n"')
    out.append(f'        "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{ptx}.{ptx} {{"')
    for line in wrap([f"%{i}" for i in range(count)], "", 86):
        out.append(f'        "{line}"' if line.endswith("%" + str(count - 1)) else f'        "{line} "')
    if registers:
        operands = f"{{%{a}, %{a + 1}, %{a + 2}, %{a + 3}}}, %{after}, p, 1, 1, %{after + 2};"
    else:
        operands = f"%{a}, %{after}, p, 1, 1, %{after + 2}, %{after + 3};"
    out.append(f'        "}}, {operands}\\n}}\\n"')
    outputs = wrap([f'"+f"(d[{i}])' for i in range(count)], "          ")
    outputs[0] = "        : " + outputs[0].strip()
    out += outputs
    if registers:
        out.append('        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(on),')
        out.append('          "n"(static_cast<int>(MajorB)));')
    else:
        out.append('        : "l"(a), "l"(b), "r"(on), "n"(static_cast<int>(MajorA)),')
        out.append('          "n"(static_cast<int>(MajorB)));')
    return out


def function(registers):
    name = "wgmma_rs" if registers else "wgmma_ss"
    out = [(RS_COMMENT if registers else SS_COMMENT).strip("\n")]
    if registers:
        out.append("template <class T, int N, Major MajorB>")
        out.append("__device__ __forceinline__ void wgmma_rs(float (&d)[N / 2], const std::uint32_t (&a)[4],")
        out.append("                                         std::uint64_t b, bool accumulate) {")
    else:
        out.append("template <class T, int N, Major MajorA, Major MajorB>")
        out.append("__device__ __forceinline__ void wgmma_ss(float (&d)[N / 2], std::uint64_t a, std::uint64_t b,")
        out.append("                                         bool accumulate) {")
    out.append("  const std::int32_t on = accumulate ? 1 : 0;")
    first = True
    for cpp, ptx in TYPES:
        for n in SHAPES:
            word = "if" if first else "} else if"
            out.append(f"  {word} constexpr (N == {n} && std::is_same_v<T, {cpp}>) {{")
            out += statement(ptx, n, registers)
            first = False
    out.append("  } else {")
    out.append(f'    static_assert(N < 0, "no {name} of this type and N: see tools/generate_wgmma_shapes.py");')
    out.append("  }")
    out.append("}")
    return out


print({"shared": HEAD, "registers": REGISTERS_HEAD, "narrow": NARROW_HEAD}[KIND])
if KIND != "registers":
    print("\n".join(function(False)))
if NARROW:
    print()
if KIND != "shared":
    print("\n".join(function(True)))
print("\n}  // namespace attune::kernels::ptx" + ("::narrow" if NARROW else ""))
