#include "tensor/kv_layout.hpp"

namespace attune::tensor {
namespace {

std::int64_t heads_page_bytes(const KvShape& shape, int head_dim) {
  return static_cast<std::int64_t>(shape.page_size) * shape.num_kv_heads * head_dim *
         static_cast<std::int64_t>(size_of(shape.dtype));
}

TensorView cache_view(void* data, const KvShape& shape, std::int64_t num_pages, int head_dim) {
  const std::int64_t tokens = shape.page_size;
  const std::int64_t heads = shape.num_kv_heads;
  switch (shape.layout) {
    case KvLayout::nhd:
      return TensorView::dense(data, shape.dtype, {num_pages, tokens, heads, head_dim});
    case KvLayout::hnd:
      return TensorView::dense(data, shape.dtype, {num_pages, heads, tokens, head_dim});
    case KvLayout::mla_latent: {
      TensorView view =
          TensorView::dense(data, shape.dtype, {num_pages, tokens, shape.head_dim_qk});
      view.shape[2] = head_dim;
      return view;
    }
    case KvLayout::mla_latent_fp8:
      return TensorView::dense(data, DType::u8, {num_pages, tokens, kMlaLatentFp8TokenBytes});
  }
  return {};
}

}  // namespace

std::int64_t k_page_bytes(const KvShape& shape) {
  if (shape.layout == KvLayout::mla_latent_fp8) return shape.page_size * kMlaLatentFp8TokenBytes;
  return heads_page_bytes(shape, shape.head_dim_qk);
}

std::int64_t v_page_bytes(const KvShape& shape) {
  return stores_v_apart(shape.layout) ? heads_page_bytes(shape, shape.head_dim_vo) : 0;
}

TensorView k_cache_view(void* data, const KvShape& shape, std::int64_t num_pages) {
  return cache_view(data, shape, num_pages, shape.head_dim_qk);
}

TensorView v_cache_view(void* data, const KvShape& shape, std::int64_t num_pages) {
  return cache_view(data, shape, num_pages, shape.head_dim_vo);
}

}  // namespace attune::tensor
