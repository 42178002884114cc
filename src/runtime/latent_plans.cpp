#include "runtime/latent_plans.hpp"

#include <algorithm>
#include <limits>

#include <attune/validate.hpp>

namespace attune::runtime {

LatentForm LatentPlans::form_of(const BatchView& batch) const {
  const LatentWork work = latent_work(batch);
  if (!backends_.usable() || (work.prefix_keys > 0 && backends_.prefix == nullptr))
    return LatentForm::absorbed;
  if (options_.latent.form) return *options_.latent.form;
  return expanded_cost(config_, work, ops_.device()) < absorbed_cost(config_, work)
             ? LatentForm::expanded
             : LatentForm::absorbed;
}

Result<std::span<const model::ExpandedPart>> LatentPlans::plan(const BatchView& batch,
                                                               std::int64_t first_row) {
  parts_.clear();
  std::vector<Piece> pieces;
  for (std::int64_t i = 0; i < batch.batch_size(); ++i)
    pieces.push_back(
        {.request = i, .begin = batch.kv_len(i) - batch.qo_len(i), .end = batch.kv_len(i)});
  if (Status s = add(batch, first_row, pieces, *backends_.own); !s.ok()) return s;

  pieces.clear();
  std::int64_t room = options_.latent.chunk_tokens;
  const auto close = [&]() -> Status {
    if (pieces.empty()) return {};
    Status s = add(batch, first_row, pieces, *backends_.prefix);
    pieces.clear();
    room = options_.latent.chunk_tokens;
    return s;
  };
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    const std::int64_t prefix = batch.kv_len(i) - batch.qo_len(i);
    for (std::int64_t begin = 0; begin < prefix;) {
      const std::int64_t end = std::min(prefix, begin + room);
      pieces.push_back({.request = i, .begin = begin, .end = end});
      room -= end - begin;
      begin = end;
      if (room > 0) continue;
      if (Status s = close(); !s.ok()) return s;
    }
  }
  if (Status s = close(); !s.ok()) return s;
  return std::span<const model::ExpandedPart>(parts_);
}

Status LatentPlans::add(const BatchView& batch, std::int64_t first_row,
                        std::span<const Piece> pieces, Backend& backend) {
  if (parts_.size() == chunks_.size()) chunks_.emplace_back();
  Chunk& chunk = chunks_[parts_.size()];
  chunk.qo_indptr.assign(1, 0);
  chunk.kv_indptr.assign(1, 0);
  chunk.slots.clear();
  const std::int64_t first = pieces.front().request;
  for (const Piece& piece : pieces) {
    // Requests without a prefix stand between those that have one: they see nothing here.
    while (first + static_cast<std::int64_t>(chunk.qo_indptr.size()) - 1 <= piece.request) {
      const std::int64_t i = first + static_cast<std::int64_t>(chunk.qo_indptr.size()) - 1;
      chunk.qo_indptr.push_back(
          static_cast<std::int32_t>(chunk.qo_indptr.back() + batch.qo_len(i)));
      chunk.kv_indptr.push_back(chunk.kv_indptr.back());
    }
    const auto request = static_cast<std::size_t>(piece.request);
    const std::int32_t* const pages = batch.kv_indices.data() + batch.kv_indptr[request];
    for (std::int64_t key = piece.begin; key < piece.end; ++key) {
      const std::int64_t slot =
          std::int64_t{pages[key / batch.page_size]} * batch.page_size + key % batch.page_size;
      require(slot <= std::numeric_limits<std::int32_t>::max(), "slots of 31 bits");
      chunk.slots.push_back(static_cast<std::int32_t>(slot));
    }
    chunk.kv_indptr.back() += static_cast<std::int32_t>(piece.end - piece.begin);
  }
  const BatchView view{.form = BatchForm::extend,
                       .source = KvSource::ragged,
                       .qo_indptr = chunk.qo_indptr,
                       .kv_indptr = chunk.kv_indptr};
  if (Status s = reserve(chunk, view, backend); !s.ok()) return s;
  ops_.upload(chunk.device_slots.data(), chunk.slots.data(),
              chunk.slots.size() * sizeof(std::int32_t));
  const Workspace workspace{.device = chunk.device.data(),
                            .device_bytes = chunk.device.bytes(),
                            .host = chunk.host.data(),
                            .host_bytes = chunk.host.size()};
  Result<PlanHandle> plan = backend.plan(view, workspace, ops_.stream());
  if (!plan.ok()) return plan.status();
  chunk.plan = std::move(*plan);
  parts_.push_back({.first_row = first_row + batch.qo_indptr[static_cast<std::size_t>(first)],
                    .num_rows = view.num_qo_tokens(),
                    .slots = TensorView::dense(chunk.device_slots.data(), DType::i32,
                                               {static_cast<std::int64_t>(chunk.slots.size())}),
                    .backend = &backend,
                    .plan = chunk.plan.get()});
  return {};
}

Status LatentPlans::reserve(Chunk& chunk, const BatchView& view, const Backend& backend) {
  const WorkspaceSize size = backend.workspace_size(attention::bounds_of(view));
  const auto grow = [this](model::Buffer& buffer, std::size_t bytes) -> Status {
    if (bytes <= buffer.bytes()) return {};
    Result<model::Buffer> made = ops_.allocate(bytes);
    if (!made.ok()) return made.status();
    buffer = std::move(*made);
    return {};
  };
  chunk.host.resize(std::max(chunk.host.size(), size.host_bytes));
  if (Status s = grow(chunk.device, size.device_bytes); !s.ok()) return s;
  return grow(chunk.device_slots, chunk.slots.size() * sizeof(std::int32_t));
}

}  // namespace attune::runtime
