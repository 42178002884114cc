// Matrix products on a GPU through cuBLASLt (layer model). A shape's algorithm is looked up once
// and kept, so that a step launches and nothing else, inside a captured graph too.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include <cuda_runtime_api.h>

#include <attune/status.hpp>
#include <attune/tensor.hpp>

#include "device/cuda/memory.hpp"
#include "model/cuda/cublaslt.hpp"

namespace attune::model::cuda {

/// y[m, n] (+)= x[m, k] * w[n, k]ᵀ. Rows are `*_row` elements apart. x and w share a dtype; y may
/// be fp32 instead. `batch` of them at once lie `*_batch` elements apart.
struct Product {
  const void* x = nullptr;
  const void* w = nullptr;
  void* y = nullptr;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t x_row = 0;
  std::int64_t y_row = 0;
  std::int64_t batch = 1;
  std::int64_t x_batch = 0;
  std::int64_t w_batch = 0;
  std::int64_t y_batch = 0;
  DType dtype = DType::bf16;
  DType y_dtype = DType::bf16;
  bool accumulate = false;
};

class Products {
 public:
  static Result<std::unique_ptr<Products>> make();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  Status multiply(const Product& product, cudaStream_t stream);

 private:
  struct Compiled {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t w = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t y = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };
  using Key = std::array<std::int64_t, 11>;

  explicit Products(const CublasLt& lt) : lt_(lt) {}
  Result<Compiled> compile(const Product& product) const;
  [[nodiscard]] Status set_batch(const Product& product, const Compiled& compiled) const;
  void destroy(Compiled& compiled) const;
  [[nodiscard]] Status status_of(cublasStatus_t status, std::string_view what) const;

  CublasLt lt_;
  cublasLtHandle_t handle_ = nullptr;
  device::cuda::Memory workspace_;
  std::map<Key, Compiled> compiled_;
};

}  // namespace attune::model::cuda
