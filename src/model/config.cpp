#include "model/config.hpp"

namespace attune::model {

std::string_view name(AttentionLayerKind kind) {
  switch (kind) {
    case AttentionLayerKind::full: return "full";
    case AttentionLayerKind::sliding: return "sliding";
    case AttentionLayerKind::chunked: return "chunked";
    case AttentionLayerKind::mla: return "mla";
    case AttentionLayerKind::sparse_mla: return "sparse_mla";
    case AttentionLayerKind::dsv4: return "dsv4";
    case AttentionLayerKind::minimax_sparse: return "minimax_sparse";
    case AttentionLayerKind::dual_chunk: return "dual_chunk";
    case AttentionLayerKind::cross: return "cross";
    case AttentionLayerKind::encoder: return "encoder";
  }
  return "?";
}

}  // namespace attune::model
