#include "model/rope_tables.hpp"

#include <cmath>
#include <utility>

#include "model/rope_frequencies.hpp"

namespace attune::model {

int RopeTables::rope_index(const RopeConfig& rope, const PositionMap& map) {
  if (rope.type == RopeType::none || rope.rotary_dim == 0) return -1;
  for (std::size_t i = 0; i < ropes_.size(); ++i)
    if (ropes_[i].config == rope && ropes_[i].map == map) return static_cast<int>(i);
  ropes_.push_back(
      {.config = rope, .map = map, .pairs = rope.rotary_dim / 2, .factor = 1.0f, .inv_freq = {}});
  return static_cast<int>(ropes_.size()) - 1;
}

int RopeTables::temperature_index(const AttentionConfig& attention) {
  const std::int64_t original = attention.dual_chunk.original_context;
  const bool sharpens = original > 0 && original < context_limit_;
  if (attention.temperature_scale == 0 && !sharpens) return -1;
  const Temperature wanted{.scale = attention.temperature_scale,
                           .floor = attention.temperature_floor,
                           .original_context = sharpens ? original : 0,
                           .head_dim = attention.head_dim_qk};
  for (std::size_t i = 0; i < temperatures_.size(); ++i)
    if (temperatures_[i] == wanted) return static_cast<int>(i);
  temperatures_.push_back(wanted);
  return static_cast<int>(temperatures_.size()) - 1;
}

/// Of dual chunk attention, YaRN's mscale, squared: once for the query, once for the keys, which
/// stay as they are so that they serve sequences of every length.
float RopeTables::Temperature::at(std::int32_t position) const {
  if (original_context > 0) {
    const double length = position + 1.0;
    const double mscale = 0.1 * std::log(length / static_cast<double>(original_context)) + 1.0;
    return static_cast<float>(mscale > 1.0 ? mscale * mscale : 1.0);
  }
  const double steps = std::floor((position + 1.0) / floor);
  return static_cast<float>(1.0 + scale * std::log(steps + 1.0));
}

Status RopeTables::upload(Ops& ops) {
  for (Rope& rope : ropes_) {
    const RopeFrequencies made = rope_frequencies(rope.config, context_length_, context_limit_);
    rope.pairs = static_cast<std::int64_t>(made.inv_freq.size());
    rope.factor = made.attention_factor;
    const std::size_t bytes = made.inv_freq.size() * sizeof(float);
    Result<Buffer> memory = ops.allocate(bytes);
    if (!memory.ok()) return memory.status();
    rope.inv_freq = std::move(*memory);
    ops.upload(rope.inv_freq.data(), made.inv_freq.data(), bytes);
  }
  positions_.resize(ropes_.size());
  cos_sin_.resize(ropes_.size());
  query_scale_.resize(temperatures_.size());
  return {};
}

void RopeTables::take(StepMemory& memory, std::int64_t num_tokens) {
  for (std::size_t i = 0; i < ropes_.size(); ++i)
    if (ropes_[i].map.period > 0) positions_[i] = memory.take(DType::i32, {num_tokens});
  for (std::size_t i = 0; i < ropes_.size(); ++i)
    cos_sin_[i] = memory.take(DType::f32, {num_tokens, 2 * ropes_[i].pairs});
  for (std::size_t i = 0; i < temperatures_.size(); ++i)
    query_scale_[i] = memory.take(DType::f32, {num_tokens, temperatures_[i].head_dim});
}

void RopeTables::upload_positions(Ops& ops, std::span<const std::int32_t> positions) const {
  // A factor on a whole query is a turn by no angle with a cosine of that factor: the same verb
  // serves, and every device has it.
  for (std::size_t i = 0; i < temperatures_.size(); ++i) {
    const Temperature& t = temperatures_[i];
    const auto pairs = static_cast<std::size_t>(t.head_dim) / 2;
    std::vector<float> table(positions.size() * 2 * pairs, 0.0f);
    for (std::size_t row = 0; row < positions.size(); ++row) {
      const float factor = t.at(positions[row]);
      for (std::size_t p = 0; p < pairs; ++p) table[row * 2 * pairs + p] = factor;
    }
    ops.upload(query_scale_[i].data, table.data(), table.size() * sizeof(float));
  }
  std::vector<std::int32_t> mapped(positions.size());
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    const PositionMap& map = ropes_[i].map;
    if (map.period == 0) continue;
    std::ranges::transform(positions, mapped.begin(), [&](auto p) { return map.of(p); });
    ops.upload(positions_[i].data, mapped.data(), mapped.size() * sizeof(std::int32_t));
  }
}

void RopeTables::fill(Ops& ops, const TensorView& device_positions) const {
  for (std::size_t i = 0; i < ropes_.size(); ++i)
    ops.rope_angles(ropes_[i].map.period > 0 ? positions_[i] : device_positions,
                    static_cast<const float*>(ropes_[i].inv_freq.data()), ropes_[i].pairs,
                    ropes_[i].factor, cos_sin_[i]);
}

}  // namespace attune::model
