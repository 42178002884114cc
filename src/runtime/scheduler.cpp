#include "runtime/scheduler.hpp"

#include <algorithm>

#include "attention/mask.hpp"

namespace attune::runtime {

Scheduler::Scheduler(const SchedulerOptions& options, std::span<const CacheGroup> groups,
                     std::span<PagePool> pools, PrefixSharing* sharing)
    : options_(options), groups_(groups), pools_(pools), sharing_(sharing) {
  require(groups.size() == pools.size(), "one page pool a cache group");
  require(options.chunk_size >= options.granule && options.granule >= 1 && options.max_batch >= 1,
          "a step with room for a token");
}

void Scheduler::submit(Request& request) {
  request.pages.resize(groups_.size());
  waiting_.push_back(&request);
}

Status Scheduler::hold_pages(Request& request, std::int64_t end) {
  // All pools or none: a request stuck half way would keep others from pages it cannot use.
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::int64_t missing = request.pages[g].pages_missing(end, pools_[g].page_size());
    if (missing <= pools_[g].num_free()) continue;
    if (sharing_ != nullptr && sharing_->make_room(g, missing)) continue;
    return {StatusCode::out_of_pages,
            "request " + std::to_string(static_cast<std::int64_t>(request.id)) + " needs " +
                std::to_string(missing) + " more pages of " +
                std::to_string(pools_[g].page_size()) + " tokens for " + std::to_string(end) +
                " tokens, and the pool has " + std::to_string(pools_[g].num_free()) + " of " +
                std::to_string(pools_[g].num_pages()) + " free"};
  }
  for (std::size_t g = 0; g < groups_.size(); ++g)
    require(request.pages[g].extend(pools_[g], end).ok(), "pages that were counted are free");
  return {};
}

void Scheduler::release_pages(Request& request) {
  PrefixSharing::forget(request);
  for (std::size_t g = 0; g < groups_.size(); ++g) request.pages[g].clear(pools_[g]);
}

void Scheduler::start_over(Request& request) {
  release_pages(request);
  request.computed = 0;
  request.lag = 0;
}

void Scheduler::preempt_youngest() {
  Request* victim = running_.back();
  running_.pop_back();
  if (sharing_ != nullptr) sharing_->insert(*victim, victim->computed);
  start_over(*victim);
  victim->drafts.clear();
  victim->logits.clear();
  victim->scores.clear();
  waiting_.push_front(victim);
  ++num_preemptions_;
}

bool Scheduler::decodes(const Request& request) const {
  return options_.batch_invariant ? request.computed >= request.prompt_len : request.decoding();
}

ScheduledRow Scheduler::next_row(Request& request, std::int64_t budget) const {
  ScheduledRow row{.request = &request, .count = 1, .decode = decodes(request)};
  if (row.decode) {
    if (!request.decoding()) return row;  // after a preemption: again what it decoded before
    row.count += request.lag;
    row.drafts = static_cast<std::int64_t>(request.drafts.size());
    return row;
  }
  const std::int64_t all = options_.batch_invariant ? request.prompt_len : request.num_tokens();
  std::int64_t end = std::min(all, request.computed + budget);
  if (end < all) end = std::max(end / options_.granule * options_.granule, request.computed);
  if (sharing_ != nullptr) {
    const std::int64_t stop = sharing_->checkpoint_before(request, end);
    row.checkpoint = stop > 0;
    if (stop > 0) end = stop;
  }
  row.count = end - request.computed;
  return row;
}

bool Scheduler::make_room(ScheduledRow& row) {
  const std::int64_t end = row.request->computed + row.count;
  if (row.drafts > 0 && hold_pages(*row.request, end + row.drafts).ok()) return true;
  row.drafts = 0;  // guesses are not worth another's pages
  while (true) {
    const Status held = hold_pages(*row.request, end);
    if (held.ok()) return true;
    if (running_.back() != row.request) {
      preempt_youngest();
      continue;
    }
    if (running_.size() > 1) {
      preempt_youngest();  // itself: older requests will finish and leave pages
      return false;
    }
    row.request->finish_reason = FinishReason::failed;
    row.request->failure = held;
    return false;
  }
}

