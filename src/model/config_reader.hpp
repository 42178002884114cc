// Typed, named access to a JSON object (layer model). The first complaint is kept; later reads go
// on with fallbacks, so that a parser needs no check after every line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <attune/status.hpp>

namespace attune::model {

class ConfigReader {
 public:
  /// `where` names the object in complaints ("" or "text_config."); `complaint` and `object`
  /// outlive the reader.
  ConfigReader(const nlohmann::json& object, std::string where, Status& complaint)
      : object_(&object), where_(std::move(where)), complaint_(&complaint) {}

  /// Present and not null.
  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] bool is_list(std::string_view key) const;
  [[nodiscard]] bool is_object(std::string_view key) const;
  [[nodiscard]] bool is_text(std::string_view key) const;
  /// The first of `keys` that is present; the first of all where none is.
  [[nodiscard]] std::string_view first_of(std::initializer_list<std::string_view> keys) const;

  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t fallback) const;
  [[nodiscard]] double number(std::string_view key, double fallback) const;
  [[nodiscard]] bool flag(std::string_view key, bool fallback) const;
  [[nodiscard]] std::string text(std::string_view key, std::string fallback = "") const;

  /// A count or width: 0 … 2^24.
  [[nodiscard]] int size(std::string_view key, int fallback) const;
  /// A required count or width, at least 1.
  [[nodiscard]] int size(std::string_view key) const;

  /// Positions, which are 32-bit numbers: 1 … 2^31 - 1; `fallback` where absent.
  [[nodiscard]] std::int64_t positions(std::string_view key, std::int64_t fallback) const;

  /// A list, or one value standing for a list of one; empty where absent.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key) const;
  [[nodiscard]] std::vector<double> numbers(std::string_view key) const;
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const;

  /// An object inside, if it is present.
  [[nodiscard]] std::optional<ConfigReader> section(std::string_view key) const;
  [[nodiscard]] std::vector<std::string> keys() const;

  /// Keeps `text` as the complaint unless there is one already.
  void complain(std::string text) const;
  [[nodiscard]] bool ok() const { return complaint_->ok(); }

 private:
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const;
  void wrong_type(std::string_view key, const nlohmann::json& found, std::string_view wanted) const;

  const nlohmann::json* object_;
  std::string where_;
  Status* complaint_;
};

}  // namespace attune::model
