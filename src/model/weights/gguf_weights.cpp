#include "model/weights/gguf_weights.hpp"

#include <utility>

#include "model/weights/gguf_names.hpp"
#include "model/weights/mapped_file.hpp"

namespace attune::model {
namespace {

/// Adds one tensor of the file, or one for each expert of it. False if a name is taken.
bool add(GgufWeights& weights, std::string_view architecture, const GgufTensor& tensor) {
  if (!weight_type_of_ggml(tensor.type))
    return weights.add_unreadable(
        hugging_face_name(architecture, tensor.name),
        "is of ggml's type number " + std::to_string(tensor.type) +
            "; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and Q2_K to Q6_K can be read");
  if (tensor.rank != 3 || !expert_name(architecture, tensor.name, 0))
    return weights.add(hugging_face_name(architecture, tensor.name), tensor.view);
  const std::int64_t experts = tensor.view.shape[0];
  constexpr std::int64_t kMaxExperts = 65536;
  if (experts > kMaxExperts)
    return weights.add_unreadable(std::string(tensor.name),
                                  "announces " + std::to_string(experts) + " experts");
  const std::int64_t rows = tensor.view.shape[1];
  for (std::int64_t e = 0; e < experts; ++e)
    if (!weights.add(*expert_name(architecture, tensor.name, e),
                     tensor.view.row_range(e * rows, rows)))
      return false;
  return true;
}

}  // namespace

Result<std::unique_ptr<GgufWeights>> open_gguf(const std::string& path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) return file.status();
  Result<GgufFile> head = GgufFile::parse(file->bytes(), path);
  if (!head.ok()) return head.status();
  if (const auto parts = head->integer("split.count"); parts && *parts > 1)
    return invalid_argument(path + " is one of " + std::to_string(*parts) +
                            " parts; merge them into one file first (llama-gguf-split --merge)");
  const auto architecture = head->string("general.architecture");
  if (!architecture || !knows_gguf_architecture(*architecture))
    return invalid_argument(path +
                            (architecture ? " holds the architecture " + std::string(*architecture)
                                          : std::string(" names no general.architecture")) +
                            "; GGUF files of " + gguf_architectures() + " are read");

  auto weights = std::make_unique<GgufWeights>(std::move(*head));
  for (const GgufTensor& tensor : weights->head().tensors())
    if (!add(*weights, *architecture, tensor))
      return invalid_argument(path + ": two tensors stand for " +
                              hugging_face_name(*architecture, tensor.name));
  weights->keep(std::move(*file));
  return weights;
}

}  // namespace attune::model
