#include "registry/descriptor_check.hpp"

#include <algorithm>
#include <string_view>

#include "base/join.hpp"

namespace attune::registry {
namespace {

using base::join;

constexpr int kLargestPage = 256;

bool is_word(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  return !name.empty() && name.find_first_not_of(kLetters) == std::string_view::npos;
}

std::string complaint_about(const Capability& row) {
  const auto any = [](const auto& list, auto bad) {
    return std::any_of(list.begin(), list.end(), bad);
  };
  const auto below_one = [](int n) { return n < 1; };
  if (row.variants.empty()) return "no variants";
  if (row.phases.empty()) return "no phases";
  if (row.q_dtypes.empty()) return "no types of queries";
  if (row.kv_dtypes.empty()) return "no types of keys";
  const bool linear = any(row.variants, [](Variant v) { return is_linear(v); });
  if (row.kv_layouts.empty() && !linear) return "no layout of keys";
  if (any(row.head_dims, [](const HeadDims& d) { return d.qk < 1 || d.vo < 1; }))
    return "head dims below 1";
  if (row.max_head_dim < 0) return join("head dims of at most ", row.max_head_dim);
  if (row.head_dim_multiple < 1) return join("head dims that divide by ", row.head_dim_multiple);
  if (any(row.gqa_group_sizes, below_one)) return "groups of query heads below 1";
  for (const std::int32_t page : row.page_sizes)
    if (page < 1 || page > kLargestPage)
      return join("pages of ", page, " tokens, which are 1 to ", kLargestPage);
  if (row.preferred_page_size < 1 || row.preferred_page_size > kLargestPage)
    return join("pages of ", row.preferred_page_size, " tokens, which are 1 to ", kLargestPage);
  return "";
}

}  // namespace

std::string complaint_about(const BackendDescriptor& descriptor) {
  if (!is_word(descriptor.name))
    return join("its name '", descriptor.name, "' is no word of a-z, 0-9 and _");
  if (descriptor.capabilities.empty()) return join(descriptor.name, " declares no capability");
  for (const Capability& row : descriptor.capabilities)
    if (const std::string wrong = complaint_about(row); !wrong.empty())
      return join(descriptor.name, " declares a capability with ", wrong);
  return "";
}

}  // namespace attune::registry
