#include "text/jinja/value.hpp"

#include <algorithm>

namespace attune::text::jinja {

struct Value::ListData {
  List items;
  int depth = 1;
  bool plain = true;
  bool tuple = false;
};

struct Value::DictData {
  Dict items;
  int depth = 1;
  bool plain = true;
};

void Dict::set(std::string key, Value value) {
  const auto [it, fresh] = index_.emplace(key, members_.size());
  if (fresh) {
    members_.emplace_back(std::move(key), std::move(value));
  } else {
    members_[it->second].second = std::move(value);
  }
}

const Value* Dict::find(std::string_view key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &members_[it->second].second;
}

Value::Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}

Value::Value(List value) : data_(list_data(std::move(value), false)) {}

Value Value::tuple(List items) { return Value(list_data(std::move(items), true)); }

Value::Data Value::list_data(List items, bool tuple) {
  auto container = std::make_shared<ListData>();
  for (const Value& item : items) {
    container->depth = std::max(container->depth, item.depth() + 1);
    container->plain = container->plain && item.plain();
  }
  container->items = std::move(items);
  container->tuple = tuple;
  return Shared<ListData>(std::move(container));
}

Value::Value(Dict value) {
  auto container = std::make_shared<DictData>();
  for (const auto& [key, item] : value.members()) {
    container->depth = std::max(container->depth, item.depth() + 1);
    container->plain = container->plain && item.plain();
  }
  container->items = std::move(value);
  data_ = Shared<DictData>(std::move(container));
}

Value Value::none() { return Value(Data(None{})); }

Value Value::undefined(std::string name) { return Value(Data(Undefined{std::move(name)})); }

Value Value::function(Function function) {
  return Value(Data(std::make_shared<const Function>(std::move(function))));
}

std::int64_t Value::integer() const {
  return is(Kind::boolean) ? std::int64_t{boolean()} : std::get<std::int64_t>(data_);
}

double Value::number() const {
  return is(Kind::real) ? std::get<double>(data_) : static_cast<double>(integer());
}

const std::string& Value::string() const { return *std::get<Shared<std::string>>(data_); }
const List& Value::list() const { return std::get<Shared<ListData>>(data_)->items; }
bool Value::is_tuple() const { return is(Kind::list) && std::get<Shared<ListData>>(data_)->tuple; }
const Dict& Value::dict() const { return std::get<Shared<DictData>>(data_)->items; }
const Function& Value::function() const { return *std::get<Shared<Function>>(data_); }

bool Value::truthy() const {
  switch (kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer:
    case Kind::real: return number() != 0;
    case Kind::string: return !string().empty();
    case Kind::list: return !list().empty();
    case Kind::dict: return dict().size() > 0;
    case Kind::function:
    case Kind::space: return true;
  }
  return false;
}

int Value::depth() const {
  if (is(Kind::list)) return std::get<Shared<ListData>>(data_)->depth;
  if (is(Kind::dict)) return std::get<Shared<DictData>>(data_)->depth;
  return 0;
}

bool Value::plain() const {
  if (is(Kind::list)) return std::get<Shared<ListData>>(data_)->plain;
  if (is(Kind::dict)) return std::get<Shared<DictData>>(data_)->plain;
  return !is(Kind::function) && !is(Kind::space);
}

std::string_view name(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::undefined: return "an undefined value";
    case Value::Kind::none: return "none";
    case Value::Kind::boolean: return "a boolean";
    case Value::Kind::integer: return "an integer";
    case Value::Kind::real: return "a float";
    case Value::Kind::string: return "a string";
    case Value::Kind::list: return "a list";
    case Value::Kind::dict: return "a mapping";
    case Value::Kind::function: return "a function";
    case Value::Kind::space: return "a namespace";
  }
  return "a value";
}

}  // namespace attune::text::jinja
