#include "cli/selection_options.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

namespace attune::cli {
namespace {

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// "0-3,7=reference" → two overrides.
Status parse_override(const std::string& text, std::vector<LayerOverride>& out) {
  const Status bad = invalid_argument("--layer-attention-backend: '" + text +
                                      "' is not RANGE=NAME, e.g. 0-3,7=reference");
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 == text.size()) return bad;
  const std::string_view ranges = std::string_view(text).substr(0, equals);
  const std::string backend = text.substr(equals + 1);
  std::size_t begin = 0;
  while (begin <= ranges.size()) {
    const std::size_t comma = std::min(ranges.find(',', begin), ranges.size());
    const std::string_view range = ranges.substr(begin, comma - begin);
    const std::size_t dash = range.find('-');
    LayerOverride layers{.backend = backend};
    if (!parse_number(range.substr(0, dash), layers.first)) return bad;
    layers.last = layers.first;
    if (dash != std::string_view::npos && !parse_number(range.substr(dash + 1), layers.last))
      return bad;
    if (layers.last < layers.first) return bad;
    out.push_back(std::move(layers));
    begin = comma + 1;
  }
  return {};
}

}  // namespace

Result<SelectionOptions> selection_options(const CommonOptions& o) {
  SelectionOptions s;
  const auto or_unified = [&](const std::string& phase) {
    return phase.empty() ? o.attention_backend : phase;
  };
  s.prefill = or_unified(o.prefill_attention_backend);
  s.decode = or_unified(o.decode_attention_backend);
  for (const std::string& text : o.layer_attention_backend)
    if (Status bad = parse_override(text, s.layers); !bad.ok()) return bad;
  if (o.page_size != "auto" && (!parse_number(std::string_view(o.page_size), s.page_size) ||
                                s.page_size < 1 || s.page_size > 256))
    return invalid_argument("--page-size is '" + o.page_size + "', wanted auto or 1 to 256");
  if (o.kv_cache_dtype != "auto") {
    s.kv_dtype = parse_dtype(o.kv_cache_dtype);
    if (!s.kv_dtype)
      return invalid_argument("--kv-cache-dtype is '" + o.kv_cache_dtype +
                              "', wanted auto, fp32, bf16, fp16, fp8_e4m3, fp8_e5m2 or int8");
  }
  s.fallback = o.fallback == "allow"    ? FallbackPolicy::allow
               : o.fallback == "forbid" ? FallbackPolicy::forbid
                                        : FallbackPolicy::warn;
  return s;
}

Result<Registry> open_registry(const CommonOptions& options) {
  return Registry::open({.plugins = options.plugins});
}

std::string layer_ranges(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(layers[i]);
    if (end > i) text += '-' + std::to_string(layers[end]);
    i = end + 1;
  }
  return text;
}

Result<std::int64_t> parse_bytes(const std::string& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr Unit kUnits[] = {{"", 1.0},
                                    {"B", 1.0},
                                    {"K", 1024.0},
                                    {"KiB", 1024.0},
                                    {"KB", 1e3},
                                    {"M", 1048576.0},
                                    {"MiB", 1048576.0},
                                    {"MB", 1e6},
                                    {"G", 1073741824.0},
                                    {"GiB", 1073741824.0},
                                    {"GB", 1e9},
                                    {"T", 1099511627776.0},
                                    {"TiB", 1099511627776.0},
                                    {"TB", 1e12}};
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (error == std::errc() && value > 0.0)
    for (const Unit& u : kUnits)
      if (u.name == unit && value * u.bytes < 9e18)
        return static_cast<std::int64_t>(value * u.bytes);
  return invalid_argument("--memory-limit is '" + text + "', wanted a size such as 24GiB or 80GB");
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024.0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", std::ceil(bytes))
                   : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace attune::cli
