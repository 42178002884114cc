// The filters, tests, methods and global functions that a template can name.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/run.hpp"
#include "text/jinja/value.hpp"

namespace attune::text::jinja {

using FilterFunction = Value (*)(Run&, const Value&, const Args&);
using TestFunction = bool (*)(Run&, const Value&, const Args&);

/// nullptr for a name that is not known.
[[nodiscard]] FilterFunction find_filter(std::string_view name);
/// The part of find_filter that looks among the filters of sequences.
[[nodiscard]] FilterFunction find_sequence_filter(std::string_view name);
[[nodiscard]] TestFunction find_test(std::string_view name);

/// A method of a string, list or mapping, bound to it.
[[nodiscard]] std::optional<Value> find_method(const Value& object, std::string_view name);

/// range, dict, namespace, raise_exception and strftime_now.
[[nodiscard]] Dict global_functions();

}  // namespace attune::text::jinja
