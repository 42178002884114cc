// Selection over hand-made specs: order, refusals, shared pages, overrides, policies.
#include <gtest/gtest.h>

#include <algorithm>

#include <attune/registry.hpp>

#include "registry/offers.hpp"

namespace attune {
namespace {

Registry registry() {
  Result<Registry> r = Registry::open({});
  EXPECT_TRUE(r.ok());
  return std::move(r).value();
}

DeviceInfo device(std::string_view word) {
  const Result<DeviceInfo> d = parse_device(word);
  EXPECT_TRUE(d.ok());
  return *d;
}

AttentionSpec gqa(int heads = 32, int kv_heads = 8, int dim = 128) {
  AttentionSpec s;
  s.num_qo_heads = heads;
  s.num_kv_heads = kv_heads;
  s.head_dim_qk = s.head_dim_vo = dim;
  s.sm_scale = 0.1f;
  return s;
}

AttentionSpec mla() {
  AttentionSpec s = gqa(128, 1, 576);
  s.variant = Variant::mla;
  s.head_dim_vo = s.kv_lora_rank = 512;
  s.qk_rope_head_dim = 64;
  return s;
}

AttentionSpec gdn() {
  AttentionSpec s;
  s.variant = Variant::gdn;
  s.sm_scale = 1.0f;
  s.linear_num_k_heads = s.linear_num_v_heads = 16;
  s.linear_head_dim_k = s.linear_head_dim_v = 128;
  s.kv_dtype = DType::f32;
  return s;
}

ModelQuery query(AttentionSpec spec, int layers = 4) {
  LayerGroup group{.kind = "full", .spec = spec};
  for (int i = 0; i < layers; ++i) group.layers.push_back(i);
  return {.groups = {group}};
}

const SelectionOptions kAll{.assume_built = true};

const PhaseSelection& decode(const Selection& s, std::size_t group = 0) {
  return *s.groups.at(group).of(Phase::decode);
}

bool refused_by(const std::vector<Refusal>& refusals, std::string_view rule) {
  return std::any_of(refusals.begin(), refusals.end(),
                     [&](const Refusal& r) { return r.rule == rule; });
}

TEST(Selection, TheFirstOfTheRowWins) {
  const Selection s = registry().explain(query(gqa()), device("cuda:sm90"), kAll);
  EXPECT_TRUE(s.status.ok());
  EXPECT_EQ(decode(s).backend, "fa3");
  EXPECT_EQ(decode(s).chosen_by, ChosenBy::preference);
  EXPECT_EQ(s.page_size, 1);
  EXPECT_EQ(s.fallbacks, 0);
  EXPECT_TRUE(s.warnings.empty());
}

TEST(Selection, EveryBackendOfTheCatalogIsConsidered) {
  const Registry r = registry();
  const Selection s = r.explain(query(gqa()), device("cuda:sm90"), kAll);
  EXPECT_EQ(decode(s).considered.size(), r.list().size());
  for (const Consideration& c : decode(s).considered)
    EXPECT_EQ(c.accepted, c.refusals.empty()) << c.name;
}

TEST(Selection, ANameIsNeverReplaced) {
  SelectionOptions o = kAll;
  o.prefill = o.decode = "flashmla";
  const Selection s = registry().explain(query(gqa()), device("cuda:sm90"), o);
  EXPECT_EQ(s.status.code(), StatusCode::unsupported);
  EXPECT_TRUE(decode(s).backend.empty());
  for (const Refusal& r : s.status.refusals()) EXPECT_EQ(r.backend, "flashmla");
  EXPECT_NE(s.status.text().find("fa3, "), std::string::npos) << s.status.text();
  EXPECT_NE(s.status.text().find(" could"), std::string::npos) << s.status.text();
  EXPECT_FALSE(registry().select(query(gqa()), device("cuda:sm90"), o).ok());
}

TEST(Selection, OnlyThePhaseThatNobodyServesFails) {
  SelectionOptions o = kAll;
  o.decode = "flashmla";
  const Selection no_decode = registry().explain(query(gqa()), device("cuda:sm90"), o);
  EXPECT_EQ(no_decode.status.code(), StatusCode::unsupported);
  EXPECT_NE(no_decode.status.text().find("(decode)"), std::string::npos) << no_decode.status.text();
  EXPECT_EQ(no_decode.groups.at(0).of(Phase::prefill)->backend, "fa3");
  EXPECT_TRUE(decode(no_decode).backend.empty());
  for (const Refusal& r : no_decode.status.refusals()) EXPECT_EQ(r.backend, "flashmla");
  std::swap(o.prefill, o.decode);
  const Selection no_prefill = registry().explain(query(gqa()), device("cuda:sm90"), o);
  EXPECT_NE(no_prefill.status.text().find("(prefill)"), std::string::npos)
      << no_prefill.status.text();
  EXPECT_FALSE(decode(no_prefill).backend.empty());
}

TEST(Selection, UnknownNamesGetTheNearest) {
  SelectionOptions o = kAll;
  o.prefill = "flashinfr";
  const Selection s = registry().explain(query(gqa()), device("cuda:sm90"), o);
  EXPECT_EQ(s.status.code(), StatusCode::invalid_argument);
  EXPECT_NE(s.status.text().find("nearest: flashinfer"), std::string::npos) << s.status.text();
  EXPECT_NE(registry().find("tirton").status().text().find("triton"), std::string::npos);
}

TEST(Selection, DeprecatedNamesWarnAndWork) {
  AttentionSpec s = mla();
  s.variant = Variant::sparse_mla;
  SelectionOptions o = kAll;
  o.prefill = o.decode = "nsa";
  const Selection chosen = registry().explain(query(s), device("cuda:sm90"), o);
  EXPECT_EQ(decode(chosen).backend, "dsa");
  ASSERT_EQ(chosen.warnings.size(), 1u);
  EXPECT_NE(chosen.warnings[0].find("deprecated"), std::string::npos);
}

TEST(Selection, PhasesShareOneCache) {
  SelectionOptions o = kAll;
  o.decode = "flashmla";
  const Selection s = registry().explain(query(mla()), device("cuda:sm90"), o);
  ASSERT_TRUE(s.status.ok()) << s.status.text();
  EXPECT_EQ(s.groups[0].of(Phase::prefill)->backend, "fa3");
  EXPECT_EQ(decode(s).backend, "flashmla");
  EXPECT_EQ(s.page_size, 64);
  EXPECT_EQ(s.groups[0].kv_layout, KvLayout::mla_latent);
}

TEST(Selection, RowsThatNeverRanServeByNameAndAreNeverChosen) {
  // Under a name of the preference row, for a row's candidates are names.
  const BackendDescriptor untried{.name = "flashmla",
                                  .summary = "compiled, never run",
                                  .needs = "a card",
                                  .capabilities = {{.device = DeviceKind::cuda,
                                                    .status = BackendStatus::unproven,
                                                    .sm = {{90, 90}},
                                                    .variants = {Variant::mla},
                                                    .phases = {Phase::decode},
                                                    .q_dtypes = {DType::bf16},
                                                    .kv_dtypes = {DType::bf16},
                                                    .head_dims = {{576, 512}},
                                                    .page_sizes = {64},
                                                    .kv_layouts = {KvLayout::mla_latent}}}};
  const registry::CatalogEntry entry{.descriptor = &untried};
  const registry::Catalog catalog{{&entry, 1},
                                  [](const registry::CatalogEntry&, DeviceKind) { return true; }};
  const DeviceInfo card = device("cuda:sm90");
  const SelectionOptions options;
  const registry::Setting setting{catalog, card, options, {}, registry::DeviceClass::sm90};

  const std::vector<registry::Offer> automatic =
      registry::automatic_offers(setting, mla(), Phase::decode);
  ASSERT_EQ(automatic.size(), 1u);
  EXPECT_FALSE(automatic[0].verdict.accepted());
  EXPECT_TRUE(refused_by(automatic[0].verdict.refusals, "proven"))
      << automatic[0].verdict.refusals.at(0).rule;

  EXPECT_TRUE(
      registry::named_offer(setting, entry, "asked for", mla(), Phase::decode).verdict.accepted());
}

TEST(Selection, WhatIsBuiltForHopperServesLatentCachesUnasked) {
  // Selecting opens no library: a path is enough to be judged as built.
  const Result<Registry> r = Registry::open({.cuda_library = "/nowhere/libattune_cuda.so"});
  ASSERT_TRUE(r.ok());
  const Selection s = r->explain(query(mla()), device("cuda:sm90"), {});
  ASSERT_TRUE(s.status.ok()) << s.status.text();
  EXPECT_EQ(decode(s).backend, "fa3");
  EXPECT_EQ(s.page_size, 64);
  EXPECT_EQ(s.fallbacks, 0);
}

TEST(Selection, NamesOverKernelsOfAnotherServeHopperByNameAlone) {
  const Result<Registry> r = Registry::open({.cuda_library = "/nowhere/libattune_cuda.so"});
  ASSERT_TRUE(r.ok());
  for (const std::string name : {"hpc_ops", "trtllm_mha"}) {
    SelectionOptions o;
    o.prefill = o.decode = name;
    const Selection s = r->explain(query(gqa()), device("cuda:sm90"), o);
    ASSERT_TRUE(s.status.ok()) << s.status.text();
    EXPECT_EQ(decode(s).backend, name);
    EXPECT_EQ(s.page_size, 64);
    // Sinks, chunks, caps: whatever the first choices refuse, the default is neither.
    for (auto ask : {+[](AttentionSpec&) {}, +[](AttentionSpec& a) { a.sinks = true; },
                     +[](AttentionSpec& a) { a.attention_chunk = 8192; },
                     +[](AttentionSpec& a) { a.logits_soft_cap = 50; }}) {
      AttentionSpec spec = gqa();
      ask(spec);
      EXPECT_NE(decode(r->explain(query(spec), device("cuda:sm90"), {})).backend, name);
    }
  }
}

TEST(Selection, NamedPhasesThatCannotShareAreRefused) {
  SelectionOptions o = kAll;
  o.prefill = "fa4";        // pages of 128 on this device
  o.decode = "trtllm_mha";  // reads HND only
  const Selection s = registry().explain(query(gqa()), device("cuda:sm100"), o);
  EXPECT_EQ(s.status.code(), StatusCode::unsupported);
  EXPECT_TRUE(refused_by(s.status.refusals(), "shared_cache")) << s.status.text();
}

TEST(Selection, GroupsShareThePageSize) {
  ModelQuery q = query(gqa(64, 4));
  LayerGroup sparse{.layers = {4, 5}, .kind = "minimax_sparse", .spec = gqa(64, 4)};
  sparse.spec.variant = Variant::minimax_sparse;
  q.groups.push_back(sparse);
  const Selection s = registry().explain(q, device("cuda:sm90"), kAll);
  ASSERT_TRUE(s.status.ok()) << s.status.text();
  EXPECT_EQ(s.page_size, 128);
  EXPECT_EQ(s.groups[0].page_size, 128);
  EXPECT_EQ(decode(s, 0).backend, "fa3");
}

TEST(Selection, APageSizeIsHonouredOrRefused) {
  SelectionOptions o = kAll;
  o.page_size = 16;
  EXPECT_EQ(registry().explain(query(gqa()), device("cuda:sm90"), o).page_size, 16);
  o.prefill = o.decode = "ascend";
  const Selection s = registry().explain(query(gqa()), device("npu"), o);
  EXPECT_TRUE(refused_by(s.status.refusals(), "page_size"));
  o = kAll;
  o.page_size = 257;
  EXPECT_FALSE(registry().select(query(gqa()), device("cpu:avx2"), o).ok());
}

TEST(Selection, FallbacksAreNamedCountedAndForbidden) {
  AttentionSpec grok = gqa();
  grok.xai_temperature_len = 1024;
  SelectionOptions o = kAll;
  Selection s = registry().explain(query(grok), device("cuda:sm80"), o);
  EXPECT_EQ(decode(s).backend, "triton");
  EXPECT_EQ(decode(s).chosen_by, ChosenBy::fallback);
  EXPECT_EQ(s.fallbacks, 2);  // prefill and decode
  EXPECT_EQ(s.warnings.size(), 2u);
  o.fallback = FallbackPolicy::allow;
  s = registry().explain(query(grok), device("cuda:sm80"), o);
  EXPECT_EQ(s.fallbacks, 2);
  EXPECT_TRUE(s.warnings.empty());
  o.fallback = FallbackPolicy::forbid;
  s = registry().explain(query(grok), device("cuda:sm80"), o);
  EXPECT_EQ(s.status.code(), StatusCode::unsupported);
  EXPECT_TRUE(refused_by(s.status.refusals(), "xai_temperature"));
}

TEST(Selection, AMissingKernelIsPassedOverWithoutBeingAFallback) {
  const Selection s = registry().explain(query(gqa()), device("cpu:amx"), {});
  ASSERT_TRUE(s.status.ok()) << s.status.text();
  EXPECT_EQ(decode(s).chosen_by, ChosenBy::preference);
  EXPECT_EQ(s.fallbacks, 0);
  EXPECT_EQ(decode(s).considered[0].name, "intel_amx");
}

TEST(Selection, OverridesCutGroups) {
  SelectionOptions o = kAll;
  o.layers = {{.first = 1, .last = 2, .backend = "triton"}};
  const Selection s = registry().explain(query(gqa()), device("cuda:sm90"), o);
  ASSERT_TRUE(s.status.ok());
  ASSERT_EQ(s.groups.size(), 2u);
  EXPECT_EQ(s.groups[0].group.layers, (std::vector<int>{0, 3}));
  EXPECT_EQ(s.groups[1].group.layers, (std::vector<int>{1, 2}));
  EXPECT_EQ(decode(s, 0).backend, "fa3");
  EXPECT_EQ(decode(s, 1).backend, "triton");
  EXPECT_EQ(decode(s, 1).chosen_by, ChosenBy::user);
  o.layers[0].last = 4;
  EXPECT_EQ(registry().explain(query(gqa()), device("cuda:sm90"), o).status.code(),
            StatusCode::invalid_argument);
}

TEST(Selection, ANamedAttentionBackendLeavesLinearLayersToTheirOwn) {
  ModelQuery q = query(gqa());
  q.groups.push_back({.layers = {4, 5}, .kind = "gdn", .spec = gdn()});
  SelectionOptions o = kAll;
  o.prefill = o.decode = "fa3";
  const Selection s = registry().explain(q, device("cuda:sm90"), o);
  ASSERT_TRUE(s.status.ok()) << s.status.text();
  EXPECT_EQ(decode(s, 0).backend, "fa3");
  EXPECT_EQ(decode(s, 1).backend, "gdn");
  EXPECT_EQ(s.groups[1].page_size, 0);
  // With nothing else to serve, the name is meant for the linear layers, and refused.
  q.groups.erase(q.groups.begin());
  EXPECT_EQ(registry().explain(q, device("cuda:sm90"), o).status.code(), StatusCode::unsupported);
}

TEST(Selection, DeterminismIsAskedOfTheAutomaticChoiceToo) {
  SelectionOptions o = kAll;
  o.required = Feature::deterministic;
  const Selection s = registry().explain(query(gqa()), device("cuda:sm100"), o);
  EXPECT_EQ(decode(s).backend, "flashinfer");
}

TEST(Selection, ModelRulesGoBeforeTheRow) {
  ModelQuery q = query(gqa(64, 8, 64));
  q.groups[0].spec.sinks = true;
  q.architecture = "GptOssForCausalLM";
  const Selection s = registry().explain(q, device("cuda:sm100"), kAll);
  EXPECT_EQ(decode(s).backend, "trtllm_mha");
  EXPECT_EQ(decode(s).chosen_by, ChosenBy::model_rule);
}

TEST(Selection, IsaIsARuleOfItsOwn) {
  SelectionOptions o = kAll;
  o.prefill = o.decode = "intel_amx";
  const Selection s = registry().explain(query(gqa()), device("cpu:avx512"), o);
  ASSERT_EQ(s.status.refusals().size(), 1u);
  EXPECT_EQ(s.status.refusals()[0].rule, "isa");
  EXPECT_EQ(s.status.refusals()[0].have, "avx512");
}

TEST(Selection, SameQuestionSameAnswer) {
  const Registry r = registry();
  const Selection a = r.explain(query(mla()), device("cuda:sm100"), kAll);
  const Selection b = r.explain(query(mla()), device("cuda:sm100"), kAll);
  EXPECT_EQ(decode(a).backend, decode(b).backend);
  EXPECT_EQ(decode(a).why, decode(b).why);
}

TEST(Selection, StandingsSayWhatIsUsableHere) {
  for (const BackendStanding& s : registry().standings(device("cpu:avx2"))) {
    if (s.descriptor->name == "reference") {
      EXPECT_EQ(s.usable, s.built);
    }
    if (s.descriptor->name == "fa3") {
      EXPECT_TRUE(refused_by(s.reasons, "device"));
    }
  }
}

TEST(Selection, FlashinferSaysWhosePrefillKernelsItTakes) {
  const auto why = [](const AttentionSpec& spec, std::string_view card) {
    SelectionOptions options = kAll;
    options.prefill = options.decode = "flashinfer";
    const Selection s = registry().explain(query(spec), device(card), options);
    EXPECT_EQ(s.groups[0].of(Phase::decode)->why, "named by the user");
    return s.groups[0].of(Phase::prefill)->why;
  };
  EXPECT_NE(why(gqa(), "cuda:sm90").find("; Hopper's kernels (wgmma), as fa4 takes them"),
            std::string::npos);
  EXPECT_NE(
      why(gqa(), "cuda:sm80").find("; plain mma: Hopper's kernels (wgmma) want device SM 9.0"),
      std::string::npos);
  EXPECT_NE(
      why(gqa(32, 8, 96), "cuda:sm90").find("; plain mma: Hopper's kernels (wgmma) want head_"),
      std::string::npos);
  AttentionSpec widened = gqa(32, 8, 256);
  widened.kv_dtype = DType::fp8_e5m2;
  EXPECT_NE(why(widened, "cuda:sm90").find("(wgmma) over keys copied to bf16 first"),
            std::string::npos);
  EXPECT_NE(why(widened, "cuda:sm80").find("; plain mma"), std::string::npos);
  AttentionSpec slopes = gqa();
  slopes.alibi = true;
  EXPECT_NE(why(slopes, "cuda:sm90").find("want alibi"), std::string::npos);
  EXPECT_EQ(why(mla(), "cuda:sm90"), "named by the user");
}

}  // namespace
}  // namespace attune
