#include "bench/runner.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bench/scene.hpp"

namespace attune::bench {
namespace {

void fill_rates(Row& row, const Case& c, const Ceilings& ceilings, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  row.ms = median * 1e3;
  row.ms_min = seconds.front() * 1e3;
  row.ms_max = seconds.back() * 1e3;
  row.tflops = c.flops() / median / 1e12;
  row.gbps = c.bytes() / median / 1e9;
  const double rate = c.spec.q_dtype == DType::f32 ? ceilings.f32_flops : ceilings.bf16_flops;
  const double compute = c.flops() / rate;
  const double memory = c.bytes() / ceilings.bytes_per_s;
  const double floor = std::max(compute, memory);
  row.percent_of_ceiling = 100.0 * floor / median;
  row.bound = floor < ceilings.latency_s ? Bound::latency
              : compute > memory         ? Bound::compute
                                         : Bound::memory;
}

}  // namespace

Result<Row> run_case(const Registry& registry, std::string_view backend, const Case& c,
                     const DeviceInfo& device, Machine& machine, const Ceilings& ceilings,
                     const RunOptions& options) {
  SelectionOptions wanted;
  (c.phase == Phase::prefill ? wanted.prefill : wanted.decode) = std::string(backend);
  wanted.page_size = is_linear(c.spec.variant) ? 0 : c.page_size;
  wanted.kv_dtype = c.spec.kv_dtype;
  ModelQuery query;
  LayerGroup& group = query.groups.emplace_back();
  group.layers.push_back(0);
  group.kind = name(c.spec.variant);
  group.spec = c.spec;
  const Result<Selection> chosen = registry.select(query, device, wanted);
  if (!chosen.ok()) return chosen.status();
  const KvLayout layout = chosen->groups[0].kv_layout.value_or(KvLayout::nhd);
  Result<std::unique_ptr<Backend>> made = registry.make(backend, {.spec = c.spec,
                                                                  .device = device,
                                                                  .page_size = c.page_size,
                                                                  .kv_layout = layout,
                                                                  .executor = machine.executor()});
  if (!made.ok()) return made.status();

  const auto scene = Scene::make(c, layout, machine);
  if (!scene.ok()) return scene.status();
  const WorkspaceSize size = (*made)->workspace_size((*scene)->bounds());
  const auto device_memory = machine.allocate(size.device_bytes);
  if (!device_memory.ok()) return device_memory.status();
  const auto host_memory = machine.allocate_host(size.host_bytes);
  if (!host_memory.ok()) return host_memory.status();
  const Result<PlanHandle> plan = (*made)->plan((*scene)->batch(),
                                                {.device = device_memory->get(),
                                                 .device_bytes = size.device_bytes,
                                                 .host = host_memory->get(),
                                                 .host_bytes = size.host_bytes},
                                                machine.stream());
  if (!plan.ok()) return plan.status();
  const LayerCall call = (*scene)->call();
  const auto run = [&](Stream stream) { return (*made)->run(**plan, call, stream); };
  // Untimed: pages are touched, code is read.
  if (Status s = run(machine.stream()); !s.ok()) return s;
  Result<std::vector<double>> seconds = machine.time(run, options);
  if (!seconds.ok()) return seconds.status();
  Row row{.case_name = c.name,
          .backend = std::string(backend),
          .device = std::string(name(device.kind))};
  fill_rates(row, c, ceilings, std::move(*seconds));
  return row;
}

}  // namespace attune::bench
