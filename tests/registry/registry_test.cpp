// Opening, listing, making: what needs files.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include <attune/registry.hpp>

#include "support/scratch_folder.hpp"

namespace attune {
namespace {

std::string mapped_files() {
  std::ifstream maps("/proc/self/maps");
  std::ostringstream text;
  text << maps.rdbuf();
  return text.str();
}

TEST(Registry, ListsEveryNameOfTheField) {
  const Result<Registry> r = Registry::open({});
  ASSERT_TRUE(r.ok());
  std::set<std::string_view> names;
  for (const BackendDescriptor* d : r->list()) names.insert(d->name);
  for (std::string_view name : {"flashinfer",
                                "trtllm_mla",
                                "tokenspeed_mla",
                                "cutedsl_mla",
                                "aiter",
                                "wave",
                                "ascend",
                                "dsa",
                                "dsv4",
                                "triton",
                                "torch_native",
                                "flex_attention",
                                "flashmla",
                                "fa3",
                                "fa4",
                                "cutlass_mla",
                                "trtllm_mha",
                                "hpc_ops",
                                "intel_amx",
                                "dual_chunk_flash_attn",
                                "intel_xpu",
                                "gdn",
                                "kda",
                                "mamba2",
                                "lightning",
                                "short_conv",
                                "minimax_sparse",
                                "reference",
                                "cpu"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Registry, ListingAndExplainingOpenNoLibrary) {
  const Result<Registry> r = Registry::open({});
  ASSERT_TRUE(r.ok());
  for (const char* word : {"cuda:sm90", "cpu:amx", "hip:gfx942"}) {
    const Result<DeviceInfo> device = parse_device(word);
    ASSERT_TRUE(device.ok());
    (void)r->standings(*device);
    AttentionSpec spec;
    spec.num_qo_heads = spec.num_kv_heads = 8;
    spec.head_dim_qk = spec.head_dim_vo = 64;
    spec.sm_scale = 0.125f;
    (void)r->explain({.groups = {{.layers = {0}, .kind = "full", .spec = spec}}}, *device,
                     {.assume_built = true});
  }
  const std::string maps = mapped_files();
  for (const char* library : {"libcuda", "libcudart", "libnvidia", "libattune_cuda"})
    EXPECT_EQ(maps.find(library), std::string::npos) << library;
}

TEST(Registry, MakesNothingForADeviceThatIsNotThere) {
  const Result<Registry> r = Registry::open({});
  ASSERT_TRUE(r.ok());
  BackendContext context;
  context.spec.num_qo_heads = context.spec.num_kv_heads = 8;
  context.spec.head_dim_qk = context.spec.head_dim_vo = 64;
  context.spec.sm_scale = 0.125f;
  context.device = *parse_device("cuda:sm90");
  const auto made = r->make("flashinfer", context);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::unsupported);
  EXPECT_NE(made.status().text().find("cuda:sm90 is imagined"), std::string::npos);
  EXPECT_EQ(mapped_files().find("libattune_cuda"), std::string::npos);
  if (cpu_device().isa == CpuIsa::amx) return;
  context.device = *parse_device("cpu:amx");
  EXPECT_FALSE(r->make("intel_amx", context).ok());
}

TEST(Registry, APluginThatDoesNotFitSaysWhy) {
  const auto complaint = [](const std::string& path) {
    const Result<Registry> r = Registry::open({.plugins = {path}});
    EXPECT_FALSE(r.ok());
    EXPECT_EQ(r.status().code(), StatusCode::plugin_error);
    return r.status().text();
  };
  EXPECT_NE(complaint("/nowhere/plugin.so").find("no such file"), std::string::npos);
  const testing_support::ScratchFolder folder;
  const std::string text_file = folder / "not_a_plugin.so";
  std::ofstream(text_file) << "hello";
  EXPECT_NE(complaint(text_file).find(text_file), std::string::npos);
}

TEST(Registry, MakingWhatIsNotBuiltIsRefused) {
  const Result<Registry> r = Registry::open({.cuda_library = "/nowhere/libattune_cuda.so"});
  ASSERT_TRUE(r.ok());
  BackendContext context;
  context.device.kind = DeviceKind::xpu;
  const auto made = r->make("intel_xpu", context);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::unsupported);
  EXPECT_NE(made.status().text().find("needs"), std::string::npos);
  EXPECT_EQ(r->make("flashinfr", context).status().code(), StatusCode::invalid_argument);
}

TEST(Registry, ReferenceIsMadeOnACpu) {
  const Result<Registry> r = Registry::open({});
  ASSERT_TRUE(r.ok());
  BackendContext context;
  context.spec.num_qo_heads = 4;
  context.spec.num_kv_heads = 2;
  context.spec.head_dim_qk = context.spec.head_dim_vo = 16;
  context.spec.sm_scale = 0.25f;
  context.spec.q_dtype = context.spec.o_dtype = context.spec.kv_dtype = DType::f32;
  const auto made = r->make("reference", context);
  ASSERT_TRUE(made.ok()) << made.status().text();
  EXPECT_EQ((*made)->descriptor().name, "reference");
}

}  // namespace
}  // namespace attune
