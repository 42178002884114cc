// Turns named weights into what layers multiply with (layer model).
//
// The first failure is kept and later loads do nothing, so a layer loads all it needs and the
// caller asks status() once. Every shape is given by the config and checked against the file.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <attune/spec.hpp>
#include <attune/status.hpp>

#include "model/attention_groups.hpp"
#include "model/config.hpp"
#include "model/ops.hpp"
#include "model/rope_tables.hpp"
#include "model/weights/weight_store.hpp"

namespace attune::model {

/// A norm and the memory of its weights.
struct Norm {
  Buffer weight;
  Buffer bias;
  NormParams params;
};

/// One matrix of a stack: [rows, columns of the stack].
struct Matrix {
  std::string name;  ///< without ".weight"
  std::int64_t rows = 0;
};

/// Whether ".bias" belongs to a matrix. `if_present` follows the file.
enum class Bias : std::uint8_t { if_present, required };

class Loader {
 public:
  /// Finds where the file keeps its decoder: under "model.", or deeper in a multimodal file.
  Loader(const ModelConfig& config, std::span<const AttentionGroup> groups,
         const WeightStore& store, Ops& ops, RopeTables& ropes);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] Ops& ops() { return ops_; }
  [[nodiscard]] RopeTables& ropes() { return ropes_; }
  [[nodiscard]] const Status& status() const { return status_; }
  void fail(Status status);
  /// ModelOptions::latent_chunk, for the layers that are made.
  void expand_latents(std::int64_t chunk) { latent_chunk_ = chunk; }
  [[nodiscard]] std::int64_t latent_chunk() const { return latent_chunk_; }

  /// The group that serves a layer's attention or its linear mixer; -1 = it has none.
  [[nodiscard]] int attention_group(int layer) const { return group_of(layer, false); }
  [[nodiscard]] int linear_group(int layer) const { return group_of(layer, true); }

  [[nodiscard]] const AttentionSpec& spec(int group) const {
    return groups_[static_cast<std::size_t>(group)].spec;
  }

  [[nodiscard]] const std::string& root() const { return root_; }
  /// "model.layers.7.": every name of that layer begins so.
  [[nodiscard]] std::string layer(int index) const;
  /// ".0" or ".1" where a layer of the file holds two of ours (LongCat), else nothing.
  [[nodiscard]] std::string sublayer(int index) const;
  [[nodiscard]] bool has(std::string_view name) const { return store_.has(name); }
  /// The first of `names` that the file has under `prefix`; the first of all if it has none, so
  /// that the error names it.
  [[nodiscard]] std::string pick(const std::string& prefix,
                                 std::initializer_list<std::string_view> names) const;

  /// Matrices stacked one below the other.
  std::unique_ptr<Linear> linear(std::span<const Matrix> matrices, std::int64_t columns,
                                 Bias bias = Bias::if_present);
  std::unique_ptr<Linear> linear(const Matrix& matrix, std::int64_t columns,
                                 Bias bias = Bias::if_present) {
    return linear(std::span(&matrix, 1), columns, bias);
  }
  /// An embedding that is no head.
  std::unique_ptr<Linear> table(const Matrix& matrix, std::int64_t columns);
  /// Views stacked one below the other; all with equal columns.
  std::unique_ptr<Linear> linear(std::span<const WeightView> stack);
  /// One view a head.
  std::unique_ptr<HeadLinears> head_linears(std::span<const WeightView> heads);
  /// A weight as it lies in the file; undefined after a failure.
  WeightView view(const std::string& name, std::initializer_list<std::int64_t> shape);
  /// fp32 in device memory.
  Buffer vector(const std::string& name, std::int64_t size);
  /// Weights of any shape one after the other, `size` numbers together, fp32 in device memory.
  Buffer flat(std::span<const std::string> names, std::int64_t size);
  Buffer flat(const std::string& name, std::int64_t size) {
    return flat(std::span(&name, 1), size);
  }
  /// fp32 numbers made here, in device memory.
  Buffer numbers(std::span<const float> values);
  /// `name` without ".weight"; kind and epsilon are the model's unless given.
  Norm norm(const std::string& name, std::int64_t width, std::optional<NormKind> kind = {});
  /// One number, read on the host.
  float scalar(const std::string& name);
  std::unique_ptr<Experts> experts(const ExpertParts& parts);

  /// A copy of a [rows, columns] slice with rows and columns exchanged. The loader's owner keeps it
  /// (take_copies), since products may read weights where they lie.
  WeightView transposed(const WeightView& view);
  [[nodiscard]] std::vector<std::vector<std::byte>> take_copies() { return std::move(copies_); }

 private:
  [[nodiscard]] int group_of(int layer, bool linear) const;

  std::int64_t latent_chunk_ = 0;
  const ModelConfig& config_;
  std::span<const AttentionGroup> groups_;
  const WeightStore& store_;
  Ops& ops_;
  RopeTables& ropes_;
  std::string root_;
  Status status_;
  std::vector<std::vector<std::byte>> copies_;
};

}  // namespace attune::model
