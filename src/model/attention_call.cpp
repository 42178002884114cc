#include "model/attention_call.hpp"

#include <cstddef>

#include <attune/sparse_call.hpp>

namespace attune::model {
namespace {

SparseCall rows_of(const SparseCall& all, const AttentionPart& part) {
  return {.topk_indices = rows(all.topk_indices, part.first_row, part.num_rows),
          .index_q = rows(all.index_q, part.first_row, part.num_rows),
          .index_k = rows(all.index_k, part.first_row, part.num_rows)};
}

}  // namespace

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
    SparseCall sparse;
    if (t.sparse != nullptr) {
      sparse = rows_of(*t.sparse, part);
      sparse.index_cache = step.input.kv->index(kv_layer);
      call.sparse = &sparse;
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
