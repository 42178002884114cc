#include "conformance/stage.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <attune/validate.hpp>

#include "base/join.hpp"
#include "base/math.hpp"
#include "conformance/stage_tensors.hpp"
#include "tensor/element.hpp"
#include "tensor/kv_layout.hpp"

namespace attune::conformance {
namespace {

/// Copies rows [first, first + count) of dense `rows` into the tokens of `image` from `to` on.
void copy_tokens(const std::vector<char>& rows, std::int64_t first, std::int64_t count,
                 const TensorView& view, std::int64_t to, std::vector<char>& image) {
  const std::size_t size = size_of(view.dtype);
  const auto row = static_cast<std::size_t>(view.shape[1] * view.shape[2]) * size;
  const std::size_t step = static_cast<std::size_t>(view.stride[0]) * size;
  for (std::int64_t t = 0; t < count; ++t)
    std::memcpy(image.data() + static_cast<std::size_t>(to + t) * step,
                rows.data() + static_cast<std::size_t>(first + t) * row, row);
}

Result<GuardedMemory> upload_floats(DeviceMemory& memory, const std::vector<float>& values) {
  std::vector<char> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  auto made = GuardedMemory::make(memory, bytes.size(), kNan);
  if (!made.ok()) return made;
  if (Status s = made->upload(bytes); !s.ok()) return s;
  return made;
}

const float* floats(const GuardedMemory& memory) {
  return reinterpret_cast<const float*>(memory.data());
}

}  // namespace

Step whole_step(const Case& one) {
  Step step{.form = one.form};
  for (std::size_t i = 0; i < one.requests.size(); ++i)
    step.parts.push_back({.request = static_cast<std::int32_t>(i),
                          .first_row = 0,
                          .num_rows = one.requests[i].qo_len});
  return step;
}

Status StagedWorkspace::check_guards() const {
  if (Status s = device.check_guards("the workspace"); !s.ok()) return s;
  return host.check_guards("the host workspace");
}

Result<std::unique_ptr<Stage>> Stage::make(const Subject& subject, const Case& one,
                                           const Problem& problem, const StageOptions& options) {
  std::unique_ptr<Stage> stage(new Stage(subject, one, problem));
  if (one.source == KvSource::paged)
    if (Status s = stage->place(options); !s.ok()) return s;
  if (Status s = stage->upload_tables(); !s.ok()) return s;
  return stage;
}

Status Stage::upload_tables() {
  const auto upload = [&](const std::vector<float>& values, GuardedMemory& to,
                          const float*& pointer) -> Status {
    if (values.empty()) return {};
    auto made = upload_floats(memory(), values);
    if (!made.ok()) return made.status();
    to = std::move(*made);
    pointer = floats(to);
    return {};
  };
  base_call_.q_scale = problem_.q_scale;
  base_call_.k_scale = problem_.k_scale;
  base_call_.v_scale = problem_.v_scale;
  if (Status s = upload(problem_.sinks, sinks_, base_call_.sinks); !s.ok()) return s;
  if (Status s = upload(problem_.slopes, slopes_, base_call_.alibi_slopes); !s.ok()) return s;
  if (Status s = upload(problem_.k_scales, k_scales_, base_call_.k_scale_per_head); !s.ok())
    return s;
  return upload(problem_.v_scales, v_scales_, base_call_.v_scale_per_head);
}

void Stage::fill_ragged(Prepared& p) {
  for (const Step::Part& part : p.step.parts) {
    const RequestShape& r = case_.requests[static_cast<std::size_t>(part.request)];
    const std::int32_t kv_len = r.kv_len - (r.qo_len - part.first_row - part.num_rows);
    p.kv_indptr.push_back(p.kv_indptr.back() + kv_len);
  }
}

void Stage::fill_paged(Prepared& p) {
  for (const Step::Part& part : p.step.parts) {
    const auto i = static_cast<std::size_t>(part.request);
    const RequestShape& r = case_.requests[i];
    const std::int32_t kv_len = r.kv_len - (r.qo_len - part.first_row - part.num_rows);
    const std::int32_t count = base::ceil_div(kv_len, case_.page_size);
    p.kv_indices.insert(p.kv_indices.end(), pages_[i].begin(), pages_[i].begin() + count);
    p.kv_indptr.push_back(p.kv_indptr.back() + count);
    p.kv_last_page_len.push_back(count == 0 ? 0 : kv_len - (count - 1) * case_.page_size);
  }
  if (names_groups_) fill_groups(p);
}

/// What is left of the case's groups in a step: requests that take part, pages that are full.
void Stage::fill_groups(Prepared& p) {
  for (const PrefixGroup& g : case_.sharing) {
    PrefixGroup here{.num_pages = g.num_pages};
    for (std::size_t n = 0; n < p.step.parts.size(); ++n) {
      const std::int32_t request = p.step.parts[n].request;
      if (request < g.first_request || request >= g.first_request + g.num_requests) continue;
      if (here.num_requests++ == 0) here.first_request = static_cast<std::int32_t>(n);
      std::int32_t full = p.kv_indptr[n + 1] - p.kv_indptr[n];
      if (full > 0 && p.kv_last_page_len[n] < case_.page_size) --full;
      here.num_pages = std::min(here.num_pages, full);
    }
    if (here.num_requests > 0 && here.num_pages > 0) p.groups.push_back(here);
  }
}

/// The bits of a step's rows and keys, out of those of the whole problem.
void Stage::fill_mask(Prepared& p) const {
  p.mask_indptr = {0};
  for (const Step::Part& part : p.step.parts) {
    const auto i = static_cast<std::size_t>(part.request);
    const RequestShape& r = case_.requests[i];
    const std::int64_t kv_len = r.kv_len - (r.qo_len - part.first_row - part.num_rows);
    const std::size_t begin = p.mask.size();
    p.mask.resize(begin + static_cast<std::size_t>((part.num_rows * kv_len + 7) / 8));
    for (std::int64_t row = 0; row < part.num_rows; ++row)
      for (std::int64_t c = 0; c < kv_len; ++c) {
        const auto bit = static_cast<std::size_t>(row * kv_len + c);
        if (problem_.mask[i][static_cast<std::size_t>((part.first_row + row) * r.kv_len + c)])
          p.mask[begin + bit / 8] |= static_cast<std::uint8_t>(1u << (bit % 8));
      }
    p.mask_indptr.push_back(static_cast<std::int64_t>(p.mask.size()));
  }
}

/// The call's tensors in memory of their own, between guards.
Status Stage::fill_tensors(Prepared& p) {
  const AttentionSpec& spec = case_.spec;
  const auto token_tensor = [&](GuardedMemory& memory_of, TensorView& view, const auto& source,
                                DType dtype, std::int64_t tokens, int heads, int dim) -> Status {
    view = token_view(dtype, tokens, heads, dim, case_.strided);
    auto memory_made = GuardedMemory::make(memory(), token_bytes(view), kNan);
    if (!memory_made.ok()) return memory_made.status();
    memory_of = std::move(*memory_made);
    view.data = memory_of.data();
    std::vector<char> image(memory_of.size(), static_cast<char>(kNan));
    source(view, image);
    return memory_of.upload(image);
  };
  const auto queries = [&](const TensorView& view, std::vector<char>& image) {
    for (std::size_t n = 0; n < p.step.parts.size(); ++n) {
      const Step::Part& part = p.step.parts[n];
      copy_tokens(problem_.q,
                  problem_.first_query[static_cast<std::size_t>(part.request)] + part.first_row,
                  part.num_rows, view, p.qo_indptr[n], image);
    }
  };
  const auto keys_of = [&](const std::vector<char>& rows) {
    return [&](const TensorView& view, std::vector<char>& image) {
      for (std::size_t n = 0; n < p.step.parts.size(); ++n)
        copy_tokens(rows, problem_.first_key[static_cast<std::size_t>(p.step.parts[n].request)],
                    p.kv_indptr[n + 1] - p.kv_indptr[n], view, p.kv_indptr[n], image);
    };
  };
  const auto nothing = [](const TensorView&, std::vector<char>&) {};
  const std::int64_t rows = p.qo_indptr.back();
  if (Status s = token_tensor(p.q, p.call.q, queries, spec.q_dtype, rows, spec.num_qo_heads,
                              spec.q_columns());
      !s.ok())
    return s;
  if (Status s = token_tensor(p.o, p.call.o, nothing, spec.o_dtype, rows, spec.num_qo_heads,
                              spec.head_dim_vo);
      !s.ok())
    return s;
  if (case_.want_lse) {
    auto lse = GuardedMemory::make(
        memory(), static_cast<std::size_t>(rows * spec.num_qo_heads) * sizeof(float), kNan);
    if (!lse.ok()) return lse.status();
    p.lse = std::move(*lse);
    p.call.lse = TensorView::dense(p.lse.data(), DType::f32, {rows, spec.num_qo_heads});
  }
  if (case_.source == KvSource::ragged) {
    const std::int64_t keys = p.kv_indptr.back();
    if (Status s = token_tensor(p.k, p.call.k, keys_of(problem_.k), spec.kv_dtype, keys,
                                spec.num_kv_heads, spec.head_dim_qk);
        !s.ok())
      return s;
    if (!is_latent(spec.variant)) {
      if (Status s = token_tensor(p.v, p.call.v, keys_of(problem_.v), spec.kv_dtype, keys,
                                  spec.num_kv_heads, spec.head_dim_vo);
          !s.ok())
        return s;
    }
  }
  return {};
}

Result<std::unique_ptr<Prepared>> Stage::prepare(const Step& step) {
  auto made = std::make_unique<Prepared>();
  Prepared& p = *made;
  p.step = step;
  p.qo_indptr = {0};
  p.kv_indptr = {0};
  if (case_.source == KvSource::paged) {
    fill_paged(p);
  } else {
    fill_ragged(p);
  }
  bool any_offset = false;
  for (const Step::Part& part : step.parts) {
    p.qo_indptr.push_back(p.qo_indptr.back() + part.num_rows);
    p.kv_offset.push_back(case_.requests[static_cast<std::size_t>(part.request)].kv_offset);
    p.flex.requests.push_back(part.request);
    any_offset = any_offset || p.kv_offset.back() != 0;
  }
  if (!any_offset) p.kv_offset.clear();
  if (!problem_.mask.empty()) fill_mask(p);
  p.batch = {.form = step.form,
             .source = case_.source,
             .page_size = case_.source == KvSource::paged ? case_.page_size : 1,
             .qo_indptr = p.qo_indptr,
             .kv_indptr = p.kv_indptr,
             .kv_indices = p.kv_indices,
             .kv_last_page_len = p.kv_last_page_len,
             .kv_offset = p.kv_offset,
             .custom_mask = p.mask,
             .custom_mask_indptr = p.mask_indptr,
             .prefix_groups = p.groups};

  auto blocks = p.flex.blocks(case_.spec, case_.mask_by_head, p.batch);
  if (!blocks.ok()) return blocks.status();
  p.blocks = std::move(*blocks);
  p.batch.block_mask = p.blocks.view();

  p.call = base_call_;
  if (case_.spec.score_mod) p.call.score_mod = p.flex.score();
  if (Status s = fill_tensors(p); !s.ok()) return s;
  if (Status s = prepare_compressed(p); !s.ok()) return s;
  if (Status s = prepare_sparse(p); !s.ok()) return s;
  return made;
}

Result<StagedWorkspace> stage_workspace(DeviceMemory& memory, DeviceMemory& host_memory,
                                        const WorkspaceSize& size, std::size_t less) {
  StagedWorkspace made;
  // The garbage finds backends that expect zeros.
  auto device = GuardedMemory::make(memory, size.device_bytes - less, kNan);
  if (!device.ok()) return device.status();
  made.device = std::move(*device);
  auto host = GuardedMemory::make(host_memory, size.host_bytes, kNan);
  if (!host.ok()) return host.status();
  made.host = std::move(*host);
  made.view = {.device = made.device.data(),
               .device_bytes = made.device.size(),
               .host = made.host.data(),
               .host_bytes = made.host.size()};
  return made;
}

Result<StagedWorkspace> Stage::workspace(const WorkspaceSize& size, std::size_t less) {
  return stage_workspace(memory(), *host_, size, less);
}

Result<StagedWorkspace> Stage::workspace(const Backend& backend, const BatchView& batch,
                                         std::size_t less) {
  return workspace(backend.workspace_size(attention::bounds_of(batch)), less);
}

Status Stage::blank(Prepared& p) {
  if (Status s = memory().fill(p.o.data(), kNan, p.o.size()); !s.ok()) return s;
  if (p.call.sparse != nullptr && !case_.given_lists)
    if (Status s = memory().fill(p.lists.data(), kNan, p.lists.size()); !s.ok()) return s;
  return case_.want_lse ? memory().fill(p.lse.data(), kNan, p.lse.size()) : Status{};
}

Answer Stage::blank_answer() const {
  const std::int64_t rows = problem_.num_queries() * case_.spec.num_qo_heads;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Answer answer{
      .o = std::vector<double>(static_cast<std::size_t>(rows * case_.spec.head_dim_vo), nan)};
  if (case_.want_lse) answer.lse.assign(static_cast<std::size_t>(rows), nan);
  if (case_.spec.index_topk > 0)
    answer.lists.assign(static_cast<std::size_t>(problem_.num_queries() * problem_.list_width()),
                        std::numeric_limits<std::int32_t>::min());
  return answer;
}

Status Stage::collect(const Prepared& p, Answer& answer) {
  if (Status s = memory().synchronize(); !s.ok()) return s;
  const auto o = p.o.download();
  if (!o.ok()) return o.status();
  const AttentionSpec& spec = case_.spec;
  const std::int64_t width = std::int64_t{spec.num_qo_heads} * spec.head_dim_vo;
  const TensorView& view = p.call.o;
  for (std::size_t n = 0; n < p.step.parts.size(); ++n) {
    const Step::Part& part = p.step.parts[n];
    for (std::int32_t r = 0; r < part.num_rows; ++r) {
      const std::int64_t from = p.qo_indptr[n] + r;
      const std::int64_t to =
          problem_.first_query[static_cast<std::size_t>(part.request)] + part.first_row + r;
      for (std::int64_t d = 0; d < width; ++d)
        answer.o[static_cast<std::size_t>(to * width + d)] =
            tensor::load_element(o->data(), spec.o_dtype, from * view.stride[0] + d);
      const auto gap = static_cast<std::int64_t>(size_of(spec.o_dtype));
      for (std::int64_t b = (from * view.stride[0] + width) * gap;
           b < (from + 1) * view.stride[0] * gap; ++b)
        if (static_cast<unsigned char>((*o)[static_cast<std::size_t>(b)]) != kNan)
          return internal_error(
              base::join("bytes between rows of o were overwritten, behind row ", from));
    }
  }
  if (case_.want_lse) {
    const auto lse = p.lse.download();
    if (!lse.ok()) return lse.status();
    for (std::size_t n = 0; n < p.step.parts.size(); ++n) {
      const Step::Part& part = p.step.parts[n];
      const std::int64_t to =
          (problem_.first_query[static_cast<std::size_t>(part.request)] + part.first_row) *
          spec.num_qo_heads;
      for (std::int64_t e = 0; e < std::int64_t{part.num_rows} * spec.num_qo_heads; ++e)
        answer.lse[static_cast<std::size_t>(to + e)] = tensor::load_element(
            lse->data(), DType::f32, std::int64_t{p.qo_indptr[n]} * spec.num_qo_heads + e);
    }
    if (Status s = p.lse.check_guards("lse"); !s.ok()) return s;
  }
  if (Status s = p.o.check_guards("o"); !s.ok()) return s;
  if (Status s = collect_lists(p, answer); !s.ok()) return s;
  return p.q.check_guards("q");
}

Status Stage::execute(Backend& backend, const Step& step, Answer& answer) {
  auto prepared = prepare(step);
  if (!prepared.ok()) return prepared.status();
  auto memory_of = workspace(backend, (*prepared)->batch);
  if (!memory_of.ok()) return memory_of.status();
  auto plan = backend.plan((*prepared)->batch, memory_of->view, memory().stream());
  if (!plan.ok()) return plan.status();
  if (Status s = backend.run(**plan, (*prepared)->call, memory().stream()); !s.ok()) return s;
  if (Status s = collect(**prepared, answer); !s.ok()) return s;
  return memory_of->check_guards();
}

}  // namespace attune::conformance
