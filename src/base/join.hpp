// join("page id ", 7, " is beyond ", 4): message texts without a formatting library (layer base).
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace attune::base {

namespace detail {
inline void append(std::string& text, std::string_view part) { text += part; }
template <class T>
requires std::integral<T> || std::floating_point<T>
void append(std::string& text, T number) { text += std::to_string(number); }
}  // namespace detail

template <class... Parts>
[[nodiscard]] std::string join(const Parts&... parts) {
  std::string text;
  (detail::append(text, parts), ...);
  return text;
}

}  // namespace attune::base
