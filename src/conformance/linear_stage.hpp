// A problem of linear attention placed in a subject's memory, run step by step (layer conformance).
//
// State slots are shuffled over a pool twice as large; slots nobody owns, rows of padding and gaps
// between rows hold garbage that must be neither read nor changed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <attune/linear_state.hpp>

#include "conformance/linear_problem.hpp"
#include "conformance/stage.hpp"

namespace attune::conformance {

struct LinearStageOptions {
  std::uint64_t slot_seed = 1;
  unsigned char garbage = 0xff;
};

/// A step's index arrays and device tensors. A call points into it, so it stays where it was made.
struct LinearPrepared {
  Step step;
  std::vector<std::int32_t> qo_indptr, state_indices, draft_len, draft_states;
  BatchView batch;
  BatchBounds bounds;
  GuardedMemory input, gate, beta, o;
  LinearCall linear;
  LayerCall call;
};

class LinearStage {
 public:
  /// Refers to all three; none may move.
  static Result<std::unique_ptr<LinearStage>> make(const Subject& subject, const Case& one,
                                                   const LinearProblem& problem,
                                                   const LinearStageOptions& options = {});

  [[nodiscard]] Result<std::unique_ptr<LinearPrepared>> prepare(const Step& step);
  /// The inputs of another step of the same lengths, at the same addresses; o blank again.
  Status refill(LinearPrepared& prepared, const Step& step);
  [[nodiscard]] Result<StagedWorkspace> workspace(const WorkspaceSize& size, std::size_t less = 0);
  /// Reads o into the rows of `answer`; fails when anything around it changed.
  Status collect(const LinearPrepared& prepared, LinearAnswer& answer);
  /// plan, run, collect.
  Status execute(Backend& backend, const Step& step, LinearAnswer& answer);
  /// Reads the states into `answer`; fails when a slot that no request owns changed.
  Status collect_states(LinearAnswer& answer) { return collect_states(slots_, answer); }
  /// Likewise the states behind the drafts of a verification, where it had any.
  Status collect_draft_states(const Step& verified, LinearAnswer& answer);
  /// Puts every state back to what it was before the first token.
  Status reset();

  [[nodiscard]] LinearAnswer blank_answer() const;
  [[nodiscard]] DeviceMemory& memory() { return *subject_.memory; }

 private:
  LinearStage(const Subject& subject, const Case& one, const LinearProblem& problem)
      : subject_(subject), case_(one), problem_(problem) {}
  void choose_slots(const LinearStageOptions& options);
  Status upload_weights();
  Status collect_states(const std::vector<std::int32_t>& slots, LinearAnswer& answer);
  [[nodiscard]] std::vector<char> gather(const std::vector<char>& rows, const TensorView& view,
                                         const Step& step) const;

  const Subject& subject_;
  const Case& case_;
  const LinearProblem& problem_;
  std::unique_ptr<DeviceMemory> host_ = host_memory();
  std::int64_t num_slots_ = 0;
  std::vector<std::int32_t> slots_;        ///< of each request
  std::vector<std::int32_t> draft_slots_;  ///< likewise, for the states behind drafts
  bool drafted_ = false;                   ///< draft_slots_ were written
  std::vector<char> state_image_, conv_state_image_;
  GuardedMemory state_, conv_state_;
  std::vector<GuardedMemory> weights_;
  LinearTensors tensors_;
};

}  // namespace attune::conformance
