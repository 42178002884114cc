#include "registry/descriptor_check.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "registry/catalog.hpp"

namespace attune::registry {
namespace {

TEST(DescriptorCheck, TheCatalogIsSound) {
  for (const CatalogEntry& entry : catalog()) EXPECT_EQ(complaint_about(*entry.descriptor), "");
}

TEST(DescriptorCheck, EachGapIsNamed) {
  const Capability row{.variants = {Variant::gqa},
                       .phases = {Phase::decode},
                       .q_dtypes = {DType::f32},
                       .kv_dtypes = {DType::f32},
                       .kv_layouts = {KvLayout::nhd}};
  const BackendDescriptor good{.name = "plain_2", .summary = "", .capabilities = {row}};
  EXPECT_EQ(complaint_about(good), "");
  for (const char* name : {"", "a b", "Plain", "plain\n", "-"}) {
    BackendDescriptor d = good;
    d.name = name;
    EXPECT_NE(complaint_about(d).find("no word"), std::string::npos) << name;
  }
  BackendDescriptor empty = good;
  empty.capabilities = {};
  EXPECT_NE(complaint_about(empty).find("no capability"), std::string::npos);

  using Change = void (*)(Capability&);
  const std::vector<std::pair<Change, std::string>> gaps{
      {[](Capability& c) { c.variants = {}; }, "no variants"},
      {[](Capability& c) { c.phases = {}; }, "no phases"},
      {[](Capability& c) { c.q_dtypes = {}; }, "types of queries"},
      {[](Capability& c) { c.kv_dtypes = {}; }, "types of keys"},
      {[](Capability& c) { c.kv_layouts = {}; }, "layout"},
      {[](Capability& c) {
         c.head_dims = {{0, 64}};
       },
       "head dims"},
      {[](Capability& c) { c.max_head_dim = -1; }, "at most -1"},
      {[](Capability& c) { c.head_dim_multiple = 0; }, "divide by 0"},
      {[](Capability& c) { c.gqa_group_sizes = {0}; }, "groups"},
      {[](Capability& c) {
         c.page_sizes = {16, 0};
       },
       "pages of 0"},
      {[](Capability& c) { c.page_sizes = {100000}; }, "pages of 100000"},
      {[](Capability& c) { c.preferred_page_size = 0; }, "pages of 0"},
  };
  for (const auto& [change, words] : gaps) {
    Capability changed = row;
    change(changed);
    BackendDescriptor d = good;
    d.capabilities = {row, changed};
    EXPECT_NE(complaint_about(d).find(words), std::string::npos) << complaint_about(d);
  }
}

}  // namespace
}  // namespace attune::registry
