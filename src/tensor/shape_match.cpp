#include "tensor/shape_match.hpp"

#include <array>
#include <cstddef>
#include <string>

#include "base/join.hpp"

namespace attune::tensor {
namespace {

using base::join;

std::span<const std::int64_t> shape_of(const TensorView& view) {
  return {view.shape.data(), static_cast<std::size_t>(view.rank)};
}

/// The offset of the last element plus one, or -1 if it does not fit 62 bits.
std::int64_t extent(const TensorView& view) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 58;
  std::int64_t last = 0;
  for (int i = 0; i < view.rank; ++i) {
    const auto n = static_cast<std::size_t>(i);
    const std::int64_t steps = view.shape[n] - 1;
    if (steps > 0 && view.stride[n] > (kLimit - last) / steps) return -1;
    last += steps * view.stride[n];
  }
  return last + 1;
}

/// In order of stride, each dimension must step over the whole of the smaller ones.
bool overlaps_itself(const TensorView& view) {
  std::int64_t covered = 1;
  std::array<bool, TensorView::kMaxRank> done{};
  for (int round = 0; round < view.rank; ++round) {
    std::size_t least = TensorView::kMaxRank;
    for (std::size_t i = 0; i < static_cast<std::size_t>(view.rank); ++i)
      if (!done[i] && view.shape[i] > 1 &&
          (least == TensorView::kMaxRank || view.stride[i] < view.stride[least]))
        least = i;
    if (least == TensorView::kMaxRank) return false;
    done[least] = true;
    if (view.stride[least] < covered) return true;
    covered += (view.shape[least] - 1) * view.stride[least];
  }
  return false;
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] == kAnySize ? "*" : std::to_string(shape[i]);
  }
  return text + "]";
}

Status match(const TensorView& view, const Wanted& wanted) {
  if (view.rank < 0 || view.rank > TensorView::kMaxRank)
    return invalid_argument(
        join(wanted.name, ": rank ", view.rank, " is not between 0 and ", TensorView::kMaxRank));
  const auto have = shape_of(view);
  bool fits = have.size() == wanted.shape.size();
  bool empty = false;
  for (std::size_t i = 0; fits && i < have.size(); ++i) {
    fits = have[i] >= 0 && (wanted.shape[i] == kAnySize || wanted.shape[i] == have[i]);
    empty = empty || have[i] == 0;
  }
  if (!fits)
    return invalid_argument(join(wanted.name, ": want shape ", shape_text(wanted.shape), ", have ",
                                 view.defined() ? shape_text(have) : "no tensor"));
  if (view.dtype != wanted.dtype)
    return invalid_argument(
        join(wanted.name, ": want ", name(wanted.dtype), ", have ", name(view.dtype)));
  if (empty) return {};
  if (!view.defined())
    return invalid_argument(
        join(wanted.name, ": want ", shape_text(wanted.shape), " elements, have a null pointer"));
  const std::size_t size = size_of(view.dtype);
  if (reinterpret_cast<std::uintptr_t>(view.data) % size != 0)
    return invalid_argument(
        join(wanted.name, ": the pointer is not aligned to its ", size, "-byte elements"));
  for (std::size_t i = 0; i < have.size(); ++i)
    if (have[i] > 1 && view.stride[i] < 0)
      return invalid_argument(join(wanted.name, ": stride ", view.stride[i], " of dimension ", i,
                                   " is negative; copy the tensor"));
  if (!have.empty() && have.back() > 1 && view.stride[have.size() - 1] != 1)
    return invalid_argument(join(wanted.name, ": the innermost stride must be 1, have ",
                                 view.stride[have.size() - 1], "; copy the tensor"));
  if (extent(view) < 0)
    return invalid_argument(join(wanted.name, ": strides reach beyond the address space"));
  if (wanted.written && overlaps_itself(view))
    return invalid_argument(
        join(wanted.name, ": strides make elements share an address, but it is written"));
  return {};
}

}  // namespace attune::tensor
