// Continuous batching: which requests work in the next step, and on how many tokens (layer
// runtime).
//
// Requests join and leave between steps. Running requests decode one token each; what is left of
// the step's budget goes to prompts, in order of arrival, in chunks. When pages run out, the
// cached prefixes that nobody uses go first; then the youngest running request gives all of its
// pages back and starts over later: the oldest always makes progress. Guesses at a request's next
// tokens ride along where pages are free for them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include <attune/cache.hpp>
#include <attune/status.hpp>

#include "runtime/cache_groups.hpp"
#include "runtime/prefix_sharing.hpp"
#include "runtime/request.hpp"

namespace attune::runtime {

struct SchedulerOptions {
  std::int64_t chunk_size = 512;  ///< prompt tokens a step
  std::int64_t max_batch = 16;    ///< requests that run at once
  /// Steps of a prompt end at multiples of this, or with the prompt; chunk_size holds one at least.
  std::int64_t granule = 1;
  /// A token has the same bits whatever was cached, preempted or scheduled beside it: prompts are
  /// computed as prompts to their last token, generated tokens one by one, also once again.
  bool batch_invariant = false;
};

/// What a step does with a request. Rows of one part stand together, in this order.
enum class StepPart : std::uint8_t {
  decode,   ///< one token
  verify,   ///< guesses behind it, or accepted ones before it that linear layers have yet to see
  prefill,  ///< a chunk of what is known
};
inline constexpr std::size_t kStepParts = 3;

/// One request's share of a step: its next `count` tokens, then `drafts` guesses.
struct ScheduledRow {
  Request* request = nullptr;
  std::int64_t count = 0;
  bool decode = false;      ///< the newest token, and what lags
  std::int64_t drafts = 0;  ///< leading ones of Request::drafts
  bool checkpoint = false;  ///< the recurrent states after this step are wanted

  [[nodiscard]] StepPart part() const {
    if (!decode) return StepPart::prefill;
    return num_rows() > 1 ? StepPart::verify : StepPart::decode;
  }
  [[nodiscard]] std::int64_t num_rows() const { return count + drafts; }

  /// The step reaches the request's newest token, so that its logits choose the next one.
  [[nodiscard]] bool completes() const {
    return request->computed + count == request->num_tokens();
  }
};

class Scheduler {
 public:
  /// One pool a cache group. All outlive the scheduler, as do submitted requests.
  Scheduler(const SchedulerOptions& options, std::span<const CacheGroup> groups,
            std::span<PagePool> pools, PrefixSharing* sharing = nullptr);

  void submit(Request& request);

  /// Chooses the next step's rows, part by part, and holds pages for them. Empty when nothing is
  /// left to do. A request that cannot ever run is marked failed with out_of_pages.
  [[nodiscard]] std::vector<ScheduledRow> schedule();

  /// After the step, before advance(): what it computed of a prompt is offered to others.
  void share(const ScheduledRow& row);

  /// After the step: `row.count` more tokens are in the cache, and of its drafts the first `kept`.
  /// Pages behind a window and those of the other drafts are returned.
  void advance(const ScheduledRow& row, std::int64_t kept = 0);

  /// Takes the request out, finished or not, and returns its pages.
  void remove(Request& request);

  [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty(); }
  [[nodiscard]] std::int64_t num_running() const {
    return static_cast<std::int64_t>(running_.size());
  }
  [[nodiscard]] std::int64_t num_waiting() const {
    return static_cast<std::int64_t>(waiting_.size());
  }
  [[nodiscard]] std::int64_t num_preemptions() const { return num_preemptions_; }
  /// Of prompts, which nobody had to compute.
  [[nodiscard]] std::int64_t num_cached_tokens() const { return num_cached_tokens_; }

 private:
  [[nodiscard]] bool decodes(const Request& request) const;
  /// The request's next tokens within `budget`, none if they do not reach a multiple of the
  /// granule.
  [[nodiscard]] ScheduledRow next_row(Request& request, std::int64_t budget) const;
  /// Most of what the request needs is being computed by one of `rows`.
  [[nodiscard]] bool waits_for(const Request& request, std::span<const ScheduledRow> rows) const;
  Status hold_pages(Request& request, std::int64_t end);
  void release_pages(Request& request);
  void preempt_youngest();
  /// Pages for `row`, preempting younger requests for them if it may; without its drafts if only
  /// they lack pages.
  bool make_room(ScheduledRow& row);
  void admit(std::int64_t& budget, std::vector<ScheduledRow>& rows);
  void start_over(Request& request);

  SchedulerOptions options_;
  std::span<const CacheGroup> groups_;
  std::span<PagePool> pools_;
  PrefixSharing* sharing_;
  std::deque<Request*> waiting_;
  std::vector<Request*> running_;  ///< oldest first
  std::int64_t num_preemptions_ = 0;
  std::int64_t num_cached_tokens_ = 0;
};

}  // namespace attune::runtime
