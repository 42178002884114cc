#include "kernels/paged_decode/table.hpp"

#include <iterator>

namespace attune::kernels::paged_decode {
namespace {

struct Group {
  const dense::KernelRow* rows;
  std::size_t count;
};

constexpr Group kGroups[] = {{kAmxRows, std::size(kAmxRows)},
                             {kAvx512Bf16Rows, std::size(kAvx512Bf16Rows)},
                             {kAvx512Rows, std::size(kAvx512Rows)},
                             {kAvx2Rows, std::size(kAvx2Rows)},
                             {kScalarRows, std::size(kScalarRows)}};

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
    if (candidate.isa <= isa && candidate.kv_dtype == kv_dtype &&
        (!candidate.needs_bf16_queries || q_dtype == DType::bf16))
      return &candidate;
  }
  return nullptr;
}

const dense::KernelRow* find_tiles(const TileWish& wish) {
  if (wish.q_dtype == DType::bf16 && wish.kv_dtype == DType::i8 && wish.int8_products)
    return wish.emulated ? &kAmxEmulatedByteRow : &kAmxByteRow;
  if (!wish.emulated) return find(simd::Isa::amx, wish.q_dtype, wish.kv_dtype);
  for (const dense::KernelRow& candidate : kAmxEmulatedRows)
    if (candidate.kv_dtype == wish.kv_dtype && wish.q_dtype == DType::bf16) return &candidate;
  return find(simd::Isa::scalar, wish.q_dtype, wish.kv_dtype);
}

}  // namespace attune::kernels::paged_decode
