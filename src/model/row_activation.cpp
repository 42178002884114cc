#include "model/row_activation.hpp"

#include <attune/status.hpp>

namespace attune::model {

using kernels::ops::RowActivation;

RowActivation row_activation(Activation kind) {
  switch (kind) {
    case Activation::silu: return RowActivation::silu;
    case Activation::gelu: return RowActivation::gelu;
    case Activation::gelu_tanh: return RowActivation::gelu_tanh;
    case Activation::relu: return RowActivation::relu;
    case Activation::relu2: return RowActivation::relu2;
    case Activation::swiglu_oai: return RowActivation::swiglu_oai;
    case Activation::situ: break;
  }
  require(false, "this activation has no kernel; the loader refuses such a model");
  return RowActivation::silu;
}

}  // namespace attune::model
