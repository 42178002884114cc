// A model with something wrong in it: attune generate names the file or tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

#include "cli/model_files.hpp"
#include "support/scratch_folder.hpp"
#include "support/typed_command.hpp"

namespace attune::cli {
namespace {

namespace fs = std::filesystem;
using attune::testing_support::ScratchFolder;
using nlohmann::json;
using testing::HasSubstr;
using testing_support::expect_mistake;
using testing_support::Outcome;

/// A copy of the tiny llama in a folder of its own, to be spoilt.
class SpoiltModel : public testing::Test {
 protected:
  SpoiltModel() { fs::copy(golden("llama"), folder_); }

  [[nodiscard]] json config() const {
    std::ifstream file(folder_ / "config.json");
    return json::parse(file);
  }
  void write(const json& config) const { std::ofstream(folder_ / "config.json") << config; }
  [[nodiscard]] Outcome run() const {
    return generate(folder_.string(), {"--tokens", "5,6", "--max-new-tokens", "1"});
  }

  ScratchFolder scratch_;
  fs::path folder_ = scratch_ / "model";
};

TEST_F(SpoiltModel, ATokenizerOfAnUnknownKindIsBadInput) {
  std::ofstream(folder_ / "tokenizer.json") << R"({"model": {"type": "Oracle"}})";
  expect_mistake(generate(folder_.string(), {"--prompt", "x"}), "Oracle");
}

TEST_F(SpoiltModel, WhatItSaysReachesNoTerminalAsControl) {
  json broken = config();
  broken["model_type"] = "x\n\x1b[2J" + std::string(100000, 'y');
  broken.erase("architectures");
  write(broken);
  const Outcome o = run();
  expect_mistake(o, "x??[2Jyyy");
  EXPECT_EQ(o.err.find('\x1b'), std::string::npos);
  EXPECT_LT(o.err.size(), 3000u);
}

TEST_F(SpoiltModel, RunsUnspoilt) { EXPECT_EQ(run().code, kDone); }

TEST_F(SpoiltModel, AnUnknownArchitectureIsNamed) {
  json c = config();
  c["architectures"] = {"NoSuchForCausalLM"};
  c["model_type"] = "no_such";
  write(c);
  const Outcome o = run();
  EXPECT_EQ(o.code, kBadInput);
  EXPECT_THAT(o.err, HasSubstr("NoSuchForCausalLM"));
}

TEST_F(SpoiltModel, AMissingTensorIsNamed) {
  json c = config();
  c["num_hidden_layers"] = 3;
  write(c);
  expect_mistake(run(), "model.layers.2.");
}

TEST_F(SpoiltModel, AWrongShapeIsNamed) {
  json c = config();
  c["intermediate_size"] = 96;
  write(c);
  expect_mistake(run(), "model.layers.0.mlp.gate_proj.weight");
}

TEST_F(SpoiltModel, ATruncatedFileIsNamed) {
  fs::resize_file(folder_ / "model.safetensors", 5000);
  expect_mistake(run(), "model.safetensors");
}

TEST_F(SpoiltModel, AMissingFileIsNamed) {
  fs::remove(folder_ / "model.safetensors");
  expect_mistake(run(), "model.safetensors");
  fs::remove(folder_ / "config.json");
  expect_mistake(run(), "config.json");
}

}  // namespace
}  // namespace attune::cli
