#include "kernels/linear/sm90/instances.hpp"
#include "kernels/linear/sm90/launch.hpp"
#include "kernels/linear/sm90/scan.cuh"

namespace attune::kernels::linear::sm90 {
namespace {

struct Row {
  Form form;
  int key_columns;
  int slice;
  PromptKernel kernel;
};

template <Form kForm, int KeyColumns, int Slice>
Row row() {
  constexpr int kGroups = Slice / kNarrowSlice;
  using Kernel = Scan<kForm, KeyColumns, kGroups>;
  return {kForm,
          KeyColumns,
          Slice,
          {&scan_kernel<kForm, KeyColumns, kGroups>, Kernel::kThreads,
           sizeof(typename Kernel::Shared)}};
}

/// Of keys of 256 columns two warpgroups' states leave no room in the register file.
struct Rows {
  Row rows[7] = {
      row<Form::delta, 128, kNarrowSlice>(),
      row<Form::delta, 128, kWideSlice>(),
      row<Form::delta_by_channel, 128, kNarrowSlice>(),
      row<Form::delta_by_channel, 128, kWideSlice>(),
      row<Form::plain, 128, kNarrowSlice>(),
      row<Form::plain, 128, kWideSlice>(),
      row<Form::plain, 256, kNarrowSlice>(),
  };
};

Form form_of(Family family) {
  if (family == Family::gdn) return Form::delta;
  return family == Family::kda ? Form::delta_by_channel : Form::plain;
}

}  // namespace

PromptKernel scan_of(Family family, int key_columns, int slice) {
  for (const Row& r : Rows{}.rows)
    if (r.form == form_of(family) && r.key_columns == key_columns && r.slice == slice)
      return r.kernel;
  return {};
}

void each_scan(void (*visit)(const PromptKernel& kernel, void* context), void* context) {
  for (const Row& r : Rows{}.rows) visit(r.kernel, context);
}

}  // namespace attune::kernels::linear::sm90
