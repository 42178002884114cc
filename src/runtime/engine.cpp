#include "runtime/engine.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "runtime/prefix_order.hpp"

namespace attune::runtime {
namespace {

double log_probability(std::span<const float> logits, std::int32_t token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - top);
  return logits[static_cast<std::size_t>(token)] - top - std::log(sum);
}

/// Of the tokens that follow `count` computed rows, as far as they are known.
void add_scores(Request& request, std::int64_t count, std::span<const float> logits) {
  const std::size_t vocab = logits.size() / static_cast<std::size_t>(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto next = static_cast<std::size_t>(request.computed + i + 1);
    if (next >= request.tokens.size()) break;
    request.scores.push_back(log_probability(
        logits.subspan(static_cast<std::size_t>(i) * vocab, vocab), request.tokens[next]));
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::make(model::Model& model, model::Ops& ops,
                                             BackendSet backends, const EngineOptions& options) {
  require(backends.groups.size() == model.groups().size() &&
              backends.attention.size() == model.groups().size(),
          "backends for every attention group");
  require(options.context_limit > 0, "a context limit");
  if (Status s = validate_speculation(options.speculation); !s.ok()) return s;
  std::unique_ptr<Engine> engine(new Engine(model, ops, std::move(backends), options));
  if (Status s = engine->allocate(); !s.ok()) return s;
  return engine;
}

Status Engine::allocate() {
  Result<KvMemory> kv = KvMemory::make(model_.config(), backends_, options_, ops_);
  if (!kv.ok()) return kv.status();
  kv_.emplace(std::move(*kv));
  auto states = RequestStates::make(model_.config(), backends_, options_, ops_);
  if (!states.ok()) return states.status();
  states_ = std::move(*states);
  auto plans = StepPlans::make(model_.config(), backends_, *kv_, options_, ops_);
  if (!plans.ok()) return plans.status();
  plans_ = std::move(*plans);
  if (ops_.device() != DeviceKind::cpu)
    replay_.emplace(model_, ops_, options_.record_decodes ? "" : "it was not wanted");
  if (options_.prefix.enabled) {
    const PrefixSharing::Setup setup{.options = options_.prefix,
                                     .granule = options_.scheduler.granule,
                                     .batch_invariant = options_.scheduler.batch_invariant,
                                     .state_bytes = states_ ? states_->pool().bytes_per_slot() : 0};
    auto sharing = PrefixSharing::make(setup, kv_->groups(), kv_->pools());
    if (!sharing.ok()) return sharing.status();
    sharing_ = std::move(*sharing);
  }
  scheduler_.emplace(options_.scheduler, kv_->groups(), kv_->pools(), sharing_.get());
  logits_.resize(static_cast<std::size_t>(model_options(options_, backends_).max_logit_rows) *
                 static_cast<std::size_t>(model_.config().vocab_size));
  statistics_.kv_bytes = kv_->storage().num_bytes();
  statistics_.state_bytes = states_ ? states_->pool().num_bytes() : 0;
  statistics_.workspace_bytes = plans_->workspace_bytes();
  return {};
}

Status Engine::check(std::span<const std::int32_t> prompt, const RequestOptions& options) const {
  if (prompt.empty()) return invalid_argument("the prompt is empty: it must hold a token");
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (length > options_.context_limit) {
    return invalid_argument("the prompt has " + std::to_string(length) +
                            " tokens and the context holds " +
                            std::to_string(options_.context_limit));
  }
  if (options.max_new_tokens < 0) return invalid_argument("a negative number of new tokens");
  if (options.want_logits && !options_.keep_logits)
    return invalid_argument("this engine was made without keep_logits");
  if (options.want_scores && !options_.score_prompts)
    return invalid_argument("this engine was made without score_prompts");
  if (Status s = validate(options.sampling); !s.ok()) return s;
  for (const std::span<const std::int32_t> tokens :
       {prompt, std::span<const std::int32_t>(options.forced_tokens)}) {
    for (std::int32_t token : tokens) {
      if (token >= 0 && token < model_.config().vocab_size) continue;
      return invalid_argument("token " + std::to_string(token) + " is outside the vocabulary of " +
                              std::to_string(model_.config().vocab_size));
    }
  }
  for (std::size_t c = 0; c < kv_->groups().size(); ++c) {
    const PagePool& pool = kv_->pools()[c];
    const std::int64_t needed = kv_->pages_of_request(c, length);
    if (needed <= pool.num_pages()) continue;
    return invalid_argument("the prompt needs " + std::to_string(needed) + " pages of " +
                            std::to_string(pool.page_size()) + " tokens and the pool has " +
                            std::to_string(pool.num_pages()) + ": make the pool larger");
  }
  return {};
}

Result<RequestId> Engine::submit(std::span<const std::int32_t> prompt,
                                 const RequestOptions& options) {
  if (Status s = check(prompt, options); !s.ok()) return s;
  auto request = std::make_unique<Request>();
  request->id = RequestId{next_id_++};
  request->options = options;
  request->tokens.assign(prompt.begin(), prompt.end());
  request->prompt_len = request->num_tokens();
  const RequestId id = request->id;
  scheduler_->submit(*request);
  requests_.emplace(id, std::move(request));
  return id;
}

void Engine::propose() {
  if (!options_.speculation.enabled()) return;
  for (auto& [id, request] : requests_) {
    request->drafts.clear();
    if (!request->may_speculate()) continue;
    // A step gives a token more than its drafts, and none beyond the request's end.
    const std::int64_t left =
        std::min(request->options.max_new_tokens - request->num_generated() - 1,
                 options_.context_limit - request->num_tokens());
    const std::int64_t length = std::min(request->pace.length(), options_.speculation.max_drafts);
    const std::int64_t limit = std::min(length, left);
    if (limit <= 0) continue;
    if (options_.speculation.propose)
      options_.speculation.propose(request->tokens, limit, request->drafts);
    else
      propose_by_lookup(request->tokens, options_.speculation, limit, request->drafts);
    require(static_cast<std::int64_t>(request->drafts.size()) <= limit, "guesses within the limit");
  }
}

Status Engine::assign_states(std::span<const ScheduledRow> rows) {
  if (!states_) return {};
  for (auto& [id, request] : requests_)
    if (request->computed == 0) states_->release(*request);  // waiting, or preempted
  for (const ScheduledRow& row : rows)
    if (Status s = states_->assign(row); !s.ok()) return s;
  return {};
}

Result<std::vector<Event>> Engine::step() {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Event> events;
  propose();
  std::vector<ScheduledRow> rows = scheduler_->schedule();
  for (auto& [id, request] : requests_) {
    if (request->finish_reason != FinishReason::failed || request->pages.empty()) continue;
    finish(*request, FinishReason::failed);
    events.push_back({.request = id, .token = {}, .finish_reason = FinishReason::failed});
  }
  if (rows.empty()) return events;
  order_by_prefix(rows);
  if (Status s = assign_states(rows); !s.ok()) return s;
  if (Status s = batch_.assign(rows, kv_->groups(), backends_.page_size, shape_of(rows)); !s.ok())
    return s;
  if (Status s = plans_->plan(batch_); !s.ok()) return s;
  if (Status s = run_model(rows); !s.ok()) return s;
  if (Status s = take_logits(rows, events); !s.ok()) return s;
  count(rows, seconds_since(start));
  return events;
}

BatchShape Engine::shape_of(std::span<const ScheduledRow> rows) const {
  BatchShape shape{.verify_as_decodes = options_.speculation.verify_as_decodes};
  if (!replay_) return shape;
  const StepPart last = rows.back().part();  // parts stand in order
  const bool drafts = last == StepPart::verify;
  if (last == StepPart::prefill || (drafts && !shape.verify_as_decodes)) return shape;
  shape.drafts_join_decodes = drafts;
  std::int64_t num_rows = 0;
  for (const ScheduledRow& row : rows) num_rows += row.num_rows();
  const std::int64_t most_requests = options_.scheduler.max_batch;
  const std::int64_t most_drafted =
      states_ ? options_.max_decode_tokens() : options_.max_decode_logits();
  shape.decode_rows = filled_up(num_rows, drafts ? most_drafted : most_requests);
  shape.logit_rows = std::min(shape.decode_rows, options_.max_decode_logits());
  // One request more has the rows that fill up.
  if (drafts && states_)
    shape.draft_requests = filled_up(static_cast<std::int64_t>(rows.size()), most_requests) + 1;
  return shape;
}

void Engine::assign_choices(std::span<const ScheduledRow> rows) {
  if (!replay_) return;
  choices_.assign(batch_.logit_rows().size(), {});
  std::size_t end = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    end += static_cast<std::size_t>(batch_.logits_per_row()[i]);
    const Request& request = *rows[i].request;
    if (!rows[i].completes() || needs_host(request)) continue;
    const auto drafts = static_cast<std::size_t>(rows[i].drafts);
    for (std::size_t at = 0; at <= drafts; ++at)
      choices_[end - drafts - 1 + at] =
          choice_of(request.options.sampling, request.tokens.size() + at);
  }
}

Status Engine::run_model(std::span<const ScheduledRow> rows) {
  const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
  assign_choices(rows);
  const model::StepInput input{.tokens = batch_.tokens(),
                               .positions = batch_.positions(),
                               .logit_rows = batch_.logit_rows(),
                               .choices = choices_,
                               .groups = plans_->groups(),
                               .kv_scales = kv_scales_,
                               .kv = &kv_->storage(),
                               .states = states_ ? &states_->pool() : nullptr,
                               .requests = batch_.requests()};
  std::int64_t wanted = 0;
  for (std::int64_t count : batch_.logits_per_row()) wanted += count;
  model_.upload(input);
  const std::int64_t edition = plans_->edition();
  if (Status s =
          edition > 0 ? replay_->compute(input, batch_.shape(), edition) : model_.compute(input);
      !s.ok())
    return s;
  // A vocabulary of logits a row stays where it is if nobody needs more than a token of them, and
  // the tokens do if nobody asked the device for one.
  if (replay_) {
    const auto on_host =
        std::ranges::count_if(rows, [](const ScheduledRow& r) { return needs_host(*r.request); });
    if (on_host < std::ssize(rows)) {
      chosen_.resize(static_cast<std::size_t>(wanted));
      if (Status s = model_.download_tokens(input, chosen_); !s.ok()) return s;
    }
    if (on_host == 0) return {};
  }
  return model_.download(input, std::span(logits_).first(static_cast<std::size_t>(wanted) * vocab));
}

std::span<const float> Engine::logits_of(std::size_t logit_row) const {
  const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
  return std::span(logits_).subspan(logit_row * vocab, vocab);
}

Status Engine::take_logits(std::span<const ScheduledRow> rows, std::vector<Event>& events) {
  const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
  std::size_t end = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ScheduledRow& row = rows[i];
    const auto count = static_cast<std::size_t>(batch_.logits_per_row()[i]);
    const std::span<const float> mine =
        std::span<const float>(logits_).subspan(end * vocab, count * vocab);
    end += count;
    Request& request = *row.request;
    if (request.options.want_scores) add_scores(request, row.count, mine);
    if (request.options.want_logits)
      request.logits.insert(request.logits.end(), mine.begin(), mine.end());
    if (row.checkpoint)
      if (Status s = states_->keep(request); !s.ok()) return s;
    scheduler_->share(row);
    if (!row.completes())
      scheduler_->advance(row);
    else if (Status s = complete(row, end - static_cast<std::size_t>(row.drafts + 1), events);
             !s.ok())
      return s;
  }
  return {};
}

void Engine::count(std::span<const ScheduledRow> rows, double seconds) {
  std::int64_t total = 0;
  std::int64_t decode_rows = 0;
  for (const ScheduledRow& row : rows) {
    total += row.num_rows();
    if (row.decode) decode_rows += row.num_rows();
  }
  const double decode_share = static_cast<double>(decode_rows) / static_cast<double>(total);
  statistics_.prefill_tokens += total - decode_rows;
  statistics_.decode_seconds += seconds * decode_share;
  statistics_.prefill_seconds += seconds * (1 - decode_share);
  ++statistics_.num_steps;
}

Result<std::int32_t> Engine::next_token(const Request& request, std::size_t logit_row) {
  const std::vector<std::int32_t>& forced = request.options.forced_tokens;
  const auto index = static_cast<std::size_t>(request.num_generated());
  if (index < forced.size()) return forced[index];
  if (!replay_ || needs_host(request))
    return sampler_.sample(logits_of(logit_row), request.tokens, request.options.sampling);
  if (chosen_[logit_row] == model::kNoToken) return Sampler::no_number();
  return chosen_[logit_row];
}

Status Engine::complete(const ScheduledRow& row, std::size_t logit_row,
                        std::vector<Event>& events) {
  Request& request = *row.request;
  const std::vector<std::int32_t> drafts = std::move(request.drafts);
  request.drafts.clear();
  // Each row's logits follow the drafts before it: they count as long as those were the tokens
  // that the logits chose. The draw depends on the position alone, so that a chosen token is the
  // one that decoding would have chosen, sampled or not.
  std::int64_t accepted = 0;
  while (true) {
    const auto at = static_cast<std::size_t>(accepted);
    if (Status s = choose_token(request, logit_row + at, events); !s.ok()) return s;
    if (request.finished() || accepted == row.drafts || request.tokens.back() != drafts[at]) break;
    ++accepted;
  }
  if (row.part() != StepPart::prefill) {
    ++statistics_.num_decodes;
    statistics_.decode_tokens += accepted + 1;
    statistics_.num_drafts += row.drafts;
    statistics_.num_accepted_drafts += accepted;
  }
  if (row.drafts > 0) request.pace.record(row.drafts, accepted);
  if (request.finished()) return {};
  // Recurrent states passed all drafts or none: of some, the next step passes them again.
  const bool all = accepted == row.drafts;
  const std::int64_t kept = all || !states_ ? accepted : 0;
  scheduler_->advance(row, kept);
  request.lag = accepted - kept;
  if (states_ && all && row.drafts > 0) std::swap(request.state_slot, request.draft_state_slot);
  return {};
}

Status Engine::choose_token(Request& request, std::size_t logit_row, std::vector<Event>& events) {
  Event event{.request = request.id, .token = {}, .finish_reason = FinishReason::none};
  const RequestOptions& options = request.options;
  if (request.num_generated() >= options.max_new_tokens) {
    event.finish_reason = FinishReason::length;
  } else {
    const Result<std::int32_t> token = next_token(request, logit_row);
    if (!token.ok()) return token.status();
    if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), *token) !=
        options.stop_tokens.end()) {
      event.finish_reason = FinishReason::stop;
    } else {
      event.token = *token;
      request.tokens.push_back(*token);
      // The last token's own logits are computed only where somebody asked for all of them.
      if (!options.want_logits && request.num_generated() >= options.max_new_tokens)
        event.finish_reason = FinishReason::length;
      else if (request.num_tokens() > options_.context_limit)
        event.finish_reason = FinishReason::context;
    }
  }
  if (event.finish_reason != FinishReason::none) finish(request, event.finish_reason);
  if (event.token || event.finish_reason != FinishReason::none) events.push_back(event);
  return {};
}

void Engine::finish(Request& request, FinishReason reason) {
  request.finish_reason = reason;
  scheduler_->remove(request);
  request.pages.clear();
  request.drafts.clear();
  if (states_) states_->release(request);
}

void Engine::cancel(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second->finished()) return;
  finish(*found->second, FinishReason::cancelled);
}

Request Engine::take(RequestId id) {
  const auto found = requests_.find(id);
  require(found != requests_.end(), "a request of this engine");
  if (!found->second->finished()) finish(*found->second, FinishReason::cancelled);
  Request request = std::move(*found->second);
  requests_.erase(found);
  return request;
}

EngineStatistics Engine::statistics() const {
  EngineStatistics statistics = statistics_;
  statistics.num_preemptions = scheduler_->num_preemptions();
  statistics.cached_tokens = scheduler_->num_cached_tokens();
  if (replay_) statistics.graphs = replay_->statistics();
  statistics.replanning = plans_->replanning();
  statistics.latent = plans_->latent();
  return statistics;
}

}  // namespace attune::runtime