std::vector<ScheduledRow> Scheduler::schedule() {
  std::vector<ScheduledRow> rows;
  std::int64_t budget = options_.chunk_size;
  // Preemption shortens running_ from its end while this walks it from its beginning.
  for (const bool decode : {true, false}) {
    for (std::size_t i = 0; i < running_.size(); ++i) {
      Request& request = *running_[i];
      if (request.finished() || decodes(request) != decode) continue;
      ScheduledRow row = next_row(request, budget);
      if (row.count == 0 || !make_room(row)) continue;
      if (!decode) budget -= row.count;
      rows.push_back(row);
    }
  }
  // A row chosen early may have been preempted for an older request's sake.
  std::erase_if(rows, [this](const ScheduledRow& row) {
    return std::find(running_.begin(), running_.end(), row.request) == running_.end();
  });
  admit(budget, rows);
  std::stable_sort(rows.begin(), rows.end(), [](const ScheduledRow& a, const ScheduledRow& b) {
    return a.part() < b.part();
  });
  return rows;
}

void Scheduler::admit(std::int64_t& budget, std::vector<ScheduledRow>& rows) {
  while (budget > 0 && !waiting_.empty() && num_running() < options_.max_batch) {
    Request& request = *waiting_.front();
    if (sharing_ != nullptr) sharing_->match(request);
    const ScheduledRow row = next_row(request, budget);
    const bool waits = row.count == 0 || waits_for(request, rows);
    const Status held = waits ? Status{} : hold_pages(request, request.computed + row.count);
    if (waits || !held.ok()) {
      start_over(request);
      if (waits || !running_.empty()) return;  // wait for room in a step, a neighbour, or pages
      waiting_.pop_front();
      request.finish_reason = FinishReason::failed;
      request.failure = held;
      continue;
    }
    waiting_.pop_front();
    running_.push_back(&request);
    if (sharing_ != nullptr) sharing_->count(request);
    if (request.num_generated() == 0) {
      request.prefix.cached_tokens = request.computed;
      num_cached_tokens_ += request.computed;
    }
    rows.push_back(row);
    budget -= row.count;
  }
}

bool Scheduler::waits_for(const Request& request, std::span<const ScheduledRow> rows) const {
  if (sharing_ == nullptr) return false;
  const std::int64_t left = request.num_tokens() - request.computed;
  return std::ranges::any_of(rows, [&](const ScheduledRow& row) {
    if (row.part() != StepPart::prefill || row.request->options.space != request.options.space)
      return false;
    const auto computed = row.request->tokens.begin() + row.request->computed + row.count;
    const auto [mine, theirs] = std::mismatch(request.tokens.begin(), request.tokens.end(),
                                              row.request->tokens.begin(), computed);
    const std::int64_t common =
        std::min<std::int64_t>(mine - request.tokens.begin(), request.first_wanted());
    return sharing_->usable_after(common) - request.computed > left / 2;
  });
}

void Scheduler::share(const ScheduledRow& row) {
  if (sharing_ != nullptr && row.part() == StepPart::prefill)
    sharing_->insert(*row.request, row.request->computed + row.count);
}

void Scheduler::advance(const ScheduledRow& row, std::int64_t kept) {
  Request& request = *row.request;
  request.computed += row.count + kept;
  request.lag = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (row.drafts > 0) request.pages[g].truncate(pools_[g], request.computed);
    if (!groups_[g].bounded()) continue;
    request.pages[g].drop_before(pools_[g], groups_[g].first_kept(request.computed));
  }
}

void Scheduler::remove(Request& request) {
  std::erase(running_, &request);
  std::erase(waiting_, &request);
  if (request.pages.size() != groups_.size()) return;
  if (sharing_ != nullptr) sharing_->insert(request, request.computed);
  release_pages(request);
}

}  // namespace attune::runtime
