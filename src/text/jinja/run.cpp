#include "text/jinja/run.hpp"

namespace attune::text::jinja {

bool Run::charge(std::size_t steps) {
  if (failed()) return false;
  if (steps > static_cast<std::size_t>(steps_left_)) {
    fail("the template does too much work; it may not end");
    return false;
  }
  steps_left_ -= static_cast<std::int64_t>(steps);
  return true;
}

Value Run::fail(std::string text) {
  if (!failed()) {
    status_ = invalid_argument("chat template, line " + std::to_string(line_) + ": " + text);
  }
  return {};
}

Value Run::checked(std::string text) {
  if (text.size() > kSizeLimit) return fail("a string grows beyond 64 MiB");
  if (!charge_bytes(text.size())) return {};
  return text;
}

Value Run::checked(List items) { return checked_list(std::move(items), false); }
Value Run::checked_tuple(List items) { return checked_list(std::move(items), true); }

Value Run::checked_list(List items, bool tuple) {
  if (!charge(1 + kStepsPerItem * items.size())) return {};
  Value value = tuple ? Value::tuple(std::move(items)) : Value(std::move(items));
  return value.depth() > kDataDepthLimit ? fail("lists nest too deep") : value;
}

Value Run::checked(Dict items) {
  if (!charge(1 + kStepsPerMember * items.size())) return {};
  Value value(std::move(items));
  return value.depth() > kDataDepthLimit ? fail("mappings nest too deep") : value;
}

Value Run::new_namespace(Dict members) {
  for (const auto& [key, value] : members.members()) {
    if (!value.plain()) return fail("a namespace holds data only; " + key + " is something else");
  }
  if (!charge(64)) return {};
  namespaces_.push_back(std::make_unique<Namespace>(Namespace{std::move(members)}));
  return namespaces_.back().get();
}

}  // namespace attune::text::jinja
