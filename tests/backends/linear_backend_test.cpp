// Linear attention through the five verbs: a batch of unequal requests, continued step by step,
// against the reference backend.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <attune/linear_state.hpp>

#include "backends/gdn/descriptor.hpp"
#include "backends/kda/descriptor.hpp"
#include "backends/lightning/descriptor.hpp"
#include "backends/mamba2/descriptor.hpp"
#include "backends/reference/descriptor.hpp"
#include "backends/short_conv/descriptor.hpp"
#include "device/thread_pool.hpp"

namespace attune::backends {
namespace {

constexpr int kSlots = 5;

AttentionSpec spec_of(Variant v) {
  AttentionSpec s;
  s.variant = v;
  s.q_dtype = s.o_dtype = s.kv_dtype = DType::f32;
  s.conv_kernel = v == Variant::lightning ? 0 : 4;
  s.conv_dim = 24;
  if (v == Variant::short_conv) return s;
  s.linear_num_k_heads = v == Variant::gdn || v == Variant::mamba2 ? 2 : 4;
  s.linear_num_v_heads = 4;
  s.linear_head_dim_k = 16;
  s.linear_head_dim_v = 8;
  s.conv_dim = 2 * s.linear_num_k_heads * 16 + 4 * 8;
  return s;
}

BackendFactory factory_of(Variant v) {
  switch (v) {
    case Variant::gdn: return gdn::kMake;
    case Variant::kda: return kda::kMake;
    case Variant::mamba2: return mamba2::kMake;
    case Variant::lightning: return lightning::kMake;
    default: return short_conv::kMake;
  }
}

/// One layer's weights and states, and the inputs of one step.
struct Layer {
  explicit Layer(const AttentionSpec& s) : spec(s), random(3) {
    const int heads = std::max(spec.linear_num_v_heads, 1);
    const int dk = std::max(spec.linear_head_dim_k, 1);
    weight = normal(spec.conv_dim * std::max(spec.conv_kernel, 1));
    a_log = normal(heads);
    dt_bias = normal(heads * dk);
    d_skip = normal(heads);
    slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
    state.assign(
        static_cast<std::size_t>(kSlots * heads * dk * std::max(spec.linear_head_dim_v, 1)), 0.0f);
    conv_state.assign(
        static_cast<std::size_t>(kSlots * spec.conv_dim * std::max(spec.conv_kernel - 1, 1)), 0.0f);
  }

  void draw(std::int64_t tokens) {
    const int heads = std::max(spec.linear_num_v_heads, 1);
    input = normal(tokens * spec.conv_dim);
    gate = normal(tokens * heads * std::max(spec.linear_head_dim_k, 1));
    beta = normal(tokens * heads);
  }

  std::vector<float> run(Backend& backend, const Plan& plan, std::int64_t tokens) {
    const std::int64_t heads = spec.linear_num_v_heads;
    const std::int64_t dk = spec.linear_head_dim_k;
    const std::int64_t dv = spec.linear_head_dim_v;
    const std::int64_t width = spec.variant == Variant::short_conv ? spec.conv_dim : heads * dv;
    std::vector<float> o(static_cast<std::size_t>(tokens * width), -7.0f);
    LinearCall linear;
    const std::int64_t gates = spec.variant == Variant::kda ? heads * dk : heads;
    linear.conv_input = TensorView::dense(input.data(), DType::f32, {tokens, spec.conv_dim});
    linear.conv_weight = weight.data();
    linear.conv_state = TensorView::dense(
        conv_state.data(), DType::f32, {kSlots, spec.conv_dim, std::max(spec.conv_kernel - 1, 1)});
    linear.conv_silu = spec.variant != Variant::short_conv;
    linear.gate = TensorView::dense(gate.data(), DType::f32, {tokens, gates});
    linear.beta = TensorView::dense(beta.data(), DType::f32, {tokens, heads});
    if (spec.variant == Variant::lightning) {
      const auto part = [&](std::int64_t first, std::int64_t columns) {
        TensorView view = TensorView::dense(input.data() + first, DType::f32, {tokens, columns});
        view.stride[0] = spec.conv_dim;
        return view;
      };
      linear.q = part(0, heads * dk);
      linear.k = part(heads * dk, heads * dk);
      linear.v = part(2 * heads * dk, heads * dv);
    }
    linear.a_log = a_log.data();
    linear.dt_bias = dt_bias.data();
    linear.d_skip = spec.variant == Variant::mamba2 ? d_skip.data() : nullptr;
    linear.slopes = slopes.data();
    linear.state = TensorView::dense(state.data(), DType::f32, {kSlots, heads, dv, dk});
    LayerCall call;
    call.o = TensorView::dense(o.data(), DType::f32, {tokens, width});
    call.linear = &linear;
    const Status done = backend.run(plan, call, {});
    EXPECT_TRUE(done.ok()) << done.text();
    return o;
  }

