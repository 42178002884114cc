// Where a launch reads keys and values: the counterpart of outputs.hpp.
#pragma once

#include <cstdint>

#include <attune/backend.hpp>

#include "attention/paged_kv.hpp"

namespace attune::backends::shared::cuda {

/// A call's cache as kernels take it, but for the indices.
inline attention::PagedKv cache_keys(const LayerCall& call, KvLayout layout,
                                     std::int32_t page_size) {
  const int token = layout == KvLayout::hnd ? 2 : 1;
  const int head = 3 - token;
  attention::PagedKv kv;
  kv.k = call.k_cache.data;
  kv.v = call.v_cache.data;
  kv.k_page_stride = call.k_cache.stride[0];
  kv.k_token_stride = call.k_cache.stride[token];
  kv.k_head_stride = call.k_cache.stride[head];
  kv.v_page_stride = call.v_cache.stride[0];
  kv.v_token_stride = call.v_cache.stride[token];
  kv.v_head_stride = call.v_cache.stride[head];
  kv.page_size = page_size;
  return kv;
}

/// A call's ragged keys, as pages of one token. To whom all rows are one page, the token strides are
/// those between rows, too.
inline attention::PagedKv ragged_keys(const LayerCall& call) {
  attention::PagedKv kv;
  kv.k = call.k.data;
  kv.v = call.v.data;
  kv.k_page_stride = kv.k_token_stride = call.k.stride[0];
  kv.k_head_stride = call.k.stride[1];
  kv.v_page_stride = kv.v_token_stride = call.v.stride[0];
  kv.v_head_stride = call.v.stride[1];
  return kv;
}

/// Into the parameters of a kernel that has keys and their strides by the same names.
template <class Params>
void set_keys(const attention::PagedKv& kv, Params& p) {
  p.k = kv.k;
  p.v = kv.v;
  p.k_page_stride = kv.k_page_stride;
  p.k_token_stride = kv.k_token_stride;
  p.k_head_stride = kv.k_head_stride;
  p.v_page_stride = kv.v_page_stride;
  p.v_token_stride = kv.v_token_stride;
  p.v_head_stride = kv.v_head_stride;
}

}  // namespace attune::backends::shared::cuda
