// From a spec that a row accepts, one thing changed to what it does not declare: exactly that rule
// refuses.
#include "registry/rules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "registry/device_class.hpp"

namespace attune::registry {
namespace {

/// A backend of one row that can do nothing beyond the least.
constexpr BackendDescriptor kPlain{
    .name = "plain",
    .summary = "for this test",
    .needs = "nothing",
    .capabilities = {{.device = DeviceKind::cuda,
                      .status = BackendStatus::stable,
                      .sm = {{90, 90}},
                      .variants = {Variant::gqa},
                      .phases = {Phase::decode},
                      .q_dtypes = {DType::bf16},
                      .kv_dtypes = {DType::bf16},
                      .head_dims = {{128, 128}},
                      .gqa_group_sizes = {4},
                      .page_sizes = {64},
                      .kv_layouts = {KvLayout::nhd}}},
};

struct Case {
  AttentionSpec spec;
  Phase phase = Phase::decode;
  DeviceInfo device{.kind = DeviceKind::cuda, .name = "cuda:sm90", .sm = 90, .arch = {}};
  SelectionOptions options{};
  ModelFacts model{};

  Case() {
    spec.num_qo_heads = 32;
    spec.num_kv_heads = 8;
    spec.head_dim_qk = spec.head_dim_vo = 128;
    spec.sm_scale = 0.1f;
  }
};

std::set<std::string> refusing(const Case& c, const BackendDescriptor& backend = kPlain) {
  const Request request{c.spec, c.phase, c.device, c.options, c.model};
  std::set<std::string> names;
  for (const Refusal& r : judge(backend, request, true).refusals) {
    names.insert(r.rule);
    EXPECT_FALSE(r.wanted.empty()) << r.rule;
    EXPECT_FALSE(r.have.empty()) << r.rule;
    EXPECT_EQ(r.backend, backend.name);
  }
  return names;
}

using Change = void (*)(Case&);

struct Row {
  const char* rule;
  Change change;
};

constexpr Row kRows[] = {
    {"device", [](Case& c) { c.device.sm = 80; }},
    {"variant", [](Case& c) { c.spec.variant = Variant::dual_chunk; }},
    {"phase", [](Case& c) { c.phase = Phase::prefill; }},
    {"head_dims", [](Case& c) { c.spec.head_dim_qk = c.spec.head_dim_vo = 96; }},
    {"gqa_group", [](Case& c) { c.spec.num_kv_heads = 32; }},
    {"q_dtype", [](Case& c) { c.spec.q_dtype = DType::f16; }},
    {"kv_dtype", [](Case& c) { c.spec.kv_dtype = DType::fp8_e4m3; }},
    {"page_size", [](Case& c) { c.options.page_size = 16; }},
    {"sliding_window", [](Case& c) { c.spec.window_left = 127; }},
    {"soft_cap", [](Case& c) { c.spec.logits_soft_cap = 50.0f; }},
    {"sinks", [](Case& c) { c.spec.sinks = true; }},
    {"alibi", [](Case& c) { c.spec.alibi = true; }},
    {"relative_bias", [](Case& c) { c.spec.relative_bias = true; }},
    {"custom_mask", [](Case& c) { c.spec.custom_mask = true; }},
    {"block_mask", [](Case& c) { c.spec.block_mask = true; }},
    {"score_mod", [](Case& c) { c.spec.score_mod = true; }},
    {"attention_chunk", [](Case& c) { c.spec.attention_chunk = 16; }},
    {"xai_temperature", [](Case& c) { c.spec.xai_temperature_len = 1024; }},
    {"cross_attention", [](Case& c) { c.spec.kind = AttentionKind::cross; }},
    {"encoder_only", [](Case& c) { c.spec.kind = AttentionKind::encoder_only; }},
    {"kv_scales", [](Case& c) { c.spec.kv_scales = true; }},
    {"per_head_scales", [](Case& c) { c.spec.per_head_scales = true; }},
    {"target_verify", [](Case& c) { c.options.speculative_topk = 1; }},
    {"deterministic", [](Case& c) { c.options.required = Feature::deterministic; }},
    {"batch_invariant", [](Case& c) { c.options.required = Feature::batch_invariant; }},
    {"lse", [](Case& c) { c.options.required = Feature::lse; }},
    {"chunked_prefix", [](Case& c) { c.options.required = Feature::chunked_prefix; }},
    {"cascade", [](Case& c) { c.options.required = Feature::cascade; }},
    {"cuda_graph", [](Case& c) { c.options.required = Feature::cuda_graph; }},
    {"device_planning", [](Case& c) { c.options.required = Feature::device_planning; }},
    {"ragged_kv", [](Case& c) { c.options.required = Feature::ragged_kv; }},
};

TEST(Rules, TheLeastIsAccepted) { EXPECT_TRUE(refusing(Case{}).empty()); }

TEST(Rules, OneChangeOneRefusal) {
  for (const Row& row : kRows) {
    Case c;
    row.change(c);
    EXPECT_EQ(refusing(c), std::set<std::string>{row.rule});
  }
}

TEST(Rules, DifferentWidthsAreAFeature) {
  constexpr BackendDescriptor kAnyDims{
      .name = "any_dims",
      .summary = "for this test",
      .needs = "nothing",
      .capabilities = {{.device = DeviceKind::cuda,
                        .status = BackendStatus::stable,
                        .sm = {{90, 90}},
                        .variants = {Variant::gqa},
                        .phases = {Phase::decode},
                        .q_dtypes = {DType::bf16},
                        .kv_dtypes = {DType::bf16},
                        .kv_layouts = {KvLayout::nhd}}},
  };
  Case c;
  c.spec.head_dim_qk = 192;
  EXPECT_EQ(refusing(c, kAnyDims), std::set<std::string>{"unequal_head_dims"});
}

TEST(Rules, WhatAnotherDeviceHasIsNotWanted) {
  BackendDescriptor d = kPlain;
  Capability row = kPlain.capabilities[0];
  row.device = DeviceKind::cpu;
  row.variants = {Variant::mla};
  d.capabilities = {kPlain.capabilities[0], row};
  Case c;
  c.spec.variant = Variant::mla;
  const Request request{c.spec, c.phase, c.device, c.options, c.model};
  const auto refusals = judge(d, request, true).refusals;
  const auto variant = std::find_if(refusals.begin(), refusals.end(),
                                    [](const Refusal& r) { return r.rule == "variant"; });
  ASSERT_NE(variant, refusals.end());
  EXPECT_EQ(variant->wanted, "gqa");
}

TEST(Rules, OnAnotherKindOfDeviceTheDeviceIsTheReason) {
  // Its library may well lie beside the program, and its dtypes are those of its own kind.
  Case c;
  c.device = {.kind = DeviceKind::cpu, .name = "cpu", .arch = {}};
  c.spec.q_dtype = c.spec.kv_dtype = DType::f32;
  c.options.page_size = 16;
  const Request request{c.spec, c.phase, c.device, c.options, c.model};
  const auto refusals = judge(kPlain, request, false).refusals;
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].rule, "device");
}

TEST(Rules, AnUnknownGpuIsNotToldAsAKnownOne) {
  Case c;
  c.device.sm = 130;
  EXPECT_EQ(refusing(c), std::set<std::string>{"device"});
  EXPECT_EQ(name(device_class(c.device)), "cuda:sm120 and later");
}

TEST(Rules, AGpuThatNvmlCannotDescribeIsLeftToMake) {
  Case c;
  c.device.sm = 0;
  EXPECT_TRUE(refusing(c).empty());
}

TEST(Rules, NotBuiltIsARefusalUnlessAssumed) {
  BackendDescriptor d = kPlain;
  Capability row = kPlain.capabilities[0];
  row.status = BackendStatus::not_built;
  d.capabilities = {row};
  Case c;
  EXPECT_EQ(refusing(c, d), std::set<std::string>{"built"});
  c.options.assume_built = true;
  EXPECT_TRUE(refusing(c, d).empty());
}

TEST(Rules, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const Rule& rule : rules()) EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
}

TEST(Rules, ListsReadAsSentences) {
  EXPECT_EQ(one_of({}), "");
  EXPECT_EQ(one_of({"a"}), "a");
  EXPECT_EQ(one_of({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace attune::registry