  std::vector<float> normal(std::int64_t n) {
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& x : out) x = std::normal_distribution<float>(0.0f, 1.0f)(random);
    return out;
  }

  AttentionSpec spec;
  std::mt19937 random;
  std::vector<float> weight, a_log, dt_bias, d_skip, slopes, state, conv_state, input, gate, beta;
};

struct Made {
  std::unique_ptr<Backend> backend;
  std::vector<std::byte> workspace;
  [[nodiscard]] Workspace view() {
    return {.device = workspace.data(), .device_bytes = workspace.size()};
  }
};

Made make(BackendFactory factory, const AttentionSpec& spec, Executor& executor) {
  BackendContext context;
  context.spec = spec;
  context.device = cpu_device();
  context.executor = &executor;
  Result<std::unique_ptr<Backend>> backend = factory(context);
  EXPECT_TRUE(backend.ok()) << backend.status().text();
  Made made{std::move(backend).value(), {}};
  made.workspace.resize(made.backend->workspace_size({}).device_bytes);
  return made;
}

class LinearBackends : public testing::TestWithParam<Variant> {};

TEST_P(LinearBackends, ContinueABatchAsTheReferenceDoes) {
  auto pool = device::ThreadPool::make({.num_threads = 2});
  ASSERT_TRUE(pool.ok());
  const AttentionSpec spec = spec_of(GetParam());
  Made fast = make(factory_of(GetParam()), spec, **pool);
  Made slow = make(reference::kMake, spec, **pool);
  Layer a(spec);
  Layer b(spec);
  // Request 1 is a padding row; slots are used out of order; lengths mix prompts, single tokens and
  // nothing.
  const std::vector<std::int32_t> slots{3, -1, 0, 4};
  for (const std::vector<std::int32_t>& lengths :
       {std::vector<std::int32_t>{70, 2, 1, 0}, {1, 1, 65, 3}, {1, 1, 1, 1}, {0, 0, 0, 0}}) {
    std::vector<std::int32_t> indptr{0};
    for (std::int32_t n : lengths) indptr.push_back(indptr.back() + n);
    BatchView batch;
    batch.form = BatchForm::mixed;
    batch.qo_indptr = indptr;
    batch.state_indices = slots;
    const Result<PlanHandle> fast_plan = fast.backend->plan(batch, fast.view(), {});
    const Result<PlanHandle> slow_plan = slow.backend->plan(batch, slow.view(), {});
    ASSERT_TRUE(fast_plan.ok()) << fast_plan.status().text();
    ASSERT_TRUE(slow_plan.ok()) << slow_plan.status().text();
    const std::int64_t tokens = indptr.back();
    a.draw(tokens);
    b.draw(tokens);
    const std::vector<float> got = a.run(*fast.backend, **fast_plan, tokens);
    const std::vector<float> want = b.run(*slow.backend, **slow_plan, tokens);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-4 * std::max(1.0f, std::fabs(want[i]))) << i;
    EXPECT_EQ(a.conv_state, b.conv_state);
  }
  const auto slot_floats = static_cast<std::ptrdiff_t>(a.state.size()) / kSlots;
  for (int untouched : {1, 2})
    for (std::ptrdiff_t i = 0; i < slot_floats; ++i)
      ASSERT_EQ(a.state[static_cast<std::size_t>(untouched * slot_floats + i)], 0.0f);
}

