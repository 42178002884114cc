// Plain attention, one request at a time, on library matrix products: gather a request's keys and
// values to dense fp32, S = Q K^T, softmax, O = P V. The obvious way to do it with a library, kept
// as a second opinion beside the hand-written kernels.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

#include <attune/backend.hpp>
#include <attune/descriptor.hpp>
#include <attune/validate.hpp>

#include "attention/lse.hpp"
#include "attention/mask.hpp"
#include "attention/packed_latent.hpp"
#include "backends/shared/dense_glue.hpp"
#include "backends/torch_native/descriptor.hpp"
#include "backends/torch_native/planner.hpp"
#include "base/join.hpp"
#include "base/math.hpp"
#include "tensor/element.hpp"
#include "tensor/kv_layout.hpp"

namespace attune::backends::torch_native {
namespace {

template <class T>
void widen(const void* data, std::int64_t at, int width, float* row) {
  for (int d = 0; d < width; ++d) row[d] = tensor::to_float(tensor::detail::read<T>(data, at + d));
}

void widen(const void* data, DType dtype, std::int64_t at, int width, float* row) {
  switch (dtype) {
    case DType::f32: return widen<float>(data, at, width, row);
    case DType::bf16: return widen<tensor::Bf16>(data, at, width, row);
    case DType::f16: return widen<tensor::F16>(data, at, width, row);
    case DType::fp8_e4m3: return widen<tensor::E4m3>(data, at, width, row);
    case DType::fp8_e5m2: return widen<tensor::E5m2>(data, at, width, row);
    default: return widen<std::int8_t>(data, at, width, row);
  }
}

/// A token of the fp8 latent cache: all of its latents, then as many rope columns.
void widen_packed(const void* data, std::int64_t byte, float* row) {
  namespace packed = attention::packed_latent;
  const char* const token = static_cast<const char*>(data) + byte;
  for (int block = 0; block < packed::kScales; ++block) {
    const auto scale = tensor::detail::read<float>(token + packed::kScalesAt, block);
    float* const latents = row + block * packed::kScaleBlock;
    widen<tensor::E4m3>(token, block * packed::kScaleBlock, packed::kScaleBlock, latents);
    for (int d = 0; d < packed::kScaleBlock; ++d) latents[d] *= scale;
  }
  widen<tensor::Bf16>(token + packed::kRopeAt, 0, packed::kRope, row + packed::kLatents);
}

/// Everything the items of one run share.
struct Run {
  const AttentionSpec& spec;
  const TorchNativePlan& plan;
  const LayerCall& call;
  attention::PagedKv kv;
  bool packed = false;  ///< tokens of the fp8 latent cache; strides count bytes
  std::atomic<bool> product_failed = false;

  void serve(const Item& item, int thread);

