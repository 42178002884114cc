// An indexer on a GPU: every query token's keys are scored, the best are kept, and slots say where
// those lie. Tokens are scored some at a time; a plan says which, each layer's run finds keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include <attune/backend.hpp>
#include <attune/sparse_call.hpp>

#include "backends/shared/cuda/score_list.hpp"
#include "kernels/tensor_map/tensor_map.hpp"
#include "plan/workspace.hpp"
#include "plan/workspace_image.hpp"

namespace attune::backends::shared::cuda {

/// Scores that are kept at once: rows of as many tokens as fit, these many at least.
inline constexpr std::int64_t kScores = 8 << 20;
inline constexpr std::int64_t kLeastScoreRows = 128;

/// Of tokens that see up to max_keys keys. No more for fewer or shorter ones.
[[nodiscard]] constexpr std::int64_t room_for_scores(std::int64_t tokens, std::int64_t max_keys) {
  return std::min(tokens * max_keys, std::max(kScores, kLeastScoreRows * max_keys));
}
/// Tokens of which `scores` numbers hold a row each.
[[nodiscard]] constexpr std::int64_t score_rows(std::int64_t scores, std::int64_t tokens,
                                                std::int64_t max_keys) {
  const std::int64_t all = std::max<std::int64_t>(1, tokens);
  return max_keys == 0 ? all : std::clamp<std::int64_t>(scores / max_keys, 1, all);
}

/// Places of a workspace. A backend's own parts stand around the scores and behind the lists.
struct SelectionParts {
  float* scores = nullptr;                                     ///< [rows, keys a token may see]
  kernels::index_scores::sm90::Group* score_groups = nullptr;  ///< [tokens]; the lists' first
  kernels::index_scores::sm90::Share* score_shares = nullptr;  ///< [launches, score_blocks]
  std::int32_t* visible = nullptr;                             ///< [tokens]: keys of each
  std::int32_t* entry_begin = nullptr;                         ///< [tokens]: where its pages begin
};

/// The lists of `tokens` tokens, `rows` of which are scored at once. Counted and handed out by the
/// same lines.
void cut_selection(plan::WorkspaceCutter& cut, std::int64_t tokens, std::int64_t rows,
                   std::int32_t score_blocks, SelectionParts& parts);

/// A plan's share of it: places in device memory, and the list that lies there.
struct Selection {
  std::int64_t tokens = 0;
  std::int64_t max_keys = 0;  ///< that a token may come to see
  std::int32_t page_size = 1;
  SelectionParts parts{};
  const std::int32_t* kv_indices = nullptr;

  std::int32_t* slots = nullptr;  ///< [tokens, slots_stride]
  std::int64_t slots_stride = 0;
  const std::int32_t* slots_before = nullptr;  ///< [tokens], or none: places that are taken
  std::int32_t* kept = nullptr;                ///< [tokens]: slots in all

  // By Selector::begin: a captured launch keeps to them.
  ScoreRules rules{};
  kernels::index_scores::sm90::Instance kernel{};  ///< none: heads as lanes

  ScoreList list{};
};

/// Refuses a batch with a token that sees more keys than its plan's workspace has room for.
[[nodiscard]] Status check_seen(const Selection& selection,
                                const std::vector<std::int32_t>& visible);

/// Lists what is scored where and puts it, with what tokens see, on the plan's image.
void put_selection(const std::vector<std::int32_t>& visible,
                   const std::vector<std::int32_t>& entry_begin, Selection& selection,
                   plan::WorkspaceImage& image);

class Selector {
 public:
  /// Why the spec's indexer is not served; asked before anything of CUDA is touched.
  [[nodiscard]] static Status check_spec(std::string_view backend, const AttentionSpec& spec);
  /// On the device that is current.
  [[nodiscard]] static Result<Selector> make(const AttentionSpec& spec, int num_sms);

  [[nodiscard]] std::int32_t score_blocks() const { return num_sms_; }
  /// Rules and kernel, for a plan whose first batch's longest query has so many tokens.
  void begin(std::int64_t longest_query, std::int64_t rows, Selection& selection) const;

  [[nodiscard]] static Status check_call(const Selection& selection, const SparseCall& call);
  /// Lists, slots and counts of all tokens, by scores or from lists that the call brings.
  [[nodiscard]] Status select(const Selection& selection, const SparseCall& call,
                              Stream stream) const;

 private:
  Selector(const AttentionSpec& spec, kernels::tensor_map::Encoder encoder, int num_sms)
      : spec_(spec), encoder_(encoder), num_sms_(num_sms) {}

  [[nodiscard]] int sharers(std::int64_t tokens, std::int64_t max_keys) const;
  [[nodiscard]] Status score(const Selection& selection, const SparseCall& call, std::int64_t first,
                             std::int64_t tokens, Stream stream) const;

  AttentionSpec spec_;
  kernels::tensor_map::Encoder encoder_;
  int num_sms_;
};

}  // namespace attune::backends::shared::cuda
