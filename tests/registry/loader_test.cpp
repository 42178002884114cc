// Plugins: what fits is listed, explained and made; what does not says why before anything in it is
// used.
#include "registry/loader.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include <attune/registry.hpp>

namespace attune {
namespace {

std::string plugin(const std::string& name) {
  return std::string(ATTUNE_BINARY_DIR) + "/lib/test_plugin_" + name + ".so";
}

std::string complaint(const std::string& name) {
  const Result<Registry> r = Registry::open({.plugins = {plugin(name)}});
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), StatusCode::plugin_error);
  EXPECT_NE(r.status().text().find(name), std::string::npos);
  return r.status().text();
}

TEST(Loader, APluginJoinsTheCatalog) {
  const Result<Registry> r = Registry::open({.plugins = {plugin("good")}});
  ASSERT_TRUE(r.ok()) << r.status().text();
  EXPECT_EQ(r->list().back()->name, "example");
  AttentionSpec spec;
  spec.num_qo_heads = spec.num_kv_heads = 2;
  spec.head_dim_qk = spec.head_dim_vo = 16;
  spec.sm_scale = 0.25f;
  spec.q_dtype = spec.o_dtype = spec.kv_dtype = DType::f32;
  const ModelQuery query{.groups = {{.layers = {0}, .kind = "full", .spec = spec}}};
  const Result<Selection> s =
      r->select(query, DeviceInfo{}, {.prefill = "example", .decode = "example"});
  ASSERT_TRUE(s.ok()) << s.status().text();
  EXPECT_EQ(s->groups[0].of(Phase::decode)->backend, "example");
  const auto made = r->make("example", {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().text(), "the example plugin makes nothing");
  const auto nothing = r->make("example", {.page_size = 7});
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.status().code(), StatusCode::plugin_error);
}

TEST(Loader, APluginIsNeverADefault) {
  const Result<Registry> r = Registry::open({.plugins = {plugin("good")}});
  ASSERT_TRUE(r.ok());
  AttentionSpec spec;
  spec.num_qo_heads = spec.num_kv_heads = 2;
  spec.head_dim_qk = spec.head_dim_vo = 16;
  spec.sm_scale = 0.25f;
  const ModelQuery query{.groups = {{.layers = {0}, .kind = "full", .spec = spec}}};
  const Selection s = r->explain(query, DeviceInfo{}, {});
  EXPECT_NE(s.groups[0].of(Phase::decode)->backend, "example");
}

TEST(Loader, WhatDoesNotFitSaysWhy) {
  EXPECT_NE(complaint("wrong_abi").find("ABI 999, wanted " + std::to_string(kPluginAbi)),
            std::string::npos);
  EXPECT_NE(complaint("wrong_fingerprint").find("another AttentionSpec"), std::string::npos);
  EXPECT_NE(complaint("no_entry").find("attune_backend_entry_v1"), std::string::npos);
  EXPECT_NE(complaint("taken_name").find("the name nsa is taken"), std::string::npos);
}

TEST(Loader, ADescriptorThatDiffersInOneListIsStale) {
  BackendDescriptor a{.name = "x", .summary = "x", .capabilities = {{.page_sizes = {64}}}};
  BackendDescriptor b{
      .name = "x", .summary = "another text", .capabilities = {{.page_sizes = {64}}}};
  EXPECT_TRUE(registry::same_descriptor(a, b));
  b.capabilities = {Capability{.page_sizes = {64, 32}}};
  EXPECT_FALSE(registry::same_descriptor(a, b));
}

}  // namespace
}  // namespace attune
