// Minimax polynomials for 2^f (relative error, Remez): the one table all ISA types share.
//
//   interval       degree   largest relative error in fp32
//   [0, 1)         4        2.7e-6    where the result is rounded to bf16 (half a step: 2e-3)
//   [0, 1)         5        1.6e-7    where it stays fp32
//   [-0.5, 0.5]    5        2.4e-7
#pragma once

namespace attune::kernels::simd {

inline constexpr float kExp2Floor4[] = {1.00000259f, 0.693003834f, 0.241442757f, 0.0520114606f,
                                        0.0135341679f};
inline constexpr float kExp2Floor5[] = {0.999999925f,  0.693153073f,   0.240153617f,
                                        0.0558263181f, 0.00898934009f, 0.00187757668f};
inline constexpr float kExp2Near5[] = {1.00000007f,   0.693146967f,   0.240221197f,
                                       0.0555071327f, 0.00967554133f, 0.0013276472f};

}  // namespace attune::kernels::simd