TEST_P(LinearBackends, VerifyDraftsBehindAStateThatStays) {
  auto pool = device::ThreadPool::make({.num_threads = 2});
  ASSERT_TRUE(pool.ok());
  const AttentionSpec spec = spec_of(GetParam());
  Made made = make(factory_of(GetParam()), spec, **pool);
  const auto run = [&](Layer& layer, BatchForm form, std::int32_t tokens, std::int32_t drafts) {
    const std::vector<std::int32_t> indptr{0, tokens};
    const std::vector<std::int32_t> slot{3};
    const std::vector<std::int32_t> draft_len{drafts};
    const std::vector<std::int32_t> draft_slot{drafts > 0 ? 1 : -1};
    BatchView batch;
    batch.form = form;
    batch.qo_indptr = indptr;
    batch.state_indices = slot;
    if (form == BatchForm::target_verify) {
      batch.draft_len = draft_len;
      batch.draft_states = draft_slot;
    }
    const Result<PlanHandle> plan = made.backend->plan(batch, made.view(), {});
    EXPECT_TRUE(plan.ok()) << plan.status().text();
    return layer.run(*made.backend, **plan, tokens);
  };
  const auto row = [](const std::vector<float>& states, std::size_t slot) {
    const auto size = static_cast<std::ptrdiff_t>(states.size()) / kSlots;
    const auto first = states.begin() + static_cast<std::ptrdiff_t>(slot) * size;
    return std::vector<float>(first, first + size);
  };
  // Fewer tokens than the convolution has taps, and more; only drafts, and none.
  for (const auto& [known, drafts] :
       {std::pair(1, 4), std::pair(0, 3), std::pair(2, 1), std::pair(5, 7), std::pair(1, 0)}) {
    Layer a(spec);
    Layer b(spec);
    for (Layer* layer : {&a, &b}) {
      layer->draw(9);
      (void)run(*layer, BatchForm::extend, 9, 0);
      layer->draw(known + drafts);
    }
    const std::vector<float> got = run(a, BatchForm::target_verify, known + drafts, drafts);

    std::vector<float> want = run(b, BatchForm::extend, known, 0);
    EXPECT_EQ(row(a.state, 3), row(b.state, 3)) << known << " + " << drafts;
    EXPECT_EQ(row(a.conv_state, 3), row(b.conv_state, 3)) << known << " + " << drafts;
    const int heads = std::max(spec.linear_num_v_heads, 1);
    const int gates = spec.variant == Variant::kda ? heads * spec.linear_head_dim_k : heads;
    for (auto [rows, width] :
         {std::pair(&b.input, spec.conv_dim), std::pair(&b.gate, gates), std::pair(&b.beta, heads)})
      rows->erase(rows->begin(), rows->begin() + std::ptrdiff_t{known} * width);
    const std::vector<float> rest = run(b, BatchForm::extend, drafts, 0);
    want.insert(want.end(), rest.begin(), rest.end());
    EXPECT_EQ(got, want) << known << " + " << drafts;
    if (drafts > 0) {
      EXPECT_EQ(row(a.state, 1), row(b.state, 3)) << known << " + " << drafts;
      EXPECT_EQ(row(a.conv_state, 1), row(b.conv_state, 3)) << known << " + " << drafts;
    }
    for (const std::size_t other : {0u, 2u, 4u}) EXPECT_EQ(row(a.state, other), row(b.state, 0));
  }
}

