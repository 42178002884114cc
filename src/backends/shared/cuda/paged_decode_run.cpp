#include "backends/shared/cuda/paged_decode_run.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "base/cuda/status.hpp"
#include "device/cuda/memory.hpp"
#include "device/cuda/usable_sms.hpp"

namespace attune::backends::shared::paged {
namespace {

namespace decode = kernels::paged_decode::sm80;
using device::cuda::native;

constexpr const char* kPlanCopy = "copying a plan to the device";

}  // namespace

Status upload(const PagedPlan& plan, Stream stream) {
  for (const plan::WorkspaceImage* image : {&plan.image, &plan.blocks, &plan.block_bits}) {
    if (image->bytes() == 0) continue;
    if (Status s = device::cuda::copy_to_device(image->place(), image->data(), image->bytes(),
                                                stream, kPlanCopy);
        !s.ok())
      return s;
  }
  return zero_counters(plan, stream);
}

Status zero_counters(const PagedPlan& plan, Stream stream) {
  return base::cuda::call_status(
      cudaMemsetAsync(plan.parts.counters, 0,
                      static_cast<std::size_t>(plan.parts.num_counters) * sizeof(std::int32_t),
                      native(stream)),
      kPlanCopy);
}

Status empty_mailboxes(const PagedPlan& plan, Stream stream) {
  if (!plan.sizes.mails) return {};
  const auto* end =
      reinterpret_cast<const std::byte*>(plan.parts.decode_mail_state + plan.parts.num_mail);
  auto* begin = reinterpret_cast<std::byte*>(plan.parts.decode_mail_o);
  return base::cuda::call_status(
      cudaMemsetAsync(begin, 0xff, static_cast<std::size_t>(end - begin), native(stream)),
      "emptying a plan's mailboxes");
}

decode::Params decode_params(const Setup& setup, const PagedPlan& plan, const LayerCall& call) {
  decode::Params p;
  fill_tensors(setup.spec, call, p);
  p.work = plan.parts.decode_work;
  p.chunks = plan.parts.chunks;
  p.partial_o = plan.parts.decode_o;
  p.partial_state = plan.parts.decode_state;
  p.claims = plan.parts.counters;
  p.arrivals = plan.parts.counters + 1;
  const plan::DecodeShape& shape = plan.sizes.shape;
  p.row_blocks = decode::FastDivisor(static_cast<std::uint32_t>(shape.row_blocks));
  p.rows = decode::FastDivisor(
      static_cast<std::uint32_t>(std::min(setup.decode->rows, setup.spec.gqa_group_size())));
  p.heads_per_cta = shape.heads_per_cta;
  p.units = decode::FastDivisor(static_cast<std::uint32_t>(shape.units));
  return p;
}

Status launch_decode(const Setup& setup, const PagedPlan& plan, decode::Params p, Stream stream) {
  p.page = decode::FastDivisor(static_cast<std::uint32_t>(p.kv.page_size));
  // Blocks that wait for one another must all run: not in a context of fewer SMs.
  if (plan.sizes.mails && !plan.beside &&
      device::cuda::usable_sms(plan.usable, stream, setup.num_sms) == setup.num_sms) {
    p.mail_o = plan.parts.decode_mail_o;
    p.mail_state = plan.parts.decode_mail_state;
  }
  const decode::Order order = plan.beside     ? decode::Order::beside
                              : setup.overlap ? decode::Order::settled
                                              : decode::Order::after;
  return decode::launch(*setup.decode, p, setup.decode_grid, setup.decode_block, order,
                        native(stream));
}

}  // namespace attune::backends::shared::paged
