#include "model/cuda/cublaslt.hpp"

#include <dlfcn.h>

#include <string>

namespace attune::model::cuda {
namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so"};

template <class Function>
bool find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr;
}

}  // namespace

Result<CublasLt> CublasLt::open() {
  void* library = nullptr;
  for (const char* file : kNames) {
    library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr)
    return Status(StatusCode::device_error,
                  "libcublasLt.so.13 was not found: matrix products on the GPU need cuBLAS 13; "
                  "install the CUDA "
                  "toolkit's libcublas or add its folder to LD_LIBRARY_PATH, or use --device cpu");
  CublasLt lt;
  const bool complete = find(library, "cublasLtCreate", lt.create) &&
                        find(library, "cublasLtDestroy", lt.destroy) &&
                        find(library, "cublasLtMatmul", lt.matmul) &&
                        find(library, "cublasLtMatmulDescCreate", lt.desc_create) &&
                        find(library, "cublasLtMatmulDescDestroy", lt.desc_destroy) &&
                        find(library, "cublasLtMatmulDescSetAttribute", lt.desc_set) &&
                        find(library, "cublasLtMatrixLayoutCreate", lt.layout_create) &&
                        find(library, "cublasLtMatrixLayoutSetAttribute", lt.layout_set) &&
                        find(library, "cublasLtMatrixLayoutDestroy", lt.layout_destroy) &&
                        find(library, "cublasLtMatmulPreferenceCreate", lt.preference_create) &&
                        find(library, "cublasLtMatmulPreferenceDestroy", lt.preference_destroy) &&
                        find(library, "cublasLtMatmulPreferenceSetAttribute", lt.preference_set) &&
                        find(library, "cublasLtMatmulAlgoGetHeuristic", lt.heuristic) &&
                        find(library, "cublasLtGetStatusString", lt.status_string);
  if (!complete)
    return Status(StatusCode::device_error,
                  std::string("libcublasLt lacks a symbol of version 13: ") + dlerror());
  return lt;
}

}  // namespace attune::model::cuda
