// Score and mask functions of the program's own (layer attention): FlexAttention, arXiv:2412.05496.
//
//   s = sm_scale * q . k                             natural units, fp32
//   s = score_mod(s, request, head, q_position, kv_position)
//   s = -infinity  where not mask_mod(request, head, q_position, kv_position)
//   o = softmax(s) . v
//
// A mask function is called for every pair of query and key once a batch, when make_block_mask turns
// it into blocks: hidden ones are never read, whole ones cost nothing. A score function is called in
// run, by the threads of the executor, with the logits of one query and neighbouring keys.
//
//   // Once: what the layers ask for.
//   spec.score_mod = spec.block_mask = true;
//   // Each step: documents packed into one request see their own keys, and no later ones.
//   const auto same_document = [&](const FlexPair& at) {
//     return at.kv_position <= at.q_position && document[at.q_position] == document[at.kv_position];
//   };
//   Result<BlockMask> mask = make_block_mask(mask_function(same_document), batch, 1);
//   batch.block_mask = mask->view();                   // then plan(batch, ...)
//   // Each layer: distance costs what this layer's slopes say.
//   const auto decay = [&](float s, const FlexPair& at) {
//     return s - slope[at.qo_head] * static_cast<float>(at.q_position - at.kv_position);
//   };
//   call.score_mod = score_function(decay);            // then run(plan, call, ...)
//
// Positions are absolute, so a function means the same however a prompt is cut into steps: a query
// stands where BatchView puts it, a key at kv_offset + its place in the page table. examples/flex is
// a whole program.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <attune/batch.hpp>
#include <attune/score_mod.hpp>
#include <attune/status.hpp>

namespace attune {

/// A mask function and what it reads, for make_block_mask.
struct MaskMod {
  /// Whether the key is seen.
  bool (*sees)(const FlexPair& at, const void* context) = nullptr;
  const void* context = nullptr;
};

/// `see(const FlexPair&) -> bool`, kept by reference: it must outlive the call that it is given to.
template <class See>
[[nodiscard]] MaskMod mask_function(const See& see) {
  return {.sees = [](const FlexPair& at, const void* context) -> bool {
            return (*static_cast<const See*>(context))(at);
          },
          .context = &see};
}

/// A mask by blocks, for one batch: BatchView::block_mask takes its view.
class BlockMask {
 public:
  [[nodiscard]] BlockMaskView view() const {
    return {.num_heads = num_heads_, .indptr = indptr_, .blocks = blocks_, .bits = bits_};
  }
  /// The part of all pairs of query and key that lies in hidden blocks, 0 … 1.
  [[nodiscard]] double sparsity() const;

 private:
  friend Result<BlockMask> make_block_mask(const MaskMod& mask, const BatchView& batch,
                                           int num_heads);
  int num_heads_ = 1;
  std::vector<std::int64_t> indptr_;
  std::vector<std::int32_t> blocks_;
  std::vector<std::uint8_t> bits_;
};

/// Asks `mask` about every pair of the batch's queries and keys. `num_heads`: 1 for a mask that all
/// heads share (qo_head is 0 then), or the spec's num_qo_heads. Needs the batch's qo_indptr and page
/// tables (or ragged kv_indptr), and its kv_offset if there is one; invalid_argument where there is
/// no function, or num_heads is less than 1.
[[nodiscard]] Result<BlockMask> make_block_mask(const MaskMod& mask, const BatchView& batch,
                                                int num_heads);

}  // namespace attune
