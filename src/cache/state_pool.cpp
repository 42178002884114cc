#include "cache/state_pool.hpp"

#include <cstring>
#include <new>
#include <utility>

#include "base/join.hpp"

namespace attune::cache {

namespace {

std::span<std::byte> row_of(const std::shared_ptr<void>& memory, std::int32_t slot,
                            std::int64_t row_bytes) {
  const auto bytes = static_cast<std::size_t>(row_bytes);
  if (bytes == 0) return {};
  return {static_cast<std::byte*>(memory.get()) + static_cast<std::size_t>(slot) * bytes, bytes};
}

}  // namespace

StateMemory host_state_memory() {
  return {
      .allocate = allocate_host_memory,
      .clear = [](void* to, std::size_t bytes) { std::memset(to, 0, bytes); },
      .copy = [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); },
      .upload = [](void* to, const void* host, std::size_t bytes) { std::memcpy(to, host, bytes); },
      .download = [](void* host, const void* from, std::size_t bytes) -> Status {
        std::memcpy(host, from, bytes);
        return {};
      }};
}

std::span<std::byte> StatePool::Layer::recurrent_row(std::int32_t slot) const {
  return row_of(recurrent_memory, slot, shape.recurrent_bytes());
}

std::span<std::byte> StatePool::Layer::conv_row(std::int32_t slot) const {
  return row_of(conv_memory, slot, shape.conv_bytes());
}

Result<StatePool> StatePool::make(std::span<const StateShape> shapes, std::int32_t num_slots,
                                  StateMemory memory) {
  if (num_slots < 0)
    return invalid_argument(base::join("num_slots is ", num_slots, "; wanted at least 0"));
  StatePool pool;
  pool.memory_ = std::move(memory);
  for (const StateShape& shape : shapes)
    pool.bytes_per_slot_ += shape.recurrent_bytes() + shape.conv_bytes();
  const auto allocate = [&](std::int64_t bytes, std::shared_ptr<void>& to) -> Status {
    if (bytes == 0) return {};
    Result<std::shared_ptr<void>> made = pool.memory_.allocate(static_cast<std::size_t>(bytes));
    if (!made.ok())
      return {made.status().code(),
              base::join("wanted ", pool.bytes_per_slot_ * num_slots, " bytes for ", num_slots,
                         " recurrent states; ask for fewer slots (", made.status().text(), ")")};
    to = std::move(*made);
    return {};
  };
  try {
    pool.held_.assign(static_cast<std::size_t>(num_slots), false);
    for (std::int32_t slot = num_slots; slot-- > 0;) pool.free_.push_back(slot);
    for (const StateShape& shape : shapes) {
      Layer layer;
      layer.shape = shape;
      if (Status s = allocate(num_slots * shape.recurrent_bytes(), layer.recurrent_memory); !s.ok())
        return s;
      if (Status s = allocate(num_slots * shape.conv_bytes(), layer.conv_memory); !s.ok()) return s;
      if (shape.heads > 0)
        layer.recurrent = TensorView::dense(layer.recurrent_memory.get(), DType::f32,
                                            {num_slots, shape.heads, shape.dim_v, shape.dim_k});
      if (shape.conv_channels > 0)
        layer.conv = TensorView::dense(layer.conv_memory.get(), shape.conv_dtype,
                                       {num_slots, shape.conv_channels, shape.conv_history});
      pool.layers_.push_back(std::move(layer));
    }
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::out_of_memory,
                  base::join("no memory to keep the books of ", num_slots, " recurrent states"));
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
  for (const Layer& layer : layers_) {
    const auto move = [&](std::span<std::byte> row, std::span<std::byte> source) {
      if (!row.empty()) memory_.copy(row.data(), source.data(), row.size());
    };
    move(layer.recurrent_row(to), layer.recurrent_row(from));
    move(layer.conv_row(to), layer.conv_row(from));
  }
  return {};
}

Result<StateSnapshot> StatePool::snapshot(std::int32_t slot) const {
  if (Status s = check_held(slot); !s.ok()) return s;
  StateSnapshot snapshot;
  snapshot.bytes.resize(static_cast<std::size_t>(bytes_per_slot_));
  std::byte* to = snapshot.bytes.data();
  for (const Layer& layer : layers_) {
    for (const std::span<std::byte> row : {layer.recurrent_row(slot), layer.conv_row(slot)}) {
      if (row.empty()) continue;
      if (Status s = memory_.download(to, row.data(), row.size()); !s.ok()) return s;
      to += row.size();
    }
  }
  return snapshot;
}

Status StatePool::restore(std::int32_t slot, const StateSnapshot& snapshot) {
  if (Status s = check_held(slot); !s.ok()) return s;
  if (static_cast<std::int64_t>(snapshot.bytes.size()) != bytes_per_slot_)
    return invalid_argument(base::join("a snapshot of ", snapshot.bytes.size(),
                                       " bytes is of another model: a slot has ", bytes_per_slot_));
  const std::byte* from = snapshot.bytes.data();
  for (const Layer& layer : layers_) {
    for (const std::span<std::byte> row : {layer.recurrent_row(slot), layer.conv_row(slot)}) {
      if (row.empty()) continue;
      memory_.upload(row.data(), from, row.size());
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
  for (const Layer& layer : layers_)
    for (const std::span<std::byte> row : {layer.recurrent_row(slot), layer.conv_row(slot)})
      if (!row.empty()) memory_.clear(row.data(), row.size());
}

}  // namespace attune::cache
