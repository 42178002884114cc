#include "kernels/probe/table.hpp"
#include "kernels/tile/amx.hpp"

namespace attune::kernels::probe {
namespace {

/// Four sums hide the latency of one product (52 cycles against 16 of throughput).
constexpr int kSums = 4;
constexpr double kFlopsPerProduct = 2.0 * 16 * 16 * 32;  ///< of bf16; int8 has twice as many

template <tile::Cells Of>
void multiply_tiles(std::int64_t rounds, float* sink) {
  tile::AmxTiles tiles;
  tiles.configure();
  tiles.zero<0>();
  tiles.zero<1>();
  tiles.zero<2>();
  tiles.zero<3>();
  tiles.zero<4>();
  tiles.zero<5>();
  tiles.zero<6>();
  tiles.zero<7>();
  for (std::int64_t n = 0; n < rounds; ++n) {
    tiles.multiply_add<Of, 0, 4, 6>();
    tiles.multiply_add<Of, 1, 4, 7>();
    tiles.multiply_add<Of, 2, 5, 6>();
    tiles.multiply_add<Of, 3, 5, 7>();
  }
  alignas(64) float sums[256];
  tiles.store<0>(sums, 64);
  tiles.release();
  *sink = sums[0];
}

}  // namespace

const ProductProbe kAmxProduct = {.instruction = "tdpbf16ps",
                                  .isa = simd::Isa::amx,
                                  .input = DType::bf16,
                                  .flops_per_round = kSums * kFlopsPerProduct,
                                  .run = &multiply_tiles<tile::Cells::bf16>};

const ProductProbe kAmxInt8Product = {.instruction = "tdpbssd",
                                      .isa = simd::Isa::amx,
                                      .input = DType::i8,
                                      .flops_per_round = 2.0 * kSums * kFlopsPerProduct,
                                      .run = &multiply_tiles<tile::Cells::int8>};

}  // namespace attune::kernels::probe
