#include "model/config_reader.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

namespace attune::model {
namespace {

using nlohmann::json;

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr std::size_t kLongest = 40;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return text;
}

/// Infinities come as {"__float__": "Infinity"}, or as the largest number (config_parse.cpp made it
/// of a bare word).
std::optional<double> as_number(const json& value) {
  if (value.is_number()) {
    const double x = value.get<double>();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (x >= std::numeric_limits<double>::max()) return kInfinity;
    if (x <= std::numeric_limits<double>::lowest()) return -kInfinity;
    return x;
  }
  if (value.is_object() && value.size() == 1) {
    const auto it = value.find("__float__");
    if (it == value.end() || !it->is_string()) return std::nullopt;
    const std::string& word = it->get_ref<const std::string&>();
    if (word == "Infinity") return std::numeric_limits<double>::infinity();
    if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
  }
  return std::nullopt;
}

std::optional<std::int64_t> as_integer(const json& value) {
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return std::nullopt;
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_boolean())
    return value.get<bool>() ? 1 : 0;  // Llama-4 writes no_rope_layers either way
  if (value.is_number_float()) {
    const double x = value.get<double>();
    constexpr double kExact = 9007199254740992.0;
    if (std::isfinite(x) && std::abs(x) < kExact && x == std::floor(x))
      return static_cast<std::int64_t>(x);
  }
  return std::nullopt;
}

/// Of a count or a width; products of two fit 64 bits with room to spare.
constexpr std::int64_t kLargestSize = 1 << 24;

}  // namespace

const json* ConfigReader::find(std::string_view key) const {
  const auto it = object_->find(std::string(key));
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

bool ConfigReader::has(std::string_view key) const { return find(key) != nullptr; }

bool ConfigReader::is_list(std::string_view key) const {
  const json* v = find(key);
  return v != nullptr && v->is_array();
}

bool ConfigReader::is_object(std::string_view key) const {
  const json* v = find(key);
  return v != nullptr && v->is_object();
}

bool ConfigReader::is_text(std::string_view key) const {
  const json* v = find(key);
  return v != nullptr && v->is_string();
}

std::string_view ConfigReader::first_of(std::initializer_list<std::string_view> keys) const {
  for (std::string_view key : keys)
    if (has(key)) return key;
  return *keys.begin();
}

void ConfigReader::complain(std::string text) const {
  if (complaint_->ok()) *complaint_ = invalid_argument(std::move(text));
}

void ConfigReader::wrong_type(std::string_view key, const json& found,
                              std::string_view wanted) const {
  complain("config: " + where_ + std::string(key) + " is " + shown(found) + ", wanted " +
           std::string(wanted));
}

std::int64_t ConfigReader::integer(std::string_view key, std::int64_t fallback) const {
  const json* v = find(key);
  if (v == nullptr) return fallback;
  const std::optional<std::int64_t> n = as_integer(*v);
  if (!n) wrong_type(key, *v, "an integer");
  return n.value_or(fallback);
}

double ConfigReader::number(std::string_view key, double fallback) const {
  const json* v = find(key);
  if (v == nullptr) return fallback;
  const std::optional<double> x = as_number(*v);
  if (!x) wrong_type(key, *v, "a number");
  return x.value_or(fallback);
}

bool ConfigReader::flag(std::string_view key, bool fallback) const {
  const json* v = find(key);
  if (v == nullptr) return fallback;
  if (!v->is_boolean()) {
    wrong_type(key, *v, "true or false");
    return fallback;
  }
  return v->get<bool>();
}

std::string ConfigReader::text(std::string_view key, std::string fallback) const {
  const json* v = find(key);
  if (v == nullptr) return fallback;
  if (!v->is_string()) {
    wrong_type(key, *v, "a text");
    return fallback;
  }
  return v->get<std::string>();
}

int ConfigReader::size(std::string_view key, int fallback) const {
  const std::int64_t n = integer(key, fallback);
  if (n < 0 || n > kLargestSize) {
    wrong_type(key, *find(key), "a count");
    return fallback;
  }
  return static_cast<int>(n);
}

int ConfigReader::size(std::string_view key) const {
  const json* v = find(key);
  if (v == nullptr) {
    complain("config: " + where_ + std::string(key) + " is missing");
    return 1;
  }
  const std::int64_t n = integer(key, 1);
  if (n < 1 || n > kLargestSize) {
    wrong_type(key, *v, "at least 1");
    return 1;
  }
  return static_cast<int>(n);
}

std::int64_t ConfigReader::positions(std::string_view key, std::int64_t fallback) const {
  const json* v = find(key);
  if (v == nullptr) return fallback;
  const std::optional<std::int64_t> n = as_integer(*v);
  if (n && *n >= 1 && *n <= std::numeric_limits<std::int32_t>::max()) return *n;
  wrong_type(key, *v, "1 to 2147483647 positions");
  return fallback;
}

std::vector<std::int64_t> ConfigReader::integers(std::string_view key) const {
  const json* v = find(key);
  std::vector<std::int64_t> list;
  if (v == nullptr) return list;
  const auto take = [&](const json& item) {
    const std::optional<std::int64_t> n = as_integer(item);
    if (!n) wrong_type(key, item, "integers");
    list.push_back(n.value_or(0));
  };
  if (v->is_array())
    for (const json& item : *v) take(item);
  else
    take(*v);
  return list;
}

std::vector<double> ConfigReader::numbers(std::string_view key) const {
  const json* v = find(key);
  std::vector<double> list;
  if (v == nullptr) return list;
  const auto take = [&](const json& item) {
    const std::optional<double> x = as_number(item);
    if (!x) wrong_type(key, item, "numbers");
    list.push_back(x.value_or(0.0));
  };
  if (v->is_array())
    for (const json& item : *v) take(item);
  else
    take(*v);
  return list;
}

std::vector<std::string> ConfigReader::texts(std::string_view key) const {
  const json* v = find(key);
  std::vector<std::string> list;
  if (v == nullptr) return list;
  if (!v->is_array()) {
    wrong_type(key, *v, "a list of texts");
    return list;
  }
  for (const json& item : *v) {
    if (item.is_string())
      list.push_back(item.get<std::string>());
    else
      wrong_type(key, item, "texts");
  }
  return list;
}

std::optional<ConfigReader> ConfigReader::section(std::string_view key) const {
  const json* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_object()) {
    wrong_type(key, *v, "an object");
    return std::nullopt;
  }
  return ConfigReader(*v, where_ + std::string(key) + ".", *complaint_);
}

std::vector<std::string> ConfigReader::keys() const {
  std::vector<std::string> list;
  for (const auto& item : object_->items()) list.push_back(item.key());
  return list;
}

}  // namespace attune::model