 private:
  void gather(const Item& item, const Scratch& work) const;
  /// Row r of a block is query token first + r / group, head r % group.
  void serve_rows(const Item& item, const Scratch& work, std::int64_t first_row, std::int64_t rows,
                  int thread);
  /// Turns one row of scores into weights; returns their sum and the row's maximum.
  struct Softmax {
    float maximum = -std::numeric_limits<float>::infinity();
    float sum = 0.0f;
  };
  Softmax softmax(const Item& item, std::int64_t token, float* scores, std::int64_t keys) const;
  void store(const Item& item, std::int64_t row, const float* o, const Softmax& state) const;
};

void Run::gather(const Item& item, const Scratch& work) const {
  const auto i = static_cast<std::size_t>(item.request);
  const std::int64_t length = plan.kv_len[i];
  const bool paged = plan.facts.source == KvSource::paged;
  for (std::int64_t j = 0; j < length; ++j) {
    const std::int64_t entry = plan.kv_indptr[i] + j / kv.page_size;
    const std::int64_t page = paged ? plan.kv_indices[static_cast<std::size_t>(entry)] : entry;
    const std::int64_t place = j % kv.page_size;
    const std::int64_t key =
        page * kv.k_page_stride + place * kv.k_token_stride + item.kv_head * kv.k_head_stride;
    float* const row = work.k + j * spec.head_dim_qk;
    packed ? widen_packed(kv.k, key, row) : widen(kv.k, spec.kv_dtype, key, spec.head_dim_qk, row);
    if (work.v == nullptr) continue;
    widen(kv.v, spec.kv_dtype,
          page * kv.v_page_stride + place * kv.v_token_stride + item.kv_head * kv.v_head_stride,
          spec.head_dim_vo, work.v + j * spec.head_dim_vo);
  }
  // Padding is multiplied like any key, with weight zero: it must be a number.
  const std::int64_t padded = base::round_up(length, kKeyStep);
  std::fill(work.k + length * spec.head_dim_qk, work.k + padded * spec.head_dim_qk, 0.0f);
  if (work.v != nullptr)
    std::fill(work.v + length * spec.head_dim_vo, work.v + padded * spec.head_dim_vo, 0.0f);
}

Run::Softmax Run::softmax(const Item& item, std::int64_t token, float* scores,
                          std::int64_t keys) const {
  const auto i = static_cast<std::size_t>(item.request);
  const std::int64_t length = plan.kv_len[i];
  const std::int64_t offset = plan.kv_offset[i];
  const std::int64_t p = offset + length - (plan.qo_indptr[i + 1] - plan.qo_indptr[i]) + token;
  const attention::MaskRule rule{.causal = spec.causal && !spec.custom_mask,
                                 .window_left = spec.window_left,
                                 .window_right = spec.window_right,
                                 .attention_chunk = spec.attention_chunk};
  const attention::KeyRange range = attention::visible_range(rule, p, offset, offset + length);
  const std::int64_t begin = range.begin - offset;
  const std::int64_t end = range.end - offset;
  const auto hidden = [&](std::int64_t c) {
    if (!spec.custom_mask) return false;
    const std::int64_t bit = token * length + c;
    const auto byte = static_cast<std::size_t>(plan.custom_mask_indptr[i] + bit / 8);
    return (plan.custom_mask[byte] >> (bit % 8) & 1) == 0;
  };
  const float k_scale =
      call.k_scale_per_head != nullptr ? call.k_scale_per_head[item.kv_head] : call.k_scale;
  const float scale = spec.sm_scale * call.q_scale * k_scale;

  Softmax state;
  for (std::int64_t c = begin; c < end; ++c) {
    scores[c] = hidden(c) ? -std::numeric_limits<float>::infinity() : scores[c] * scale;
    state.maximum = std::max(state.maximum, scores[c]);
  }
  std::fill(scores, scores + begin, 0.0f);
  std::fill(scores + end, scores + keys, 0.0f);
  if (state.maximum == -std::numeric_limits<float>::infinity()) {
    std::fill(scores + begin, scores + end, 0.0f);
    return state;
  }
  double sum = 0.0;
  for (std::int64_t c = begin; c < end; ++c) {
    scores[c] = std::exp(scores[c] - state.maximum);
    sum += static_cast<double>(scores[c]);
  }
  state.sum = static_cast<float>(sum);
  return state;
}

void Run::store(const Item& item, std::int64_t row, const float* o, const Softmax& state) const {
  const std::int64_t group = spec.gqa_group_size();
  const std::int64_t token = plan.qo_indptr[static_cast<std::size_t>(item.request)] + row / group;
  const std::int64_t head = item.kv_head * group + row % group;
  const bool empty = state.sum == 0.0f;
  const float v_scale =
      call.v_scale_per_head != nullptr ? call.v_scale_per_head[item.kv_head] : call.v_scale;
  const float factor = empty ? 0.0f : v_scale / state.sum;
  const std::int64_t at = token * call.o.stride[0] + head * call.o.stride[1];
  for (int d = 0; d < spec.head_dim_vo; ++d)
    tensor::store_element(call.o.data, call.o.dtype, at + d,
                          empty ? 0.0 : static_cast<double>(o[d] * factor));
  if (!call.lse.defined()) return;
  const float lse = empty ? attention::kEmptyLse<float> : state.maximum + std::log(state.sum);
  call.lse.as<float>()[token * call.lse.stride[0] + head * call.lse.stride[1]] = lse;
}

void Run::serve_rows(const Item& item, const Scratch& work, std::int64_t first_row,
                     std::int64_t rows, int thread) {
  const auto i = static_cast<std::size_t>(item.request);
  const std::int64_t group = spec.gqa_group_size();
  const std::int64_t padded = padded_rows(rows);
  const std::int64_t keys = base::round_up(plan.kv_len[i], kKeyStep);
  const std::int64_t lds = plan.sizes.keys;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t row = first_row + r;
    const std::int64_t token = plan.qo_indptr[i] + row / group;
    const std::int64_t head = item.kv_head * group + row % group;
    widen(call.q.data, call.q.dtype, token * call.q.stride[0] + head * call.q.stride[1],
          spec.head_dim_qk, work.q + r * spec.head_dim_qk);
  }
  std::fill(work.q + rows * spec.head_dim_qk, work.q + padded * spec.head_dim_qk, 0.0f);
  std::fill(work.o, work.o + padded * spec.head_dim_vo, 0.0f);

