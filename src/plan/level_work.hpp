// The levels of a cascade as work for a GPU, and where the states of every row lie (layer plan).
//
// A state is a normalised fp32 output and its lse, of one token: a state row holds those of all
// query heads. Row t < num_tokens is token t's over its own keys; a level of n tokens has n rows a
// part, [part][token], behind them. A merge joins a token's rows in the order of its list.
#pragma once

#include <cstdint>
#include <vector>

#include <attune/batch.hpp>

#include "attention/mask.hpp"
#include "attention/prefill_list.hpp"
#include "plan/cascade.hpp"
#include "plan/prefill_schedule.hpp"
#include "plan/prefill_work.hpp"

namespace attune::plan {

/// How many parts a level's keys are cut into, and its first state row.
struct LevelPlace {
  std::int32_t parts = 1;
  std::int32_t first_row = 0;
};

struct StateList {
  std::vector<attention::TokenRule> rules;  ///< [tokens]
  std::vector<std::int32_t> first;          ///< [tokens + 1], of rows
  std::vector<std::int32_t> rows;           ///< state rows, token by token
};

/// What each token sees.
void list_token_rules(const BatchView& batch, const attention::MaskRule& rule,
                      std::int64_t xai_temperature_len, std::vector<attention::TokenRule>& rules);

/// The most items that levels of so many tokens, at most `levels` of them, make.
[[nodiscard]] std::int64_t max_level_items(const PrefillShape& shape, std::int64_t tokens,
                                           std::int64_t levels);

/// Tiles of 1 row block and 1 key tile that the busiest worker takes.
[[nodiscard]] std::int64_t level_time(const Cascade& cascade, const PrefillShape& shape);

/// Cuts levels so that their items give every worker about the same, within `max_rows` state rows.
/// Each level takes at least a part: find_levels has left room for it.
[[nodiscard]] std::vector<LevelPlace> place_levels(const Cascade& cascade,
                                                   const PrefillShape& shape,
                                                   std::int64_t num_tokens, std::int64_t max_rows);

/// Items of all levels, in front of those the list has; the costliest first.
void list_level_work(const BatchView& batch, const Cascade& cascade,
                     const std::vector<LevelPlace>& places, const PrefillShape& shape,
                     PrefillList& list);

/// The same for the Hopper kernel, whose tiles know neither masks nor places: rows of a KV head's
/// query heads side by side, keys counted from the level's first. Rows that read the same keys are
/// neighbours in the list.
void list_level_tiles(const BatchView& batch, const Cascade& cascade,
                      const std::vector<LevelPlace>& places, const PrefillShape& shape,
                      std::vector<PrefillTile>& tiles);

/// Whether every row of every level sees all of the level's keys.
[[nodiscard]] bool levels_are_open(const Cascade& cascade,
                                   const std::vector<attention::TokenRule>& rules);

/// Each token's state rows: its own, then those of its levels, the innermost first.
void list_states(const BatchView& batch, const Cascade& cascade,
                 const std::vector<LevelPlace>& places, StateList& list);

}  // namespace attune::plan
