#include "kernels/linear/sm90/instances.hpp"
#include "kernels/linear/sm90/launch.hpp"
#include "kernels/linear/sm90/scan_delta.cuh"
#include "kernels/linear/sm90/scan_plain.cuh"

namespace attune::kernels::linear::sm90 {
namespace {

struct Row {
  Family family;
  int key_columns;
  int slice;
  PromptKernel kernel;
};

template <Family family, int Slice>
Row delta_row() {
  constexpr bool kByChannel = family == Family::kda;
  constexpr int kGroups = Slice / kNarrowSlice;
  using Kernel = DeltaScan<kByChannel, kGroups>;
  return {
      family,
      Kernel::KeyColumns,
      Slice,
      {&delta_scan_kernel<kByChannel, kGroups>, Kernel::kThreads, sizeof(typename Kernel::Shared)}};
}

/// Of mamba2 and lightning.
template <int KeyColumns, int Slice>
Row plain_row() {
  constexpr int kGroups = Slice / kNarrowSlice;
  using Kernel = PlainScan<KeyColumns, kGroups>;
  return {
      Family::mamba2,
      KeyColumns,
      Slice,
      {&plain_scan_kernel<KeyColumns, kGroups>, Kernel::kThreads, sizeof(typename Kernel::Shared)}};
}

/// Of keys of 256 columns two warpgroups' states leave no room in the register file.
struct Rows {
  Row rows[7] = {
      delta_row<Family::gdn, kNarrowSlice>(), delta_row<Family::gdn, kWideSlice>(),
      delta_row<Family::kda, kNarrowSlice>(), delta_row<Family::kda, kWideSlice>(),
      plain_row<128, kNarrowSlice>(),         plain_row<128, kWideSlice>(),
      plain_row<256, kNarrowSlice>(),
  };
};

}  // namespace

PromptKernel scan_of(Family family, int key_columns, int slice) {
  if (family == Family::lightning) family = Family::mamba2;
  for (const Row& r : Rows{}.rows)
    if (r.family == family && r.key_columns == key_columns && r.slice == slice) return r.kernel;
  return {};
}

void each_scan(void (*visit)(const PromptKernel& kernel, void* context), void* context) {
  for (const Row& r : Rows{}.rows) visit(r.kernel, context);
}

}  // namespace attune::kernels::linear::sm90