  const auto multiply = [&](const auto& products, std::int64_t n, const float* a, const float* b,
                            float* c) {
    const auto& product = products.at({.rows = padded, .keys = n});
    if (!plan.matmul->run(*product, a, b, c, 0, thread).ok()) product_failed = true;
  };
  for (std::int64_t at = 0; at < keys; at += kKeyBlock)
    multiply(plan.score_products, std::min(kKeyBlock, keys - at), work.q,
             work.k + at * spec.head_dim_qk, work.scores + at);
  Softmax states[kRowBlock];
  for (std::int64_t r = 0; r < rows; ++r)
    states[r] = softmax(item, (first_row + r) / group, work.scores + r * lds, keys);
  const float* values = work.v != nullptr ? work.v : work.k;
  const std::int64_t value_stride = work.v != nullptr ? spec.head_dim_vo : spec.head_dim_qk;
  for (std::int64_t at = 0; at < keys; at += kKeyBlock)
    multiply(plan.value_products, std::min(kKeyBlock, keys - at), work.scores + at,
             values + at * value_stride, work.o);
  for (std::int64_t r = 0; r < rows; ++r)
    store(item, first_row + r, work.o + r * spec.head_dim_vo, states[r]);
}

void Run::serve(const Item& item, int thread) {
  const auto i = static_cast<std::size_t>(item.request);
  const Scratch& work = plan.scratch[static_cast<std::size_t>(thread)];
  gather(item, work);
  const std::int64_t rows =
      (plan.qo_indptr[i + 1] - plan.qo_indptr[i]) * std::int64_t{spec.gqa_group_size()};
  for (std::int64_t first = 0; first < rows; first += kRowBlock)
    serve_rows(item, work, first, std::min(kRowBlock, rows - first), thread);
}

class TorchNativeBackend final : public Backend {
 public:
  explicit TorchNativeBackend(const BackendContext& context)
      : context_(context), executor_(context.executor != nullptr ? context.executor : &caller_) {}

  [[nodiscard]] const BackendDescriptor& descriptor() const override { return kDescriptor; }

  [[nodiscard]] WorkspaceSize workspace_size(const BatchBounds& bounds) const override {
    return {.device_bytes = workspace_bytes(context_.spec, sizes_of(context_.spec, bounds),
                                            executor_->num_threads())};
  }

  Result<PlanHandle> plan(const BatchView& batch, const Workspace& workspace, Stream) override {
    auto made = std::make_unique<TorchNativePlan>();
    made->workspace = workspace;
    if (Status s = refresh(*made, batch, {}); !s.ok()) return s;
    return PlanHandle(std::move(made));
  }

