#include "backends/shared/cuda/card.hpp"

#include <cuda_runtime_api.h>

#include "base/cuda/status.hpp"
#include "base/join.hpp"

namespace attune::backends::shared::cuda {
namespace {

using device::cuda::CardFacts;

Result<CardFacts> enter(const BackendContext& context, const CardFacts& card) {
  const int index = context.device.index;
  if (Status s = base::cuda::call_status(cudaSetDevice(index), "cudaSetDevice"); !s.ok()) return s;
  return card;
}

Status refusal(std::string_view backend, std::string_view wanted, const CardFacts& card) {
  return unsupported(base::join(backend, " wants compute capability ", wanted, ", have ",
                                card.sm / 10, ".", card.sm % 10));
}

}  // namespace

Result<CardFacts> enter_card(std::string_view backend, const BackendContext& context) {
  const auto card = device::cuda::card_facts(context.device.index);
  if (!card.ok()) return card.status();
  if (card->sm < 80) return refusal(backend, "8.0 or newer", *card);
  return enter(context, *card);
}

Result<CardFacts> enter_hopper(std::string_view backend, const BackendContext& context) {
  const auto card = device::cuda::card_facts(context.device.index);
  if (!card.ok()) return card.status();
  if (card->sm != 90) return refusal(backend, "9.0", *card);
  return enter(context, *card);
}

}  // namespace attune::backends::shared::cuda
