// wgmma's products: issued by 128 threads together, grouped by commits, waited for.
#pragma once

#include <cstdint>

#include "fragments.hpp"

namespace attune::emulated {

/// One thread's part of D[64, n] (+)= A[64, 16] B[16, n] on 16-bit elements. Of bytes (e4m3_low)
/// every element is two, 32 in all. Sums are fp32's, where a card cuts those of bytes to 14 bits.
struct WarpgroupProduct {
  float* d = nullptr;
  int n = 0;
  Element element = Element::bf16;
  const std::uint32_t* a = nullptr;  ///< four registers, or null: A is in shared memory
  std::uint64_t descriptor_a = 0;
  std::uint64_t descriptor_b = 0;
  bool a_mn_major = false;
  bool b_mn_major = false;
  bool accumulate = false;
};

/// Issuing and committing hold no thread up, as on a card: the last of the 128 to come carries out.
void issue_product(const WarpgroupProduct& mine);
void commit_products();
/// Until at most `pending` commits of the warpgroup are under way.
void wait_for_products(int pending);

}  // namespace attune::emulated
