#include "text/jinja/json_value.hpp"

#include "text/json_reader.hpp"

namespace attune::text::jinja {
namespace {

Value convert(Run& run, const nlohmann::ordered_json& json) {
  const Run::Level level(run);
  if (run.failed()) return {};
  if (json.is_null()) return Value::none();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) return json.get<double>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return run.checked(json.get<std::string>());
  if (json.is_array()) {
    List list;
    for (const auto& item : json) list.push_back(convert(run, item));
    return run.checked(std::move(list));
  }
  Dict dict;
  for (auto it = json.begin(); it != json.end(); ++it) dict.set(it.key(), convert(run, it.value()));
  return run.checked(std::move(dict));
}

}  // namespace

Result<Value> value_from_json(Run& run, std::string_view text, std::string_view what) {
  const auto json = parse_json<nlohmann::ordered_json>(text, "the JSON of " + std::string(what));
  if (!json.ok()) return json.status();
  Value value = convert(run, *json);
  if (run.failed()) return run.status();
  return value;
}

}  // namespace attune::text::jinja
