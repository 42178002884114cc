// What filters and methods of strings share.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/run.hpp"

namespace attune::text::jinja {

/// The argument at `index` or called `name`; nullptr where it is neither. Absent and none differ.
[[nodiscard]] const Value* argument(const Args& args, std::size_t index, std::string_view name);

/// A string argument; `otherwise` where it is absent or none, a failure where it is something else.
[[nodiscard]] std::string string_argument(Run& run, const Args& args, std::size_t index,
                                          std::string_view name, std::string_view otherwise = {});
[[nodiscard]] std::int64_t integer_argument(Run& run, const Args& args, std::size_t index,
                                            std::string_view name, std::int64_t otherwise);
[[nodiscard]] bool flag_argument(const Args& args, std::size_t index, std::string_view name,
                                 bool otherwise);

enum class Side { left, right, both };
/// str.strip: off the ends go white space, or the characters in `chars` where there are any.
[[nodiscard]] std::string_view strip(std::string_view text, std::string_view chars, Side side);

/// str.replace: at most `count` times where that is not negative.
[[nodiscard]] Value replace(Run& run, std::string_view text, std::string_view from,
                            std::string_view to, std::int64_t count);

[[nodiscard]] std::int64_t count_chars(std::string_view text);

/// The characters first to last - 1, counted in characters; 0 <= first <= last.
[[nodiscard]] std::string_view chars_between(std::string_view text, std::int64_t first,
                                             std::int64_t last);

[[nodiscard]] std::string capitalize(std::string_view text);

}  // namespace attune::text::jinja