  Status refresh(Plan& plan, const BatchView& batch, Stream) override {
    auto& mine = static_cast<TorchNativePlan&>(plan);
    const auto facts = attention::validate_batch(batch, context_.spec, context_.page_size);
    if (!facts.ok()) return facts.status();
    const std::size_t wanted = workspace_size(attention::bounds_of(batch)).device_bytes;
    if (Status s = shared::check_workspace(mine.workspace, wanted); !s.ok()) return s;
    return make_plan(context_.spec, batch, *facts, Workspace(mine.workspace),
                     executor_->num_threads(), mine);
  }

  Status append_kv(const LayerCall& call, Stream) override {
    return shared::append_kv(call, context_.spec, context_.page_size, context_.kv_layout,
                             *executor_);
  }

  Status run(const Plan& plan, const LayerCall& call, Stream) override {
    const auto& mine = static_cast<const TorchNativePlan&>(plan);
    if (Status s = attention::validate_run(call, mine.facts, context_.spec, context_.page_size,
                                           context_.kv_layout);
        !s.ok())
      return s;
    const bool ragged = mine.facts.source == KvSource::ragged;
    Run shared_by_items{
        .spec = context_.spec,
        .plan = mine,
        .call = call,
        .kv = ragged ? shared::ragged_keys(call, context_.spec.variant)
                     : shared::paged_keys(call, context_.kv_layout, context_.page_size),
        .packed = !ragged && context_.kv_layout == KvLayout::mla_latent_fp8};
    executor_->run(
        static_cast<std::int64_t>(mine.items.size()),
        [](void* context, std::int64_t n, int thread) {
          Run& run = *static_cast<Run*>(context);
          run.serve(run.plan.items[static_cast<std::size_t>(n)], thread);
        },
        &shared_by_items);
    if (shared_by_items.product_failed) return internal_error("oneDNN failed in a product");
    return {};
  }

 private:
  BackendContext context_;
  shared::CallerThread caller_;
  Executor* executor_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make(const BackendContext& context) {
  const AttentionSpec& spec = context.spec;
  const auto no = [](std::string_view what) {
    return unsupported(base::join("torch_native: ", what));
  };
  if (context.device.kind != DeviceKind::cpu) return no("only its CPU form is built");
  if (spec.variant != Variant::gqa && spec.variant != Variant::mla)
    return no("serves gqa and mla only");
  if (spec.logits_soft_cap > 0) return no("has no soft cap");
  if (spec.sinks) return no("has no sinks");
  if (spec.alibi) return no("has no alibi");
  if (spec.relative_bias) return no("has no relative bias");
  if (spec.block_mask) return no("has no masks by blocks");
  if (spec.score_mod) return no("has no functions on logits");
  if (spec.xai_temperature_len > 0) return no("has no temperature by position");
  if (spec.attention_chunk > 0) return no("has no attention chunks");
  if (spec.per_head_scales) return no("has no scales per head");
  if (context.batch_invariant)
    return no("products are shaped by the longest request, so bits depend on neighbours");
  if (Status s = attention::validate_spec(spec); !s.ok()) return s;
  if (context.page_size < 1)
    return invalid_argument(base::join("page_size must be positive, have ", context.page_size));
  const KvLayout layout = context.kv_layout;
  const bool fits = spec.variant == Variant::mla
                        ? !tensor::stores_v_apart(layout)
                        : layout == KvLayout::nhd || layout == KvLayout::hnd;
  if (!fits)
    return no(base::join("layout ", name(layout), " does not hold ", name(spec.variant), " keys"));
  if (layout == KvLayout::mla_latent_fp8 &&
      (spec.head_dim_qk != 576 || spec.head_dim_vo != 512 || spec.kv_dtype != DType::fp8_e4m3))
    return no(base::join("layout mla_latent_fp8 holds 512 + 64 columns in fp8_e4m3, not ",
                         spec.head_dim_vo, " + ", spec.head_dim_qk - spec.head_dim_vo, " in ",
                         name(spec.kv_dtype)));
  return std::unique_ptr<Backend>(std::make_unique<TorchNativeBackend>(context));
}

}  // namespace attune::backends::torch_native
