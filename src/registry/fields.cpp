#include "registry/fields.hpp"

#include "base/join.hpp"

namespace attune::registry {
namespace {

using base::join;

template <class List, class ToText>
std::vector<std::string> texts(const List& list, ToText to_text) {
  std::vector<std::string> out;
  for (const auto& item : list) out.emplace_back(to_text(item));
  return out;
}

std::vector<std::string> features_of(const Capability& row) {
  std::vector<std::string> out;
  for (Feature f : kAllFeatures)
    if (row.features.has(f)) out.emplace_back(name(f));
  return out;
}

}  // namespace

std::string text_of(const SmRange& range) {
  const auto one = [](int sm) { return join(sm / 10, ".", sm % 10); };
  return range.min == range.max ? one(range.min) : join(one(range.min), "-", one(range.max));
}

std::string text_of(const HeadDims& dims) {
  return dims.qk == dims.vo ? join(dims.qk) : join(dims.qk, "/", dims.vo);
}

std::string comma_list(const std::vector<std::string>& words, std::string_view otherwise) {
  if (words.empty()) return std::string(otherwise);
  std::string text;
  for (const std::string& word : words) text += text.empty() ? word : ", " + word;
  return text;
}

std::vector<Field> fields_of(const Capability& row) {
  const auto named = [](auto item) { return name(item); };
  const auto number = [](auto n) { return join(n); };
  std::vector<Field> fields;
  fields.push_back({"device", {std::string(name(row.device))}});
  fields.push_back({"status", {std::string(name(row.status))}});
  if (row.device == DeviceKind::cpu) fields.push_back({"isa", {std::string(name(row.isa))}});
  if (row.device == DeviceKind::cuda)
    fields.push_back({"sm", texts(row.sm, [](const SmRange& r) { return text_of(r); })});
  if (row.device == DeviceKind::hip)
    fields.push_back({"archs", texts(row.archs, [](std::string_view a) { return a; })});
  fields.push_back({"variants", texts(row.variants, named)});
  fields.push_back({"phases", texts(row.phases, named)});
  fields.push_back({"q_dtypes", texts(row.q_dtypes, named)});
  fields.push_back({"kv_dtypes", texts(row.kv_dtypes, named)});
  fields.push_back(
      {"head_dims", texts(row.head_dims, [](const HeadDims& d) { return text_of(d); })});
  if (row.max_head_dim > 0) fields.push_back({"max_head_dim", {join(row.max_head_dim)}});
  if (row.head_dim_multiple > 1)
    fields.push_back({"head_dim_multiple", {join(row.head_dim_multiple)}});
  fields.push_back({"gqa_group_sizes", texts(row.gqa_group_sizes, number)});
  fields.push_back({"page_sizes", texts(row.page_sizes, number)});
  fields.push_back({"kv_layouts", texts(row.kv_layouts, named)});
  fields.push_back({"features", features_of(row)});
  return fields;
}

}  // namespace attune::registry
