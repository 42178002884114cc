// Reading fields of JSON objects with one check at the end instead of one for each field. Included
// by .cpp files only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <attune/status.hpp>
#include <nlohmann/json.hpp>

namespace attune::text {

/// Parses JSON; `what` names the source in the error.
template <class Json = nlohmann::json>
Result<Json> parse_json(std::string_view text, std::string_view what) {
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return invalid_argument(std::string(what) + " is not JSON: " + error.what());
  }
}

/// A JSON value with the path that leads to it. The first thing found wrong is kept in `error`,
/// which all readers of one document share; after it every read gives a default.
class JsonReader {
 public:
  JsonReader(const nlohmann::json& value, std::string path, Status& error)
      : value_(&value), path_(std::move(path)), error_(&error) {}

  [[nodiscard]] const nlohmann::json& json() const { return *value_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool ok() const { return error_->ok(); }
  [[nodiscard]] Status status() const { return *error_; }

  void fail(std::string_view wanted) const {
    if (error_->ok()) {
      *error_ = invalid_argument(path_ + ": want " + std::string(wanted) + ", have " +
                                 value_->type_name());
    }
  }
  void fail_with(Status status) const {
    if (error_->ok()) *error_ = std::move(status);
  }

  /// Absent and null are the same.
  [[nodiscard]] bool has(const char* key) const {
    if (!value_->is_object()) return false;
    const auto it = value_->find(key);
    return it != value_->end() && !it->is_null();
  }

  /// The member `key`; a null value where there is none.
  [[nodiscard]] JsonReader at(const char* key) const {
    static const nlohmann::json kNull;
    return {has(key) ? *value_->find(key) : kNull, path_ + "." + key, *error_};
  }

  [[nodiscard]] std::string text() const {
    if (value_->is_string()) return value_->get<std::string>();
    fail("a string");
    return {};
  }
  [[nodiscard]] bool flag() const {
    if (value_->is_boolean()) return value_->get<bool>();
    fail("true or false");
    return false;
  }
  [[nodiscard]] double number() const {
    if (value_->is_number()) return value_->get<double>();
    fail("a number");
    return 0;
  }
  /// An integer in [low, high].
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) const {
    if (value_->is_number_integer() &&
        !(value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX)) {
      const auto number = value_->get<std::int64_t>();
      if (number >= low && number <= high) return number;
    }
    fail("an integer from " + std::to_string(low) + " to " + std::to_string(high));
    return low;
  }

  [[nodiscard]] std::string text(const char* key) const { return at(key).text(); }
  [[nodiscard]] std::string text_or(const char* key, std::string_view otherwise) const {
    return has(key) ? text(key) : std::string(otherwise);
  }
  [[nodiscard]] std::optional<std::string> optional_text(const char* key) const {
    return has(key) ? std::optional(text(key)) : std::nullopt;
  }
  [[nodiscard]] bool flag_or(const char* key, bool otherwise) const {
    return has(key) ? at(key).flag() : otherwise;
  }

  /// Calls `visit(JsonReader)` for each element; an absent array is an error.
  template <class Visit>
  void for_each(const char* key, Visit visit) const {
    const JsonReader array = at(key);
    if (!array.json().is_array()) return array.fail("an array");
    std::size_t index = 0;
    for (const auto& element : array.json()) {
      if (!ok()) return;
      visit(JsonReader(element, array.path() + "[" + std::to_string(index++) + "]", *error_));
    }
  }

 private:
  const nlohmann::json* value_;
  std::string path_;
  Status* error_;
};

}  // namespace attune::text
