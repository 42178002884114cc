#include "model/loader.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace attune::model {
namespace {

constexpr std::array<std::string_view, 6> kRoots{
    "model.", "model.language_model.", "language_model.model.", "backbone.", "bert.", ""};
constexpr std::array<std::string_view, 4> kTables{"embed_tokens.weight", "embeddings.weight",
                                                  "embed.weight",
                                                  "embeddings.word_embeddings.weight"};

}  // namespace

Loader::Loader(const ModelConfig& config, std::span<const AttentionGroup> groups,
               const WeightStore& store, Ops& ops, RopeTables& ropes)
    : config_(config), groups_(groups), store_(store), ops_(ops), ropes_(ropes), root_(kRoots[0]) {
  for (std::string_view root : kRoots) {
    for (std::string_view table : kTables) {
      if (!store.has(std::string(root) + std::string(table))) continue;
      root_ = root;
      return;
    }
  }
}

void Loader::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

int Loader::group_of(int layer, bool linear) const {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].encoder || is_linear(groups_[g].spec.variant) != linear) continue;
    const std::vector<int>& layers = groups_[g].layers;
    if (std::binary_search(layers.begin(), layers.end(), layer)) return static_cast<int>(g);
  }
  return -1;
}

std::string Loader::layer(int index) const {
  const bool two = !sublayer(index).empty();
  return root_ + (config_.is_encoder_only ? "encoder.layer." : "layers.") +
         std::to_string(two ? index / 2 : index) + ".";
}

std::string Loader::sublayer(int index) const {
  if (config_.model_type != "longcat_flash") return "";
  return "." + std::to_string(index % 2);
}

std::string Loader::pick(const std::string& prefix,
                         std::initializer_list<std::string_view> names) const {
  for (std::string_view name : names) {
    std::string full = prefix + std::string(name);
    if (store_.has(full) || store_.has(full + ".weight")) return full;
  }
  return prefix + std::string(*names.begin());
}

WeightView Loader::view(const std::string& name, std::initializer_list<std::int64_t> shape) {
  if (!status_.ok()) return {};
  Result<WeightView> found = store_.find(name, std::span(shape.begin(), shape.size()));
  if (found.ok()) return *found;
  fail(found.status());
  return {};
}

std::unique_ptr<Linear> Loader::linear(std::span<const Matrix> matrices, std::int64_t columns,
                                       Bias bias) {
  std::vector<WeightView> weights;
  std::vector<WeightView> biases;
  bool any_bias = false;
  for (const Matrix& m : matrices) {
    weights.push_back(view(m.name + ".weight", {m.rows, columns}));
    const std::string bias_name = m.name + ".bias";
    const bool wanted = bias == Bias::required || store_.has(bias_name);
    biases.push_back(wanted ? view(bias_name, {m.rows}) : WeightView{});
    any_bias = any_bias || wanted;
  }
  if (!status_.ok()) return nullptr;
  if (!any_bias) biases.clear();
  Result<std::unique_ptr<Linear>> made = ops_.make_linear({.weights = weights, .biases = biases});
  if (made.ok()) return std::move(*made);
  fail(made.status());
  return nullptr;
}

std::unique_ptr<Linear> Loader::table(const Matrix& matrix, std::int64_t columns) {
  const WeightView rows = view(matrix.name + ".weight", {matrix.rows, columns});
  if (!status_.ok()) return nullptr;
  Result<std::unique_ptr<Linear>> made =
      ops_.make_linear({.weights = std::span(&rows, 1), .lookup_only = true});
  if (made.ok()) return std::move(*made);
  fail(made.status());
  return nullptr;
}

Buffer Loader::vector(const std::string& name, std::int64_t size) {
  const WeightView weight = view(name, {size});
  if (!status_.ok()) return {};
  Result<Buffer> made = ops_.make_f32(weight);
  if (made.ok()) return std::move(*made);
  fail(made.status());
  return {};
}

