#include "model/attention_call.hpp"

#include <cstddef>

namespace attune::model {

Status attend(const Step& step, const AttentionTensors& t) {
  const GroupStep& group = step.input.groups[static_cast<std::size_t>(t.group)];
  const auto kv_layer = static_cast<std::size_t>(t.kv_layer);
  const bool writes = t.k.defined();
  const Stream stream = step.ops.stream();
  for (const AttentionPart& part : group.parts) {
    LayerCall call;
    call.layer = t.layer;
    call.q = rows(t.q, part.first_row, part.num_rows);
    call.o = rows(t.o, part.first_row, part.num_rows);
    call.sinks = t.sinks;
    if (writes) {
      call.k = rows(t.k, part.first_row, part.num_rows);
      call.v = rows(t.v, part.first_row, part.num_rows);
    }
    if (t.cached) {
      call.k_cache = step.input.kv->k(kv_layer);
      call.v_cache = step.input.kv->v(kv_layer);
      if (!step.input.kv_scales.empty()) {
        const LayerKvScales& scales = step.input.kv_scales[kv_layer];
        call.k_scale_per_head = scales.k;
        call.v_scale_per_head = scales.v;
      }
    }
    if (t.cached && writes) {
      call.slot_mapping = group.slot_mapping.subspan(static_cast<std::size_t>(part.first_row),
                                                     static_cast<std::size_t>(part.num_rows));
      if (Status s = part.backend->append_kv(call, stream); !s.ok()) return s;
    }
    if (Status s = part.backend->run(*part.plan, call, stream); !s.ok()) return s;
  }
  return {};
}

}  // namespace attune::model
