#include "model/cuda/cuda_products.hpp"

#include <string>
#include <utility>

#include "base/join.hpp"

namespace attune::model::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what NVIDIA advises for Hopper

cudaDataType_t type_of(DType t) { return t == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

}  // namespace

Result<std::unique_ptr<Products>> Products::make() {
  Result<CublasLt> lt = CublasLt::open();
  if (!lt.ok()) return lt.status();
  std::unique_ptr<Products> products(new Products(*lt));
  if (Status s = products->status_of(lt->create(&products->handle_), "cublasLtCreate"); !s.ok())
    return s;
  Result<device::cuda::Memory> workspace =
      device::cuda::Memory::allocate(device::cuda::MemoryKind::device, kWorkspaceBytes);
  if (!workspace.ok()) return workspace.status();
  products->workspace_ = std::move(*workspace);
  return products;
}

Products::~Products() {
  for (auto& [key, compiled] : compiled_) destroy(compiled);
  if (handle_ != nullptr) (void)lt_.destroy(handle_);
}

void Products::destroy(Compiled& c) const {
  if (c.y != nullptr) (void)lt_.layout_destroy(c.y);
  if (c.x != nullptr) (void)lt_.layout_destroy(c.x);
  if (c.w != nullptr) (void)lt_.layout_destroy(c.w);
  if (c.operation != nullptr) (void)lt_.desc_destroy(c.operation);
}

Status Products::status_of(cublasStatus_t status, std::string_view what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return {StatusCode::device_error, base::join(what, ": ", lt_.status_string(status))};
}

Status Products::set_batch(const Product& p, const Compiled& c) const {
  const auto count = static_cast<std::int32_t>(p.batch);
  for (const auto& [layout, stride] :
       {std::pair(c.w, p.w_batch), std::pair(c.x, p.x_batch), std::pair(c.y, p.y_batch)}) {
    Status s =
        status_of(lt_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                  "cublasLtMatrixLayoutSetAttribute");
    if (s.ok())
      s = status_of(lt_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                   sizeof stride),
                    "cublasLtMatrixLayoutSetAttribute");
    if (!s.ok()) return s;
  }
  return {};
}

Result<Products::Compiled> Products::compile(const Product& p) const {
  // cuBLAS counts columns first: row-major x[m, k] is its matrix [k, m], and y = x wᵀ is yᵀ[n, m] =
  // w[n, k] · xᵀ[k, m].
  Compiled c;
  const cublasOperation_t transpose = CUBLAS_OP_T;
  const auto dimension = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  Status s = status_of(lt_.desc_create(&c.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                       "cublasLtMatmulDescCreate");
  if (s.ok())
    s = status_of(
        lt_.desc_set(c.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
        "cublasLtMatmulDescSetAttribute");
  if (s.ok())
    s = status_of(lt_.layout_create(&c.w, type_of(p.dtype), dimension(p.k), dimension(p.n), p.k),
                  "cublasLtMatrixLayoutCreate of w");
  if (s.ok())
    s = status_of(
        lt_.layout_create(&c.x, type_of(p.dtype), dimension(p.k), dimension(p.m), p.x_row),
        "cublasLtMatrixLayoutCreate of x");
  if (s.ok())
    s = status_of(
        lt_.layout_create(&c.y, type_of(p.y_dtype), dimension(p.n), dimension(p.m), p.y_row),
        "cublasLtMatrixLayoutCreate of y");
  if (s.ok() && p.batch > 1) s = set_batch(p, c);
  cublasLtMatmulPreference_t preference = nullptr;
  if (s.ok()) s = status_of(lt_.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  const std::size_t bytes = kWorkspaceBytes;
  if (s.ok())
    s = status_of(lt_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                     sizeof bytes),
                  "cublasLtMatmulPreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  if (s.ok())
    s = status_of(
        lt_.heuristic(handle_, c.operation, c.w, c.x, c.y, c.y, preference, 1, &found, &count),
        "cublasLtMatmulAlgoGetHeuristic");
  if (preference != nullptr) (void)lt_.preference_destroy(preference);
  if (s.ok() && count == 0)
    s = {StatusCode::device_error, base::join("cuBLASLt has no product of [", p.m, ", ", p.k,
                                              "] and [", p.n, ", ", p.k, "] in ", name(p.dtype))};
  if (!s.ok()) {
    destroy(c);
    return s;
  }
  c.algorithm = found.algo;
  return c;
}

Status Products::multiply(const Product& p, cudaStream_t stream) {
  if (p.m == 0 || p.n == 0) return {};
  const Key key{p.m,
                p.n,
                p.k,
                p.x_row,
                p.y_row,
                p.batch,
                p.x_batch,
                p.w_batch,
                p.y_batch,
                static_cast<std::int64_t>(p.dtype),
                static_cast<std::int64_t>(p.y_dtype)};
  auto at = compiled_.find(key);
  if (at == compiled_.end()) {
    Result<Compiled> compiled = compile(p);
    if (!compiled.ok()) return compiled.status();
    at = compiled_.emplace(key, *compiled).first;
  }
  const Compiled& c = at->second;
  const float one = 1.0f;
  const float beta = p.accumulate ? 1.0f : 0.0f;
  return status_of(lt_.matmul(handle_, c.operation, &one, p.w, c.w, p.x, c.x, &beta, p.y, c.y, p.y,
                              c.y, &c.algorithm, workspace_.data(), workspace_.bytes(), stream),
                   "cublasLtMatmul");
}

}  // namespace attune::model::cuda
