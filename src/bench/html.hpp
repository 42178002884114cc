// Charts as inline SVG: a roofline and bars by case (layer bench).
#pragma once

#include <string>

namespace attune::bench {

struct Report;

[[nodiscard]] std::string to_html(const Report& report);

}  // namespace attune::bench