TEST_P(LinearBackends, RefuseDraftsThatWouldLoseTheState) {
  auto pool = device::ThreadPool::make({.num_threads = 1});
  ASSERT_TRUE(pool.ok());
  Made made = make(factory_of(GetParam()), spec_of(GetParam()), **pool);
  const std::vector<std::int32_t> indptr{0, 3};
  const std::vector<std::int32_t> slot{1};
  const std::vector<std::int32_t> two{2};
  const std::vector<std::int32_t> four{4};
  const std::vector<std::int32_t> none{-1};
  const std::vector<std::uint8_t> mask(8, 0xff);
  const auto refused = [&](BatchForm form, std::span<const std::int32_t> lengths,
                           std::span<const std::int32_t> slots) {
    BatchView batch;
    batch.form = form;
    batch.qo_indptr = indptr;
    batch.state_indices = slot;
    batch.draft_len = lengths;
    batch.draft_states = slots;
    return made.backend->plan(batch, made.view(), {}).status().code();
  };
  EXPECT_EQ(refused(BatchForm::target_verify, two, two), StatusCode::ok);
  EXPECT_EQ(refused(BatchForm::target_verify, {}, {}), StatusCode::invalid_argument);
  EXPECT_EQ(refused(BatchForm::target_verify, two, none), StatusCode::invalid_argument);
  EXPECT_EQ(refused(BatchForm::target_verify, two, slot), StatusCode::invalid_argument);
  EXPECT_EQ(refused(BatchForm::target_verify, four, two), StatusCode::invalid_argument);
  EXPECT_EQ(refused(BatchForm::extend, two, two), StatusCode::invalid_argument);
  EXPECT_EQ(refused(BatchForm::draft_extend, {}, {}), StatusCode::ok);

  BatchView tree;
  tree.form = BatchForm::target_verify;
  tree.qo_indptr = indptr;
  tree.state_indices = slot;
  tree.draft_len = two;
  tree.draft_states = two;
  tree.custom_mask = mask;
  const Status status = made.backend->plan(tree, made.view(), {}).status();
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  ASSERT_FALSE(status.refusals().empty());
  EXPECT_EQ(status.refusals()[0].rule, "tree_verify");
}

TEST_P(LinearBackends, RefuseWhatWouldCorrupt) {
  auto pool = device::ThreadPool::make({.num_threads = 1});
  ASSERT_TRUE(pool.ok());
  const AttentionSpec spec = spec_of(GetParam());
  Made made = make(factory_of(GetParam()), spec, **pool);
  const std::vector<std::int32_t> indptr{0, 1, 2};
  const std::vector<std::int32_t> same_slot{1, 1};
  const std::vector<std::int32_t> too_few{1};
  BatchView batch;
  batch.form = BatchForm::decode;
  batch.qo_indptr = indptr;
  batch.state_indices = same_slot;
  EXPECT_EQ(made.backend->plan(batch, made.view(), {}).status().code(),
            StatusCode::invalid_argument);
  batch.state_indices = too_few;
  EXPECT_EQ(made.backend->plan(batch, made.view(), {}).status().code(),
            StatusCode::invalid_argument);

  const std::vector<std::int32_t> beyond{0, kSlots};
  batch.state_indices = beyond;
  const Result<PlanHandle> plan = made.backend->plan(batch, made.view(), {});
  ASSERT_TRUE(plan.ok());
  LayerCall call;
  EXPECT_EQ(made.backend->run(**plan, call, {}).code(), StatusCode::invalid_argument);

  if (!made.workspace.empty()) {
    Workspace small = made.view();
    --small.device_bytes;
    EXPECT_EQ(made.backend->plan(batch, small, {}).status().code(), StatusCode::invalid_argument);
  }
}

std::string variant_name(const testing::TestParamInfo<Variant>& variant) {
  return std::string(name(variant.param));
}

INSTANTIATE_TEST_SUITE_P(Families, LinearBackends,
                         testing::Values(Variant::gdn, Variant::kda, Variant::mamba2,
                                         Variant::lightning, Variant::short_conv),
                         variant_name);

}  // namespace
}  // namespace attune::backends
