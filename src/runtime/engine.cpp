#include "runtime/engine.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "base/math.hpp"
#include "runtime/prefix_order.hpp"

namespace attune::runtime {
namespace {

/// Of the requests that decode or verify.
std::int64_t max_decode_tokens(const EngineOptions& options) {
  return options.scheduler.max_batch * options.speculation.max_rows();
}

std::int64_t max_step_tokens(const EngineOptions& options) {
  return options.scheduler.chunk_size + max_decode_tokens(options);
}

/// Of one request in one step.
std::int64_t max_request_tokens(const EngineOptions& options) {
  return std::max(options.scheduler.chunk_size, options.speculation.max_rows());
}

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

void align_steps(EngineOptions& options, const model::ModelConfig& config, std::int32_t page_size) {
  const bool keeps_states = options.prefix.enabled && !config.linear.empty();
  if (!options.scheduler.batch_invariant && !keeps_states) return;
  options.scheduler.granule = std::lcm(kPromptGranule, std::int64_t{page_size});
  options.scheduler.chunk_size = std::max(options.scheduler.chunk_size, options.scheduler.granule);
}

model::ModelOptions model_options(const EngineOptions& options) {
  const std::int64_t rows = max_step_tokens(options);
  return {
      .max_tokens = rows,
      .max_logit_rows = options.keep_logits || options.score_prompts
                            ? rows
                            : options.scheduler.max_batch * (options.speculation.max_drafts + 1),
      .context_limit = options.context_limit};
}

Result<std::unique_ptr<Engine>> Engine::make(model::Model& model, model::Ops& ops,
                                             BackendSet backends, const EngineOptions& options) {
  require(backends.groups.size() == model.groups().size() &&
              backends.attention.size() == model.groups().size(),
          "backends for every attention group");
  require(options.context_limit > 0, "a context limit");
  if (Status s = validate_speculation(options.speculation); !s.ok()) return s;
  std::unique_ptr<Engine> engine(new Engine(model, ops, std::move(backends), options));
  if (Status s = engine->allocate_cache(); !s.ok()) return s;
  if (Status s = engine->allocate_states(); !s.ok()) return s;
  if (Status s = engine->allocate_workspaces(); !s.ok()) return s;
  if (options.prefix.enabled) {
    const PrefixSharing::Setup setup{
        .options = options.prefix,
        .granule = options.scheduler.granule,
        .batch_invariant = options.scheduler.batch_invariant,
        .state_bytes = engine->states_ ? engine->states_->bytes_per_slot() : 0};
    auto sharing = PrefixSharing::make(setup, engine->cache_groups_, engine->pools_);
    if (!sharing.ok()) return sharing.status();
    engine->sharing_ = std::move(*sharing);
  }
  engine->scheduler_.emplace(options.scheduler, engine->cache_groups_, engine->pools_,
                             engine->sharing_.get());
  const model::ModelOptions rows = model_options(options);
  engine->logits_.resize(static_cast<std::size_t>(rows.max_logit_rows) *
                         static_cast<std::size_t>(model.config().vocab_size));
  engine->parts_.resize(model.groups().size());
  engine->group_steps_.resize(model.groups().size());
  return engine;
}

Status Engine::allocate_cache() {
  cache_groups_ = cache_groups(backends_.attention, options_.scheduler.granule);
  cache_group_of_.assign(backends_.attention.size(), -1);
  const std::int32_t page_size = backends_.page_size;
  const std::int64_t context_pages =
      base::ceil_div<std::int64_t>(options_.context_limit, page_size);
  const std::int64_t pool_pages =
      options_.pool_tokens > 0 ? base::ceil_div<std::int64_t>(options_.pool_tokens, page_size)
                               : context_pages;
  std::vector<cache::LayerPages> layers(static_cast<std::size_t>(model_.config().num_layers()));
  for (std::size_t c = 0; c < cache_groups_.size(); ++c) {
    const CacheGroup& group = cache_groups_[c];
    const std::int64_t per_request = max_pages_per_request(group, options_.context_limit,
                                                           max_request_tokens(options_), page_size);
    // Of a window, as much again for prefixes that nobody uses now.
    const std::int64_t rows = options_.scheduler.max_batch * (options_.prefix.enabled ? 2 : 1);
    const std::int64_t pages =
        group.bounded() ? std::min(pool_pages, per_request * rows) : pool_pages;
    pools_.emplace_back(static_cast<std::int32_t>(pages), page_size);
    for (int g : group.attention_groups) {
      cache_group_of_[static_cast<std::size_t>(g)] = static_cast<int>(c);
      const model::AttentionGroup& attention = backends_.attention[static_cast<std::size_t>(g)];
      for (int layer : attention.layers) {
        // A layer that reads another's cache keeps nothing of its own.
        if (model_.config().layers[static_cast<std::size_t>(layer)].kv_source >= 0) continue;
        layers[static_cast<std::size_t>(layer)] = {
            .shape = {.layout = backends_.groups[static_cast<std::size_t>(g)].kv_layout,
                      .dtype = attention.spec.kv_dtype,
                      .page_size = page_size,
                      .num_kv_heads = attention.spec.num_kv_heads,
                      .head_dim_qk = attention.spec.head_dim_qk,
                      .head_dim_vo = attention.spec.head_dim_vo},
            .num_pages = static_cast<std::int32_t>(pages)};
      }
    }
  }
  const auto on_device = [this](std::size_t bytes) { return allocate_on_device(bytes); };
  Result<cache::KvStorage> storage = cache::KvStorage::make(layers, on_device);
  if (!storage.ok()) return storage.status();
  kv_.emplace(std::move(*storage));
  if (ops_.device() != DeviceKind::cpu) {
    const auto bytes = static_cast<std::size_t>(max_step_tokens(options_)) * sizeof(std::int64_t);
    for (std::size_t c = 0; c < cache_groups_.size(); ++c) {
      Result<model::Buffer> slots = ops_.allocate(bytes);
      if (!slots.ok()) return slots.status();
      device_slots_.push_back(std::move(*slots));
    }
  }
  statistics_.kv_bytes = kv_->num_bytes();
  return {};
}

Result<std::shared_ptr<void>> Engine::allocate_on_device(std::size_t bytes) {
  Result<model::Buffer> buffer = ops_.allocate(bytes);
  if (!buffer.ok()) return buffer.status();
  const auto held = std::make_shared<model::Buffer>(std::move(*buffer));
  return std::shared_ptr<void>(held, held->data());
}

Result<cache::StateMemory> Engine::state_memory(std::span<const cache::StateShape> shapes) {
  if (ops_.device() == DeviceKind::cpu) return cache::host_state_memory();
  // On a device a slot is cleared by copying a row of zeros, in the order of the stream.
  std::int64_t longest = 0;
  for (const cache::StateShape& shape : shapes)
    longest = std::max({longest, shape.recurrent_bytes(), shape.conv_bytes()});
  const std::vector<std::byte> nothing(static_cast<std::size_t>(longest));
  Result<std::shared_ptr<void>> zeros = allocate_on_device(nothing.size());
  if (!zeros.ok()) return zeros.status();
  ops_.upload(zeros->get(), nothing.data(), nothing.size());
  const auto copy = [&ops = ops_](void* to, const void* from, std::size_t bytes) {
    const DType unit = bytes % size_of(DType::f32) == 0 ? DType::f32 : DType::bf16;
    const auto view = [&](void* data) {
      return TensorView::dense(data, unit, {1, static_cast<std::int64_t>(bytes / size_of(unit))});
    };
    ops.convert(view(const_cast<void*>(from)), view(to));
  };
  return cache::StateMemory{
      .allocate = [this](std::size_t bytes) { return allocate_on_device(bytes); },
      .clear = [copy, row = *zeros](void* to, std::size_t bytes) { copy(to, row.get(), bytes); },
      .copy = copy,
      .upload = [&ops = ops_](void* to, const void* host,
                              std::size_t bytes) { ops.upload(to, host, bytes); },
      .download = [&ops = ops_](void* host, const void* from,
                                std::size_t bytes) { return ops.download(host, from, bytes); }};
}

Status Engine::allocate_states() {
  const model::ModelConfig& config = model_.config();
  if (config.linear.empty()) return {};
  std::vector<cache::StateShape> shapes(static_cast<std::size_t>(config.num_layers()));
  for (int layer = 0; layer < config.num_layers(); ++layer) {
    const model::LinearConfig* linear = config.linear_of(layer);
    if (linear == nullptr) continue;
    cache::StateShape& shape = shapes[static_cast<std::size_t>(layer)];
    if (linear->variant != Variant::short_conv) {
      shape.heads = linear->num_v_heads;
      shape.dim_v = linear->head_dim_v;
      shape.dim_k = linear->head_dim_k;
    }
    if (linear->conv_kernel > 1) {
      shape.conv_channels = linear->conv_dim;
      shape.conv_history = linear->conv_kernel - 1;
      for (const model::AttentionGroup& group : backends_.attention)
        if (is_linear(group.spec.variant) && std::ranges::count(group.layers, layer) > 0)
          shape.conv_dtype = group.spec.q_dtype;
    }
  }
  Result<cache::StateMemory> memory = state_memory(shapes);
  if (!memory.ok()) return memory.status();
  // Drafts are verified in a second slot, so that a state before them is there to go on from.
  const std::int64_t slots =
      options_.scheduler.max_batch * (options_.speculation.enabled() ? 2 : 1);
  Result<cache::StatePool> pool =
      cache::StatePool::make(shapes, static_cast<std::int32_t>(slots), std::move(*memory));
  if (!pool.ok()) return pool.status();
  states_.emplace(std::move(*pool));
  statistics_.state_bytes = states_->num_bytes();
  return {};
}

Status Engine::allocate_workspaces() {
  plans_.resize(backends_.attention.size());
  for (std::size_t g = 0; g < plans_.size(); ++g) {
    for (const StepPart part : {StepPart::decode, StepPart::verify, StepPart::prefill}) {
      if (part == StepPart::verify && !options_.speculation.enabled()) continue;
      const WorkspaceSize size =
          backends_.groups[g].of(phase_of(part, g)).workspace_size(bounds_of(part, g));
      PlanSlot& slot = plans_[g][static_cast<std::size_t>(part)];
      Result<model::Buffer> device = ops_.allocate(size.device_bytes);
      if (!device.ok()) return device.status();
      slot.device = std::move(*device);
      slot.host.resize(size.host_bytes);
      slot.workspace = {.device = slot.device.data(),
                        .device_bytes = size.device_bytes,
                        .host = slot.host.data(),
                        .host_bytes = size.host_bytes};
      statistics_.workspace_bytes += static_cast<std::int64_t>(size.device_bytes + size.host_bytes);
    }
  }
  return {};
}

Phase Engine::phase_of(StepPart part, std::size_t group) const {
  const bool decodes = part == StepPart::decode ||
                       (part == StepPart::verify && options_.speculation.verify_as_decodes &&
                        cache_group_of_[group] >= 0);
  return decodes ? Phase::decode : Phase::prefill;
}

BatchBounds Engine::bounds_of(StepPart part, std::size_t group) const {
  const int cache_group = cache_group_of_[group];
  const std::int64_t pages =
      cache_group < 0 ? 0
                      : max_pages_per_request(cache_groups_[static_cast<std::size_t>(cache_group)],
                                              options_.context_limit, max_request_tokens(options_),
                                              backends_.page_size);
  const bool decode_only = phase_of(part, group) == Phase::decode;
  const std::int64_t requests = options_.scheduler.max_batch;
  const std::int64_t drafted = max_decode_tokens(options_);
  const std::int64_t batch = part == StepPart::verify && decode_only ? drafted : requests;
  return {.max_batch = batch,
          .max_qo_tokens = part == StepPart::verify   ? drafted
                           : part == StepPart::decode ? batch
                                                      : options_.scheduler.chunk_size,
          .max_kv_entries = batch * pages,
          .max_kv_len = std::min(options_.context_limit, pages * backends_.page_size),
          .page_size = backends_.page_size,
          .decode_only = decode_only};
}

Result<RequestId> Engine::submit(std::span<const std::int32_t> prompt,
                                 const RequestOptions& options) {
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
  for (std::size_t c = 0; c < cache_groups_.size(); ++c) {
    const std::int64_t needed = max_pages_per_request(
        cache_groups_[c], length, max_request_tokens(options_), backends_.page_size);
    if (needed <= pools_[c].num_pages()) continue;
    return invalid_argument("the prompt needs " + std::to_string(needed) + " pages of " +
                            std::to_string(backends_.page_size) + " tokens and the pool has " +
                            std::to_string(pools_[c].num_pages()) + ": make the pool larger");
  }
  auto request = std::make_unique<Request>();
  request->id = RequestId{next_id_++};
  request->options = options;
  request->tokens.assign(prompt.begin(), prompt.end());
  request->prompt_len = length;
  const RequestId id = request->id;
  scheduler_->submit(*request);
  requests_.emplace(id, std::move(request));
  return id;
}

BatchView Engine::view_of(const PartBatch& part, std::size_t group) const {
  const int cache_group = cache_group_of_[group];
  return cache_group < 0 ? part.pageless : part.views[static_cast<std::size_t>(cache_group)];
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

void Engine::release_state(Request& request) {
  for (std::int32_t* const slot : {&request.state_slot, &request.draft_state_slot}) {
    if (*slot < 0) continue;
    if (Status s = states_->release(*slot); !s.ok()) require(false, s.text());
    *slot = -1;
  }
}

Status Engine::assign_states(std::span<const ScheduledRow> rows) {
  if (!states_) return {};
  for (auto& [id, request] : requests_)
    if (request->computed == 0) release_state(*request);  // waiting, or preempted: it starts over
  for (const ScheduledRow& row : rows) {
    Request& request = *row.request;
    for (std::int32_t* const slot : {&request.state_slot, &request.draft_state_slot}) {
      if (*slot >= 0 || (slot == &request.draft_state_slot && row.drafts == 0)) continue;
      const Result<std::int32_t> allocated = states_->allocate();
      if (!allocated.ok()) return allocated.status();
      *slot = *allocated;
    }
    if (Status s = resume_state(request); !s.ok()) return s;
  }
  return {};
}

Status Engine::resume_state(Request& request) {
  const auto state = std::static_pointer_cast<const cache::StateSnapshot>(
      std::exchange(request.prefix.state, nullptr));
  return state == nullptr ? Status{} : states_->restore(request.state_slot, *state);
}

Status Engine::keep_state(Request& request) {
  Result<cache::StateSnapshot> state = states_->snapshot(request.state_slot);
  if (!state.ok()) return state.status();
  request.prefix.state = std::make_shared<const cache::StateSnapshot>(std::move(*state));
  return {};
}

std::span<const std::int64_t> Engine::slots_on_device(std::size_t cache_group) const {
  const std::span<const std::int64_t> slots = batch_.slot_mapping(cache_group);
  if (device_slots_.empty()) return slots;
  return {static_cast<const std::int64_t*>(device_slots_[cache_group].data()), slots.size()};
}

Status Engine::plan_step() {
  for (std::size_t c = 0; c < device_slots_.size(); ++c) {
    const std::span<const std::int64_t> slots = batch_.slot_mapping(c);
    ops_.upload(device_slots_[c].data(), slots.data(), slots.size_bytes());
  }
  for (std::size_t g = 0; g < plans_.size(); ++g) {
    parts_[g].clear();
    for (const PartBatch& part : batch_.parts()) {
      Backend& backend = backends_.groups[g].of(phase_of(part.part, g));
      PlanSlot& slot = plans_[g][static_cast<std::size_t>(part.part)];
      Result<PlanHandle> plan = backend.plan(view_of(part, g), slot.workspace, ops_.stream());
      if (!plan.ok()) return plan.status();
      slot.plan = std::move(*plan);
      parts_[g].push_back({.first_row = part.first_row,
                           .num_rows = part.num_rows,
                           .backend = &backend,
                           .plan = slot.plan.get()});
    }
    const int cache_group = cache_group_of_[g];
    group_steps_[g] = {.parts = parts_[g], .slot_mapping = {}};
    if (cache_group >= 0)
      group_steps_[g].slot_mapping = slots_on_device(static_cast<std::size_t>(cache_group));
  }
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
  if (Status s = batch_.assign(rows, cache_groups_, backends_.page_size,
                               options_.speculation.verify_as_decodes);
      !s.ok())
    return s;
  if (Status s = plan_step(); !s.ok()) return s;

  const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
  const std::span<float> logits = std::span(logits_).first(batch_.logit_rows().size() * vocab);
  const model::StepInput input{.tokens = batch_.tokens(),
                               .positions = batch_.positions(),
                               .logit_rows = batch_.logit_rows(),
                               .groups = group_steps_,
                               .kv_scales = kv_scales_,
                               .kv = &*kv_,
                               .states = states_ ? &*states_ : nullptr};
  if (Status s = model_.forward(input, logits); !s.ok()) return s;

  std::size_t next_logit_row = 0;
  std::int64_t decode_rows = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto count = static_cast<std::size_t>(batch_.logits_per_row()[i]);
    const std::span<const float> mine = logits.subspan(next_logit_row * vocab, count * vocab);
    next_logit_row += count;
    Request& request = *rows[i].request;
    if (request.options.want_scores) add_scores(request, rows[i].count, mine);
    if (request.options.want_logits)
      request.logits.insert(request.logits.end(), mine.begin(), mine.end());
    if (rows[i].part() != StepPart::prefill) decode_rows += rows[i].num_rows();
    if (rows[i].checkpoint)
      if (Status s = keep_state(request); !s.ok()) return s;
    scheduler_->share(rows[i]);
    if (!rows[i].completes())
      scheduler_->advance(rows[i]);
    else if (Status s = complete(
                 rows[i], mine.last(vocab * static_cast<std::size_t>(rows[i].drafts + 1)), events);
             !s.ok())
      return s;
  }

  const double seconds = seconds_since(start);
  const auto total = static_cast<std::int64_t>(batch_.tokens().size());
  const double decode_share = static_cast<double>(decode_rows) / static_cast<double>(total);
  statistics_.prefill_tokens += total - decode_rows;
  statistics_.decode_seconds += seconds * decode_share;
  statistics_.prefill_seconds += seconds * (1 - decode_share);
  ++statistics_.num_steps;
  return events;
}

Result<std::int32_t> Engine::next_token(const Request& request, std::span<const float> logits) {
  const std::vector<std::int32_t>& forced = request.options.forced_tokens;
  const auto index = static_cast<std::size_t>(request.num_generated());
  if (index < forced.size()) return forced[index];
  return sampler_.sample(logits, request.tokens, request.options.sampling);
}

Status Engine::complete(const ScheduledRow& row, std::span<const float> logits,
                        std::vector<Event>& events) {
  Request& request = *row.request;
  const std::size_t vocab = logits.size() / static_cast<std::size_t>(row.drafts + 1);
  const std::vector<std::int32_t> drafts = std::move(request.drafts);
  request.drafts.clear();
  // Each row's logits follow the drafts before it: they count as long as those were the tokens
  // that the logits chose. The draw depends on the position alone, so that a chosen token is the
  // one that decoding would have chosen, sampled or not.
  std::int64_t accepted = 0;
  while (true) {
    const auto at = static_cast<std::size_t>(accepted);
    if (Status s = choose_token(request, logits.subspan(at * vocab, vocab), events); !s.ok())
      return s;
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

Status Engine::choose_token(Request& request, std::span<const float> logits,
                            std::vector<Event>& events) {
  Event event{.request = request.id, .token = {}, .finish_reason = FinishReason::none};
  const RequestOptions& options = request.options;
  if (request.num_generated() >= options.max_new_tokens) {
    event.finish_reason = FinishReason::length;
  } else {
    const Result<std::int32_t> token = next_token(request, logits);
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
  release_state(request);
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
  return statistics;
}

}  // namespace attune::runtime
