// JSON documents as template values.
#pragma once

#include <string>
#include <string_view>

#include <attune/status.hpp>

#include "text/jinja/run.hpp"

namespace attune::text::jinja {

/// `what` names the document in an error.
Result<Value> value_from_json(Run& run, std::string_view text, std::string_view what);

}  // namespace attune::text::jinja
