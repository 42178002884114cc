// A thread's scratch memory for linear attention (layer kernels).
#pragma once

#include <cstdint>

#include "kernels/linear/gemm.hpp"
#include "kernels/linear/params.hpp"
#include "kernels/linear/policy.hpp"
#include "kernels/linear/prepare.hpp"

namespace attune::kernels::linear {

/// A thread's scratch memory, laid out for one Params. Rows are padded to kPadding floats.
template <class Number>
struct Scratch {
  float* q;        ///< [kChunk, dk]
  float* k;        ///< [kChunk, dk]
  float* qg;       ///< [kChunk, dk] kda: q times its decay since the span or chunk began
  float* kg;       ///< [kChunk, dk] likewise k
  float* kd;       ///< [kChunk, dk] kda: k times its decay until the span's or the chunk's end
  float* v;        ///< [kChunk, dv]
  float* u;        ///< [kChunk, dv] what is written to the state
  float* so;       ///< [2 * kChunk, dv] k and q times the state; the second half becomes o
  float* qk;       ///< [kChunk, kChunk]
  float* kk;       ///< [kChunk, kChunk]
  float* scores;   ///< [kChunk, kChunk] qk, decayed and masked
  float* erase;    ///< [kChunk, kChunk] kk, decayed, masked, times beta
  float* g;        ///< [kChunk] or [kChunk, dk]: log decay summed from the chunk's begin; kda has a
                   ///< row of zeros before it
  float* beta;     ///< [kChunk]
  float* since;    ///< [kChunk] decay since the chunk's begin
  float* until;    ///< [kChunk] decay until its end
  float* state;    ///< [kSharedHeads, dk, dv]
  float* row;      ///< [dk] decay of the state's rows
  float* between;  ///< [dk] decay from one span's end to another's begin; ones for other families

  Number* k_columns;  ///< [dk / kPair, kChunk, kPair] k transposed
  // Rounded copies, where the unit wants other numbers than fp32:
  Number* q_rows;       ///< of q or qg
  Number* k_rows;       ///< of k or kg
  Number* k_pairs;      ///< of k or kd
  Number* state_pairs;  ///< of one head's state
  Number* u_pairs;      ///< of u
  Number* score_rows;   ///< of scores

  ConvolutionScratch q_conv, k_conv;
  ConvolutionScratch v_conv[kSharedHeads];
};

/// Lays the parts out one after the other; with a null base it only counts.
template <class Unit>
std::int64_t lay_out(const Params& p, float* base, Scratch<typename Unit::Number>* out) {
  using Number = typename Unit::Number;
  constexpr auto padded = &Prepare<typename Unit::V>::padded;
  const std::int64_t dk = padded(p.dk);
  const std::int64_t dv = padded(p.dv);
  std::int64_t used = 0;
  const auto take = [&](std::int64_t floats) {
    float* at = base == nullptr ? nullptr : base + used;
    used += floats;
    return at;
  };
  const auto take_convolution = [&](std::int64_t width) {
    ConvolutionScratch conv;
    conv.taps = take((kMaxTaps + 1) * width);
    conv.history = take((kMaxTaps - 1) * width);
    return conv;
  };
  Scratch<Number> s;
  s.q = take(kChunk * dk);
  s.k = take(kChunk * dk);
  s.kg = take(kChunk * dk);
  s.qg = take(kChunk * dk);
  s.kd = take(kChunk * dk);
  s.v = take(kChunk * dv);
  s.u = take(kChunk * dv);
  s.so = take(2 * kChunk * dv);
  s.qk = take(kChunk * kChunk);
  s.kk = take(kChunk * kChunk);
  s.scores = take(kChunk * kChunk);
  s.erase = take(kChunk * kChunk);
  s.g = p.family == Family::kda ? take((1 + kChunk) * dk) : take(kChunk);
  if (base != nullptr && p.family == Family::kda) s.g += dk;
  s.beta = take(kChunk);
  s.since = take(kChunk);
  s.until = take(kChunk);
  s.state = take(kSharedHeads * dk * dv);
  s.row = take(dk);
  s.between = take(dk);
  const auto take_numbers = [&](std::int64_t numbers) {
    const auto bytes = numbers * static_cast<std::int64_t>(sizeof(Number));
    return reinterpret_cast<Number*>(take(bytes / static_cast<std::int64_t>(sizeof(float))));
  };
  s.k_columns = take_numbers(dk * kChunk);
  if constexpr (!Operands<Unit>::kAsTheyAre) {
    s.q_rows = take_numbers(kChunk * dk);
    s.k_rows = take_numbers(kChunk * dk);
    s.k_pairs = take_numbers(kChunk * dk);
    s.state_pairs = take_numbers(dk * dv);
    s.u_pairs = take_numbers(kChunk * dv);
    s.score_rows = take_numbers(kChunk * kChunk);
  }
  s.q_conv = take_convolution(dk);
  s.k_conv = take_convolution(dk);
  for (ConvolutionScratch& conv : s.v_conv) conv = take_convolution(dv);
  if (out != nullptr) *out = s;
  return used;
}

}  // namespace attune::kernels::linear
