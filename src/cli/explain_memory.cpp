#include "cli/explain_memory.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <vector>

#include "cli/selection_options.hpp"
#include "model/cache_bytes.hpp"

namespace attune::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Memory {
  std::vector<model::CacheBytes> groups;
  double per_token = 0.0;  ///< beyond every window
  std::int64_t context = 0;

  [[nodiscard]] std::int64_t of_request(std::int64_t tokens) const {
    std::int64_t bytes = 0;
    for (const model::CacheBytes& g : groups) bytes += g.of_request(tokens);
    return bytes;
  }
  /// The longest single request that `limit` holds, up to the context.
  [[nodiscard]] std::int64_t longest_request(std::int64_t limit) const {
    std::int64_t low = 0;
    std::int64_t high = context > 0 ? context : std::int64_t{1} << 40;
    while (low < high) {
      const std::int64_t middle = low + (high - low + 1) / 2;
      if (of_request(middle) <= limit)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }
};

Memory count(const model::ModelConfig& config, const Selection& selection) {
  Memory memory{.groups = {}, .context = config.context_length};
  for (const GroupSelection& g : selection.groups) {
    memory.groups.push_back(model::cache_bytes(config, g));
    if (memory.groups.back().bounded_tokens == 0)
      memory.per_token += memory.groups.back().per_token;
  }
  return memory;
}

}  // namespace

std::string memory_json(const model::ModelConfig& config, const Selection& selection,
                        std::int64_t limit) {
  const Memory m = count(config, selection);
  Json out;
  out["groups"] = Json::array();
  for (std::size_t i = 0; i < m.groups.size(); ++i) {
    const model::CacheBytes& g = m.groups[i];
    out["groups"].push_back(
        {{"kind", selection.groups[i].group.kind},
         {"bytes_per_token", g.per_token},
         {"bounded_tokens", g.bounded_tokens > 0 ? Json(g.bounded_tokens) : Json()},
         {"state_bytes_per_request", g.per_request}});
  }
  out["bytes_per_token"] = m.per_token;
  out["context_length"] = m.context;
  out["bytes_per_request_at_context"] = m.of_request(m.context);
  if (limit > 0) {
    out["limit_bytes"] = limit;
    out["longest_request_tokens"] = m.longest_request(limit);
    const std::int64_t whole = m.of_request(m.context);
    out["requests_at_context"] = whole > 0 ? Json(limit / whole) : Json();
  }
  return out.dump();
}

std::string memory_text(const model::ModelConfig& config, const Selection& selection,
                        std::int64_t limit) {
  const Memory m = count(config, selection);
  std::string text = "memory (cache and states, without weights)\n";
  for (std::size_t i = 0; i < m.groups.size(); ++i) {
    const model::CacheBytes& g = m.groups[i];
    text += fmt::format("  {:<16}", selection.groups[i].group.kind);
    if (g.per_token > 0) text += fmt::format(" {} a token", bytes_text(g.per_token));
    if (g.bounded_tokens > 0) text += fmt::format(", at most {} tokens", g.bounded_tokens);
    if (g.per_request > 0)
      text += fmt::format("{} {} a request", g.per_token > 0 ? "," : "",
                          bytes_text(static_cast<double>(g.per_request)));
    if (g.per_token <= 0 && g.per_request <= 0) text += " nothing is kept";
    text += '\n';
  }
  const std::int64_t whole = m.of_request(m.context);
  text +=
      fmt::format("  {:<16} {} a token beyond the windows; {} a request of {} tokens\n", "together",
                  bytes_text(m.per_token), bytes_text(static_cast<double>(whole)), m.context);
  if (limit > 0) {
    text += fmt::format("  {:<16} one request of up to {} tokens",
                        "in " + bytes_text(static_cast<double>(limit)), m.longest_request(limit));
    if (whole > 0) text += fmt::format(", or {} of {} tokens", limit / whole, m.context);
    text += '\n';
  }
  return text;
}

}  // namespace attune::cli