std::unique_ptr<Linear> Loader::linear(std::span<const WeightView> stack) {
  if (!status_.ok()) return nullptr;
  Result<std::unique_ptr<Linear>> made = ops_.make_linear({.weights = stack});
  if (made.ok()) return std::move(*made);
  fail(made.status());
  return nullptr;
}

std::unique_ptr<HeadLinears> Loader::head_linears(std::span<const WeightView> heads) {
  if (!status_.ok()) return nullptr;
  Result<std::unique_ptr<HeadLinears>> made = ops_.make_head_linears(heads);
  if (made.ok()) return std::move(*made);
  fail(made.status());
  return nullptr;
}

Buffer Loader::flat(std::span<const std::string> names, std::int64_t size) {
  std::vector<float> values;
  for (const std::string& name : names) {
    const WeightView weight = view(name, {});
    if (!status_.ok()) return {};
    const std::size_t begin = values.size();
    values.resize(begin + static_cast<std::size_t>(weight.num_elements()));
    read_f32(weight, std::span(values).subspan(begin));
  }
  if (static_cast<std::int64_t>(values.size()) != size) {
    fail(invalid_argument(names.front() + (names.size() > 1 ? " and its like" : "") + " hold " +
                          std::to_string(values.size()) + " numbers; wanted " +
                          std::to_string(size)));
    return {};
  }
  return numbers(values);
}

Buffer Loader::numbers(std::span<const float> values) {
  if (!status_.ok()) return {};
  Result<Buffer> made = ops_.allocate(values.size_bytes());
  if (!made.ok()) {
    fail(made.status());
    return {};
  }
  ops_.upload(made->data(), values.data(), values.size_bytes());
  // `values` may be gone before an asynchronous copy begins.
  if (Status s = ops_.synchronize(); !s.ok()) fail(s);
  return std::move(*made);
}

Norm Loader::norm(const std::string& name, std::int64_t width, std::optional<NormKind> kind) {
  Norm norm;
  norm.params.kind = kind.value_or(config_.norm);
  norm.params.eps = static_cast<float>(config_.norm_eps);
  norm.weight = vector(name + ".weight", width);
  norm.params.weight = static_cast<const float*>(norm.weight.data());
  if (norm.params.kind == NormKind::layer_norm && store_.has(name + ".bias")) {
    norm.bias = vector(name + ".bias", width);
    norm.params.bias = static_cast<const float*>(norm.bias.data());
  }
  return norm;
}

float Loader::scalar(const std::string& name) {
  const WeightView weight = view(name, {1});
  float value = 0;
  if (status_.ok()) read_f32(weight, std::span(&value, 1));
  return value;
}

std::unique_ptr<Experts> Loader::experts(const ExpertParts& parts) {
  if (!status_.ok()) return nullptr;
  Result<std::unique_ptr<Experts>> made = ops_.make_experts(parts);
  if (made.ok()) return std::move(*made);
  fail(made.status());
  return nullptr;
}

WeightView Loader::transposed(const WeightView& view) {
  if (!status_.ok()) return {};
  const std::int64_t num_rows = view.rows();
  const std::int64_t num_columns = view.columns();
  std::vector<float> values(static_cast<std::size_t>(num_rows * num_columns));
  read_f32(view, values);
  const bool narrow = view.type == WeightType::bf16;
  // bf16 is fp32's upper half, so a bf16 file keeps its exact values and its size.
  const std::size_t element = narrow ? 2 : 4;
  std::vector<std::byte>& copy = copies_.emplace_back(values.size() * element);
  std::byte* out = copy.data();
  for (std::int64_t c = 0; c < num_columns; ++c) {
    for (std::int64_t r = 0; r < num_rows; ++r, out += element) {
      const float* value = &values[static_cast<std::size_t>(r * num_columns + c)];
      std::memcpy(out, reinterpret_cast<const std::byte*>(value) + (narrow ? 2 : 0), element);
    }
  }
  return {.data = copy.data(),
          .type = narrow ? WeightType::bf16 : WeightType::f32,
          .rank = 2,
          .shape = {num_columns, num_rows}};
}

}  // namespace attune::model
