#include "conformance/linear_stage.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/join.hpp"
#include "conformance/stage_tensors.hpp"
#include "tensor/element.hpp"

namespace attune::conformance {
namespace {

std::size_t bytes_of(const TensorView& view) {
  return static_cast<std::size_t>(view.shape[0] * view.stride[0]) * size_of(view.dtype);
}

/// Rows of `row` bytes, each in its request's slot, the other slots full of garbage.
std::vector<char> pool_image(const void* rows, std::size_t row,
                             const std::vector<std::int32_t>& slots, std::int64_t num_slots,
                             unsigned char garbage) {
  std::vector<char> image(static_cast<std::size_t>(num_slots) * row, static_cast<char>(garbage));
  for (std::size_t i = 0; i < slots.size() && row > 0; ++i)
    if (slots[i] >= 0)
      std::memcpy(image.data() + static_cast<std::size_t>(slots[i]) * row,
                  static_cast<const char*>(rows) + i * row, row);
  return image;
}

}  // namespace

Result<std::unique_ptr<LinearStage>> LinearStage::make(const Subject& subject, const Case& one,
                                                       const LinearProblem& problem,
                                                       const LinearStageOptions& options) {
  std::unique_ptr<LinearStage> stage(new LinearStage(subject, one, problem));
  stage->choose_slots(options);
  const auto allocate = [&](const std::vector<char>& image, GuardedMemory& to) -> Status {
    auto made = GuardedMemory::make(stage->memory(), image.size(), kNan);
    if (!made.ok()) return made.status();
    to = std::move(*made);
    return {};
  };
  const auto image = [&](const auto& rows, std::int64_t width, DType dtype) {
    return pool_image(rows.data(), static_cast<std::size_t>(width) * size_of(dtype), stage->slots_,
                      stage->num_slots_, options.garbage);
  };
  stage->state_image_ = image(problem.state, problem.state_width(), DType::f32);
  stage->conv_state_image_ =
      image(problem.conv_state, problem.conv_state_width(), problem.spec.q_dtype);
  if (Status s = allocate(stage->state_image_, stage->state_); !s.ok()) return s;
  if (Status s = allocate(stage->conv_state_image_, stage->conv_state_); !s.ok()) return s;
  if (Status s = stage->upload_weights(); !s.ok()) return s;
  if (Status s = stage->reset(); !s.ok()) return s;
  const AttentionSpec& spec = problem.spec;
  stage->tensors_.state = TensorView::dense(
      stage->state_.data(), DType::f32,
      {stage->num_slots_, spec.linear_num_v_heads, spec.linear_head_dim_v, spec.linear_head_dim_k});
  stage->tensors_.conv_state =
      TensorView::dense(stage->conv_state_.data(), spec.q_dtype,
                        {stage->num_slots_, spec.conv_dim, spec.conv_kernel - 1});
  return stage;
}

void LinearStage::choose_slots(const LinearStageOptions& options) {
  const std::size_t n = case_.requests.size();
  num_slots_ = 2 * static_cast<std::int64_t>(n) + 1;
  std::vector<std::int32_t> all(static_cast<std::size_t>(num_slots_));
  std::iota(all.begin(), all.end(), 0);
  Random random(options.slot_seed);
  for (std::size_t i = all.size(); i > 1; --i)
    std::swap(all[i - 1],
              all[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  slots_.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
  draft_slots_.assign(all.begin() + static_cast<std::ptrdiff_t>(n),
                      all.begin() + static_cast<std::ptrdiff_t>(2 * n));
  for (std::size_t i = 0; i < n; ++i)
    if (case_.requests[i].padding) slots_[i] = draft_slots_[i] = -1;
}

Status LinearStage::upload_weights() {
  struct Weight {
    const std::vector<float>* values;
    const float** at;
  };
  const std::array<Weight, 6> all{{{&problem_.conv_weight, &tensors_.conv_weight},
                                   {&problem_.conv_bias, &tensors_.conv_bias},
                                   {&problem_.a_log, &tensors_.a_log},
                                   {&problem_.dt_bias, &tensors_.dt_bias},
                                   {&problem_.d_skip, &tensors_.d_skip},
                                   {&problem_.slopes, &tensors_.slopes}}};
  for (const Weight& weight : all) {
    if (weight.values->empty()) continue;
    std::vector<char> bytes(weight.values->size() * sizeof(float));
    std::memcpy(bytes.data(), weight.values->data(), bytes.size());
    auto made = GuardedMemory::make(memory(), bytes.size(), kNan);
    if (!made.ok()) return made.status();
    if (Status s = made->upload(bytes); !s.ok()) return s;
    *weight.at = reinterpret_cast<const float*>(made->data());
    weights_.push_back(std::move(*made));
  }
  return {};
}

Status LinearStage::reset() {
  if (Status s = state_.upload(state_image_); !s.ok()) return s;
  return conv_state_.upload(conv_state_image_);
}

/// Rows of a step with garbage between them, and in place of padding's.
std::vector<char> LinearStage::gather(const std::vector<char>& rows, const TensorView& view,
                                      const Step& step) const {
  std::vector<char> image(bytes_of(view), static_cast<char>(kNan));
  const std::size_t row = static_cast<std::size_t>(view.shape[1]) * size_of(view.dtype);
  const std::size_t stride = static_cast<std::size_t>(view.stride[0]) * size_of(view.dtype);
  std::size_t to = 0;
  for (const Step::Part& part : step.parts) {
    const auto i = static_cast<std::size_t>(part.request);
    for (std::int32_t t = 0; t < part.num_rows; ++t, ++to) {
      if (case_.requests[i].padding) continue;
      const auto from = static_cast<std::size_t>(problem_.first_token[i] + part.first_row + t);
      std::memcpy(image.data() + to * stride, rows.data() + from * row, row);
    }
  }
  return image;
}

Result<std::unique_ptr<LinearPrepared>> LinearStage::prepare(const Step& step) {
  auto made = std::make_unique<LinearPrepared>();
  LinearPrepared& p = *made;
  p.qo_indptr = {0};
  for (const Step::Part& part : step.parts) {
    p.qo_indptr.push_back(p.qo_indptr.back() + part.num_rows);
    const auto request = static_cast<std::size_t>(part.request);
    p.state_indices.push_back(slots_[request]);
    p.draft_len.push_back(part.num_drafts);
    p.draft_states.push_back(part.num_drafts > 0 ? draft_slots_[request] : -1);
    drafted_ = drafted_ || part.num_drafts > 0;
  }
  p.batch = {.form = step.form, .qo_indptr = p.qo_indptr, .state_indices = p.state_indices};
  if (step.form == BatchForm::target_verify) {
    p.batch.draft_len = p.draft_len;
    p.batch.draft_states = p.draft_states;
  }
  p.bounds = {.max_batch = p.batch.batch_size(),
              .max_qo_tokens = p.batch.num_qo_tokens(),
              .decode_only = step.form == BatchForm::decode};

  LinearTensors tensors = tensors_;
  tensors.rows = linear_shapes(problem_, case_.spec.q_dtype, p.batch.num_qo_tokens(),
                               case_.strided ? kGap : 0);
  const auto allocate = [&](TensorView& view, GuardedMemory& to) -> Status {
    if (view.rank == 0) return {};
    auto memory_of = GuardedMemory::make(memory(), bytes_of(view), kNan);
    if (!memory_of.ok()) return memory_of.status();
    to = std::move(*memory_of);
    view.data = to.data();
    return {};
  };
  if (Status s = allocate(tensors.rows.input, p.input); !s.ok()) return s;
  if (Status s = allocate(tensors.rows.gate, p.gate); !s.ok()) return s;
  if (Status s = allocate(tensors.rows.beta, p.beta); !s.ok()) return s;
  if (Status s = allocate(tensors.rows.o, p.o); !s.ok()) return s;
  fill_call(problem_, tensors, p.linear);
  p.call.o = tensors.rows.o;
  p.call.linear = &p.linear;
  if (Status s = refill(p, step); !s.ok()) return s;
  return made;
}

Status LinearStage::refill(LinearPrepared& p, const Step& step) {
  p.step = step;
  const LinearShapes shapes = linear_shapes(problem_, case_.spec.q_dtype, p.batch.num_qo_tokens(),
                                            case_.strided ? kGap : 0);
  const auto upload = [&](const std::vector<char>& rows, const TensorView& view,
                          GuardedMemory& to) -> Status {
    return view.rank == 0 ? Status{} : to.upload(gather(rows, view, step));
  };
  if (Status s = upload(problem_.input, shapes.input, p.input); !s.ok()) return s;
  if (Status s = upload(problem_.gate, shapes.gate, p.gate); !s.ok()) return s;
  if (Status s = upload(problem_.beta, shapes.beta, p.beta); !s.ok()) return s;
  return memory().fill(p.o.data(), kNan, p.o.size());
}

Result<StagedWorkspace> LinearStage::workspace(const WorkspaceSize& size, std::size_t less) {
  return stage_workspace(memory(), *host_, size, less);
}

LinearAnswer LinearStage::blank_answer() const {
  const auto elements = static_cast<std::size_t>(problem_.num_tokens() * problem_.output_width());
  return {.o = std::vector<double>(elements, std::numeric_limits<double>::quiet_NaN())};
}

Status LinearStage::collect(const LinearPrepared& p, LinearAnswer& answer) {
  if (Status s = memory().synchronize(); !s.ok()) return s;
  if (Status s = p.o.check_guards("o"); !s.ok()) return s;
  const auto bytes = p.o.download();
  if (!bytes.ok()) return bytes.status();
  const TensorView& view = p.call.o;
  const std::size_t size = size_of(view.dtype);
  std::int64_t row = 0;
  for (const Step::Part& part : p.step.parts) {
    const auto i = static_cast<std::size_t>(part.request);
    for (std::int32_t t = 0; t < part.num_rows; ++t, ++row) {
      const std::int64_t at = row * view.stride[0];
      const bool padding = case_.requests[i].padding;
      const std::int64_t written = padding ? 0 : view.shape[1];
      const auto untouched = [](char c) { return static_cast<unsigned char>(c) == kNan; };
      const auto from = bytes->begin() + (at + written) * static_cast<std::ptrdiff_t>(size);
      const auto to = bytes->begin() + (at + view.stride[0]) * static_cast<std::ptrdiff_t>(size);
      if (!std::all_of(from, to, untouched))
        return internal_error(base::join("row ", row, " of o was written ",
                                         padding ? "though it is padding" : "beyond its columns"));
      const std::int64_t out = (problem_.first_token[i] + part.first_row + t) * view.shape[1];
      for (std::int64_t c = 0; c < written; ++c)
        answer.o[static_cast<std::size_t>(out + c)] =
            tensor::load_element(bytes->data(), view.dtype, at + c);
    }
  }
  return {};
}

Status LinearStage::execute(Backend& backend, const Step& step, LinearAnswer& answer) {
  auto prepared = prepare(step);
  if (!prepared.ok()) return prepared.status();
  auto space = workspace(backend.workspace_size((*prepared)->bounds));
  if (!space.ok()) return space.status();
  auto plan = backend.plan((*prepared)->batch, space->view, memory().stream());
  if (!plan.ok()) return plan.status();
  if (Status s = backend.run(**plan, (*prepared)->call, memory().stream()); !s.ok()) return s;
  if (Status s = collect(**prepared, answer); !s.ok()) return s;
  return space->check_guards();
}

Status LinearStage::collect_draft_states(const Step& verified, LinearAnswer& answer) {
  std::vector<std::int32_t> slots = slots_;
  for (const Step::Part& part : verified.parts) {
    const auto request = static_cast<std::size_t>(part.request);
    if (part.num_drafts > 0) slots[request] = draft_slots_[request];
  }
  return collect_states(slots, answer);
}

Status LinearStage::collect_states(const std::vector<std::int32_t>& slots, LinearAnswer& answer) {
  const auto owned = [&](const std::vector<std::int32_t>& owners, std::int64_t slot) {
    return std::find(owners.begin(), owners.end(), slot) != owners.end();
  };
  if (Status s = memory().synchronize(); !s.ok()) return s;
  const auto read = [&](const GuardedMemory& pool, const std::vector<char>& before, DType dtype,
                        std::int64_t width, const char* what, std::vector<double>& out) -> Status {
    if (width == 0) return {};
    if (Status s = pool.check_guards(what); !s.ok()) return s;
    const auto bytes = pool.download();
    if (!bytes.ok()) return bytes.status();
    const std::size_t row = static_cast<std::size_t>(width) * size_of(dtype);
    for (std::int64_t slot = 0; slot < num_slots_; ++slot) {
      const std::size_t at = static_cast<std::size_t>(slot) * row;
      if (!owned(slots_, slot) && !(drafted_ && owned(draft_slots_, slot)) &&
          std::memcmp(bytes->data() + at, before.data() + at, row) != 0)
        return internal_error(
            base::join(what, ": slot ", slot, ", which no request owns, was written"));
    }
    out.clear();
    for (const std::int32_t slot : slots)
      for (std::int64_t c = 0; c < width; ++c)
        out.push_back(slot < 0 ? std::numeric_limits<double>::quiet_NaN()
                               : tensor::load_element(bytes->data(), dtype, slot * width + c));
    return {};
  };
  if (Status s = read(state_, state_image_, DType::f32, problem_.state_width(), "the state pool",
                      answer.state);
      !s.ok())
    return s;
  return read(conv_state_, conv_state_image_, problem_.spec.q_dtype, problem_.conv_state_width(),
              "the convolutions' state pool", answer.conv_state);
}

}  // namespace attune::conformance
