#include "cache/state_pool.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/join.hpp"

namespace attune::cache {

std::span<std::byte> StatePool::Layer::recurrent_row(std::int32_t slot) {
  const auto bytes = static_cast<std::size_t>(shape.recurrent_bytes());
  return {recurrent_memory.data() + static_cast<std::size_t>(slot) * bytes, bytes};
}

std::span<std::byte> StatePool::Layer::conv_row(std::int32_t slot) {
  const auto bytes = static_cast<std::size_t>(shape.conv_bytes());
  return {conv_memory.data() + static_cast<std::size_t>(slot) * bytes, bytes};
}

Result<StatePool> StatePool::make(std::span<const StateShape> shapes, std::int32_t num_slots) {
  if (num_slots < 0)
    return invalid_argument(base::join("num_slots is ", num_slots, "; wanted at least 0"));
  StatePool pool;
  for (const StateShape& shape : shapes)
    pool.bytes_per_slot_ += shape.recurrent_bytes() + shape.conv_bytes();
  try {
    pool.held_.assign(static_cast<std::size_t>(num_slots), false);
    for (std::int32_t slot = num_slots; slot-- > 0;) pool.free_.push_back(slot);
    for (const StateShape& shape : shapes) {
      Layer layer;
      layer.shape = shape;
      layer.recurrent_memory.resize(static_cast<std::size_t>(num_slots * shape.recurrent_bytes()));
      layer.conv_memory.resize(static_cast<std::size_t>(num_slots * shape.conv_bytes()));
      if (shape.heads > 0)
        layer.recurrent = TensorView::dense(layer.recurrent_memory.data(), DType::f32,
                                            {num_slots, shape.heads, shape.dim_v, shape.dim_k});
      if (shape.conv_channels > 0)
        layer.conv = TensorView::dense(layer.conv_memory.data(), shape.conv_dtype,
                                       {num_slots, shape.conv_channels, shape.conv_history});
      pool.layers_.push_back(std::move(layer));
    }
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::out_of_memory,
                  base::join("wanted ", pool.bytes_per_slot_ * num_slots, " bytes for ", num_slots,
                             " recurrent states; ask for fewer slots"));
  }
  return pool;
}

Result<std::int32_t> StatePool::allocate() {
  if (free_.empty())
    return Status(StatusCode::out_of_pages,
                  base::join("all ", num_slots(),
                             " recurrent-state slots are held; wait for a request to end"));
  const std::int32_t slot = free_.back();
  free_.pop_back();
  held_[static_cast<std::size_t>(slot)] = true;
  zero(slot);
  return slot;
}

Status StatePool::release(std::int32_t slot) {
  if (Status s = check_held(slot); !s.ok()) return s;
  held_[static_cast<std::size_t>(slot)] = false;
  free_.push_back(slot);
  return {};
}

Status StatePool::copy(std::int32_t from, std::int32_t to) {
  if (Status s = check_held(from); !s.ok()) return s;
  if (Status s = check_held(to); !s.ok()) return s;
  if (from == to) return {};
  for (Layer& layer : layers_) {
    std::ranges::copy(layer.recurrent_row(from), layer.recurrent_row(to).begin());
    std::ranges::copy(layer.conv_row(from), layer.conv_row(to).begin());
  }
  return {};
}

Result<StateSnapshot> StatePool::snapshot(std::int32_t slot) const {
  if (Status s = check_held(slot); !s.ok()) return s;
  StateSnapshot snapshot;
  snapshot.bytes.reserve(static_cast<std::size_t>(bytes_per_slot_));
  auto& self = const_cast<StatePool&>(*this);  // the rows are only read
  for (Layer& layer : self.layers_) {
    const auto recurrent = layer.recurrent_row(slot);
    const auto conv = layer.conv_row(slot);
    snapshot.bytes.insert(snapshot.bytes.end(), recurrent.begin(), recurrent.end());
    snapshot.bytes.insert(snapshot.bytes.end(), conv.begin(), conv.end());
  }
  return snapshot;
}

Status StatePool::restore(std::int32_t slot, const StateSnapshot& snapshot) {
  if (Status s = check_held(slot); !s.ok()) return s;
  if (static_cast<std::int64_t>(snapshot.bytes.size()) != bytes_per_slot_)
    return invalid_argument(base::join("a snapshot of ", snapshot.bytes.size(),
                                       " bytes is of another model: a slot has ", bytes_per_slot_));
  const std::byte* from = snapshot.bytes.data();
  for (Layer& layer : layers_) {
    for (const std::span<std::byte> row : {layer.recurrent_row(slot), layer.conv_row(slot)}) {
      std::copy_n(from, row.size(), row.data());
      from += row.size();
    }
  }
  return {};
}

Status StatePool::check_held(std::int32_t slot) const {
  if (slot < 0 || slot >= num_slots())
    return invalid_argument(
        base::join("state slot ", slot, " does not exist; the pool has ", num_slots()));
  if (!held_[static_cast<std::size_t>(slot)])
    return invalid_argument(base::join("state slot ", slot, " is not held by any request"));
  return {};
}

void StatePool::zero(std::int32_t slot) {
  for (Layer& layer : layers_) {
    std::ranges::fill(layer.recurrent_row(slot), std::byte{0});
    std::ranges::fill(layer.conv_row(slot), std::byte{0});
  }
}

}  // namespace attune::cache
