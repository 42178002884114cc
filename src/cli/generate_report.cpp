#include "cli/generate_report.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/model_options.hpp"

namespace attune::cli {
namespace {

using Json = nlohmann::ordered_json;

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

Json backends_json(const Selection& selection) {
  Json out = Json::array();
  for (const GroupSelection& group : selection.groups) {
    for (const PhaseSelection& phase : group.phases) {
      Json row = {{"layers", group.group.layers},
                  {"kind", group.group.kind},
                  {"phase", name(phase.phase)},
                  {"backend", phase.backend},
                  {"page_size", group.page_size},
                  {"chosen_by", name(phase.chosen_by)},
                  {"why", phase.why}};
      if (group.kv_layout) row["kv_layout"] = name(*group.kv_layout);
      out.push_back(std::move(row));
    }
  }
  return out;
}

double ratio(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

Json speculation_json(const runtime::EngineStatistics& s) {
  return {{"drafts", s.num_drafts},
          {"accepted", s.num_accepted_drafts},
          {"acceptance_rate", ratio(s.num_accepted_drafts, s.num_drafts)},
          {"tokens_per_step", ratio(s.decode_tokens, s.num_decodes)}};
}

Json prefix_cache_json(const runtime::Engine& engine, const runtime::EngineStatistics& s) {
  const PrefixCache* cache = engine.prefix_cache();
  const PrefixMetrics m = cache != nullptr ? cache->metrics() : PrefixMetrics{};
  return {{"enabled", cache != nullptr},
          {"cached_tokens", s.cached_tokens},
          {"hit_rate", ratio(s.cached_tokens, s.cached_tokens + s.prefill_tokens)},
          {"evicted_pages", m.evicted_pages},
          {"checkpoint_bytes", m.checkpoint_bytes}};
}

Json generation_json(const Generation& g) {
  return {{"text", g.text},
          {"prompt_tokens", g.prompt_tokens},
          {"tokens", g.tokens},
          {"finish_reason", g.finish_reason},
          {"cached_tokens", g.cached_tokens}};
}

Json graphs_json(const runtime::EngineStatistics& s) {
  return {{"recorded", s.graphs.recorded},   {"replayed", s.graphs.replayed},
          {"issued", s.graphs.issued},       {"refusal", s.graphs.refusal},
          {"replanned", s.replanning.count}, {"replanned_why", s.replanning.last_reason}};
}

/// Of a file of converted weights, as it was found; all but a complete one were then made.
const char* word_of(model::ConvertedWeights::State state) {
  switch (state) {
    case model::ConvertedWeights::State::complete: return "read";
    case model::ConvertedWeights::State::absent: return "made";
    case model::ConvertedWeights::State::other: return "made anew: of other weights";
    case model::ConvertedWeights::State::truncated: return "made anew: it was damaged";
  }
  return "";
}

}  // namespace

void print_json(const std::vector<Generation>& generations, runtime::Session& session) {
  const runtime::EngineStatistics s = session.engine().statistics();
  // One prompt has the contract's fields at the top; several have one object each.
  Json out = Json::object();
  if (generations.size() == 1) {
    out = generation_json(generations[0]);
  } else {
    out["results"] = Json::array();
    for (const Generation& g : generations) out["results"].push_back(generation_json(g));
  }
  out["backends"] = backends_json(session.selection());
  out["prefill_tokens_per_s"] = rate(s.prefill_tokens, s.prefill_seconds);
  out["decode_tokens_per_s"] = rate(s.decode_tokens, s.decode_seconds);
  out["load_s"] = session.load_seconds();
  out["peak_rss_bytes"] = runtime::peak_rss_bytes();
  out["kv_bytes"] = s.kv_bytes;
  out["weight_bytes"] = session.weight_bytes();
  if (session.converted_weights()) out["weights_cache"] = word_of(*session.converted_weights());
  out["steps"] = s.num_steps;
  out["preemptions"] = s.num_preemptions;
  out["prefix_cache"] = prefix_cache_json(session.engine(), s);
  if (session.engine().options().speculation.enabled()) out["speculation"] = speculation_json(s);
  if (s.latent.absorbed + s.latent.expanded > 0)
    out["latent"] = {{"absorbed", s.latent.absorbed},
                     {"expanded", s.latent.expanded},
                     {"prefix_chunks", s.latent.prefix_chunks}};
  if (session.ops().device() != DeviceKind::cpu) out["graphs"] = graphs_json(s);
  out["fallbacks"] = session.selection().fallbacks;
  fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void print_statistics(runtime::Session& session) {
  const runtime::EngineStatistics s = session.engine().statistics();
  print_selection(session.selection());
  if (session.engine().options().speculation.enabled()) {
    fmt::print(stderr, "speculation {} of {} drafts accepted, {:.0f} % · {:.2f} tokens a step\n",
               s.num_accepted_drafts, s.num_drafts,
               100 * ratio(s.num_accepted_drafts, s.num_drafts),
               ratio(s.decode_tokens, s.num_decodes));
  }
  if (const PrefixCache* cache = session.engine().prefix_cache(); cache != nullptr) {
    fmt::print(stderr, "prefix cache {} prompt tokens found, {:.0f} % · {} pages evicted\n",
               s.cached_tokens, 100 * ratio(s.cached_tokens, s.cached_tokens + s.prefill_tokens),
               cache->metrics().evicted_pages);
  }
  if (s.latent.absorbed + s.latent.expanded > 0)
    fmt::print(stderr, "latents {} prompt steps absorbed, {} expanded with {} chunks of prefixes\n",
               s.latent.absorbed, s.latent.expanded, s.latent.prefix_chunks);
  if (session.ops().device() != DeviceKind::cpu) {
    fmt::print(stderr, "graphs {} decode steps recorded, {} replayed, {} issued{}{}\n",
               s.graphs.recorded, s.graphs.replayed, s.graphs.issued,
               s.graphs.refusal.empty() ? "" : " · none recorded: ", s.graphs.refusal);
  }
  if (session.converted_weights())
    fmt::print(stderr, "weights cache {}\n", word_of(*session.converted_weights()));
  constexpr double kMiB = 1 << 20;
  fmt::print(stderr, "prefill {} tokens, {:.1f}/s · decode {} tokens, {:.1f}/s · load {:.2f} s\n",
             s.prefill_tokens, rate(s.prefill_tokens, s.prefill_seconds), s.decode_tokens,
             rate(s.decode_tokens, s.decode_seconds), session.load_seconds());
  fmt::print(
      stderr, "memory peak {:.0f} MiB · weights on file {:.0f} MiB · KV pool {:.1f} MiB{}\n",
      static_cast<double>(runtime::peak_rss_bytes()) / kMiB,
      static_cast<double>(session.weight_bytes()) / kMiB, static_cast<double>(s.kv_bytes) / kMiB,
      s.num_preemptions > 0 ? fmt::format(" · {} preemptions: the pool is tight", s.num_preemptions)
                            : "");
}

}  // namespace attune::cli
