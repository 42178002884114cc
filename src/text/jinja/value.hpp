// The values of a template: Python's plain data, immutable and shared, so that a copy costs
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace attune::text::jinja {

class Run;
class Value;
class Dict;
struct Args;
struct Namespace;
using List = std::vector<Value>;
using Member = std::pair<std::string, Value>;
using Function = std::function<Value(Run&, const Args&)>;

class Value {
 public:
  enum class Kind { undefined, none, boolean, integer, real, string, list, dict, function, space };

  Value() : data_(Undefined{}) {}
  Value(bool value) : data_(value) {}                      // NOLINT(google-explicit-constructor)
  Value(std::int64_t value) : data_(value) {}              // NOLINT(google-explicit-constructor)
  Value(double value) : data_(value) {}                    // NOLINT(google-explicit-constructor)
  Value(std::string value);                                // NOLINT(google-explicit-constructor)
  Value(const char* value) : Value(std::string(value)) {}  // NOLINT(google-explicit-constructor)
  Value(List value);                                       // NOLINT(google-explicit-constructor)
  Value(Dict value);                                       // NOLINT(google-explicit-constructor)
  Value(Namespace* value) : data_(value) {}                // NOLINT(google-explicit-constructor)
  static Value none();
  static Value undefined(std::string name);
  static Value function(Function function);
  /// A list that prints in parentheses and equals no list.
  static Value tuple(List items);

  [[nodiscard]] Kind kind() const { return static_cast<Kind>(data_.index()); }
  [[nodiscard]] bool is(Kind kind) const { return this->kind() == kind; }
  [[nodiscard]] bool is_number() const {
    return is(Kind::boolean) || is(Kind::integer) || is(Kind::real);
  }
  [[nodiscard]] bool is_integral() const { return is(Kind::boolean) || is(Kind::integer); }

  // Each wants its kind; integer() and number() also take what Python converts without asking.
  [[nodiscard]] bool boolean() const { return std::get<bool>(data_); }
  [[nodiscard]] std::int64_t integer() const;
  [[nodiscard]] double number() const;
  [[nodiscard]] const std::string& string() const;
  [[nodiscard]] const List& list() const;
  [[nodiscard]] bool is_tuple() const;
  [[nodiscard]] const Dict& dict() const;
  [[nodiscard]] const Function& function() const;
  [[nodiscard]] Namespace& space() const { return *std::get<Namespace*>(data_); }
  /// The name an undefined value was looked up by.
  [[nodiscard]] const std::string& undefined_name() const {
    return std::get<Undefined>(data_).name;
  }

  [[nodiscard]] bool truthy() const;
  /// How deep lists and dicts nest inside: 0 for the others.
  [[nodiscard]] int depth() const;
  /// Data only: no function or namespace inside, so that it may outlive the scope it came from.
  [[nodiscard]] bool plain() const;
  /// The same object, not only an equal one.
  [[nodiscard]] bool same(const Value& other) const { return data_ == other.data_; }

 private:
  struct Undefined {
    std::string name;
    bool operator==(const Undefined&) const { return true; }
  };
  struct None {
    bool operator==(const None&) const { return true; }
  };
  struct ListData;
  struct DictData;
  template <class T>
  using Shared = std::shared_ptr<const T>;
  using Data = std::variant<Undefined, None, bool, std::int64_t, double, Shared<std::string>,
                            Shared<ListData>, Shared<DictData>, Shared<Function>, Namespace*>;
  explicit Value(Data data) : data_(std::move(data)) {}
  static Data list_data(List items, bool tuple);

  Data data_;
};

/// Arguments of a call.
struct Args {
  std::vector<Value> positional;
  std::vector<Member> named;
};

/// Keys in order of insertion.
class Dict {
 public:
  void set(std::string key, Value value);
  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  [[nodiscard]] std::size_t size() const { return members_.size(); }

 private:
  std::vector<Member> members_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

/// namespace(): the one thing a template can change. Owned by the run.
struct Namespace {
  Dict members;
};

/// "a str", "a list", ... for error texts.
[[nodiscard]] std::string_view name(Value::Kind kind);

}  // namespace attune::text::jinja
