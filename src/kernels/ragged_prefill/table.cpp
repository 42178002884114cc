#include "kernels/ragged_prefill/table.hpp"

#include <iterator>

#include "kernels/tile/digits.hpp"

namespace attune::kernels::ragged_prefill {
namespace {

struct Group {
  const dense::KernelRow* rows;
  std::size_t count;
};

constexpr Group kGroups[] = {{kAvx512Bf16Rows, std::size(kAvx512Bf16Rows)},
                             {kAvx512Rows, std::size(kAvx512Rows)},
                             {kAvx2Rows, std::size(kAvx2Rows)},
                             {kScalarRows, std::size(kScalarRows)}};

/// Cores with tiles start a product of bf16 pairs every other cycle, and two fused multiply-adds in
/// each: rows in fp32 take 0.5 to 0.65 of the time there (docs/performance/cpu.md).
bool outdone(const dense::KernelRow& row, simd::Isa isa) {
  return isa == simd::Isa::amx && row.isa == simd::Isa::avx512_bf16;
}

}  // namespace

std::size_t num_rows() {
  std::size_t n = 0;
  for (const Group& group : kGroups) n += group.count;
  return n;
}

const dense::KernelRow& row(std::size_t i) {
  const Group* group = kGroups;
  while (i >= group->count) i -= (group++)->count;
  return group->rows[i];
}

const dense::KernelRow* find(simd::Isa isa, DType q_dtype, DType kv_dtype) {
  for (std::size_t i = 0; i < num_rows(); ++i) {
    const dense::KernelRow& candidate = row(i);
    if (candidate.isa <= isa && !outdone(candidate, isa) && candidate.kv_dtype == kv_dtype &&
        (!candidate.needs_bf16_queries || q_dtype == DType::bf16))
      return &candidate;
  }
  return nullptr;
}

const dense::KernelRow* find_tiles(const TileWish& wish) {
  if (wish.q_dtype != DType::bf16) return nullptr;
  const dense::KernelRow* found = nullptr;
  // Of two rows for int8 the first multiplies it as such.
  for (const dense::KernelRow& candidate : wish.emulated ? kAmxEmulatedRows : kAmxRows) {
    if (candidate.kv_dtype != wish.kv_dtype) continue;
    found = &candidate;
    if (wish.int8_products && wish.head_dim_qk <= tile::kMaxDigitDims) break;
  }
  return found;
}

}  // namespace attune::kernels::ragged_prefill
