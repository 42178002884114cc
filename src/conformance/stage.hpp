// A stage: a problem placed in a subject's memory, run step by step (layer conformance).
//
// Pages are shuffled over a pool twice as large; every byte that must not be read holds garbage,
// NaN in the float formats; tensors and workspaces lie between guards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <attune/compressed_call.hpp>
#include <attune/sparse_call.hpp>

#include "conformance/case.hpp"
#include "conformance/flex_functions.hpp"
#include "conformance/problem.hpp"

namespace attune::conformance {

struct StageOptions {
  std::uint64_t page_seed = 1;     ///< which pages a request gets
  unsigned char garbage = 0xff;    ///< in every slot that holds no key
  bool empty_cache = false;        ///< append_kv will fill it
  std::int64_t huge_elements = 0;  ///< the pool spans this many elements, mostly untouched
  bool names_groups = true;        ///< batches name their shared prefixes
};

/// Some rows of some requests, as one batch. A request's keys end with its last row's own.
struct Step {
  struct Part {
    std::int32_t request = 0;
    std::int32_t first_row = 0;
    std::int32_t num_rows = 0;
    std::int32_t num_drafts = 0;  ///< of linear attention's target_verify: the last rows
  };
  BatchForm form = BatchForm::extend;
  std::vector<Part> parts{};
};
[[nodiscard]] Step whole_step(const Case& one);

/// A step's index arrays and device tensors.
struct Prepared {
  Step step;
  std::vector<std::int32_t> qo_indptr, kv_indptr, kv_indices, kv_last_page_len;
  std::vector<std::int64_t> kv_offset, mask_indptr;
  std::vector<std::uint8_t> mask;
  std::vector<PrefixGroup> groups;
  FlexFunctions flex;
  BlockMask blocks;
  BatchView batch;
  GuardedMemory q, o, lse, k, v;
  GuardedMemory lists, index_q, index_weights, index_k;  // of an indexer
  SparseCall sparse;
  std::vector<std::int32_t> compressed_indptr, compressed_indices;
  GuardedMemory compressed_k;
  CompressedCall compressed;
  LayerCall call;
};

/// A backend's workspace, of exactly the size it asked for. Does not outlive its stage.
struct StagedWorkspace {
  GuardedMemory device;
  GuardedMemory host;
  Workspace view;
  [[nodiscard]] Status check_guards() const;
};
[[nodiscard]] Result<StagedWorkspace> stage_workspace(DeviceMemory& memory,
                                                      DeviceMemory& host_memory,
                                                      const WorkspaceSize& size, std::size_t less);

class Stage {
 public:
  static Result<std::unique_ptr<Stage>> make(const Subject& subject, const Case& one,
                                             const Problem& problem,
                                             const StageOptions& options = {});

  [[nodiscard]] Result<std::unique_ptr<Prepared>> prepare(const Step& step);
  /// `less`: bytes withheld.
  [[nodiscard]] Result<StagedWorkspace> workspace(const Backend& backend, const BatchView& batch,
                                                  std::size_t less = 0);
  [[nodiscard]] Result<StagedWorkspace> workspace(const WorkspaceSize& size, std::size_t less = 0);

  /// The indexer's tensors, or lists that are given, to where another step of this shape has them.
  Status copy_indexer(const Prepared& from, Prepared& to);
  /// Puts NaN back over o and lse.
  Status blank(Prepared& prepared);
  /// Reads o and lse into the rows of `answer`; fails when a guard or a gap between rows changed.
  Status collect(const Prepared& prepared, Answer& answer);
  /// plan, run, collect.
  Status execute(Backend& backend, const Step& step, Answer& answer);

  /// New keys of a step as append_kv wants them, in `dtype`: fills k, v and slot_mapping.
  struct Appended {
    GuardedMemory k, v, slots, index_k, compressed_k, compressed_slots;
    SparseCall sparse;
    CompressedCall compressed;
    LayerCall call;
  };
  [[nodiscard]] Result<std::unique_ptr<Appended>> prepare_append(const Step& step, DType dtype);
  /// The stored bytes of key `j` of a request, read back through the cache's strides.
  [[nodiscard]] Result<std::vector<char>> stored_rows(std::int32_t request, std::int32_t j,
                                                      bool values);
  /// … and what they are to be.
  [[nodiscard]] std::vector<char> wanted_rows(std::int32_t request, std::int32_t j,
                                              bool values) const;
  /// The pools of index keys and of compressed keys, filled with `garbage`, hold the problem's own
  /// and nothing else.
  Status check_vector_pools(unsigned char garbage);
  /// Everything in the pools, to see what changed.
  [[nodiscard]] Result<std::vector<char>> pool_bytes();

  [[nodiscard]] Answer blank_answer() const;
  [[nodiscard]] DeviceMemory& memory() { return *subject_.memory; }

 private:
  Stage(const Subject& subject, const Case& one, const Problem& problem)
      : subject_(subject), case_(one), problem_(problem) {}
  Status place(const StageOptions& options);
  void choose_pages(const StageOptions& options);
  void choose_compressed_pages(const StageOptions& options);
  Status allocate_pool(const StageOptions& options);
  Status write_keys(bool values);
  Status upload_tables();
  /// Bytes of one stored key or value.
  [[nodiscard]] std::int64_t row_bytes(bool values) const;
  [[nodiscard]] std::int64_t row_offset(bool values, std::int64_t page, std::int64_t place,
                                        std::int64_t head) const;
  // stage_vectors.cpp
  /// A pool of one vector a slot beside k_cache: of index keys, or of compressed keys.
  struct VectorPool {
    TensorView cache;  ///< [pages, slots of a page, width]
    GuardedMemory memory;
    std::shared_ptr<void> owner;                                    ///< of a huge one
    const std::vector<char>* rows = nullptr;                        ///< the problem's
    const std::vector<std::int64_t>* first = nullptr;               ///< of each request, in rows
    const std::vector<std::vector<std::int32_t>>* pages = nullptr;  ///< of each request
  };
  Status place_vectors(const StageOptions& options);
  Status allocate(VectorPool& pool, std::int64_t num_pages, const StageOptions& options);
  Status fill(VectorPool& pool);
  Status check(VectorPool& pool, unsigned char garbage);
  template <class Act>
  Status for_each_row(const VectorPool& pool, const Act& act) const;
  /// A row for each new token of a step; NaN where the pool keeps none of it.
  [[nodiscard]] std::vector<char> appended_vectors(const Step& step, const VectorPool& pool,
                                                   DType dtype, TensorView& view) const;
  // stage_compressed.cpp
  Status prepare_compressed(Prepared& p);
  Status append_compressed(const Step& step, DType dtype, Appended& made);
  /// Position behind the last token of a step's part.
  [[nodiscard]] std::int64_t end_of(const Step::Part& part) const;
  // stage_sparse.cpp
  Status prepare_sparse(Prepared& p);
  Status append_sparse(const Step& step, DType dtype, Appended& made);
  Status collect_lists(const Prepared& p, Answer& answer);
  void fill_ragged(Prepared& p);
  void fill_paged(Prepared& p);
  void fill_groups(Prepared& p);
  void fill_mask(Prepared& p) const;
  Status fill_tensors(Prepared& p);

  const Subject& subject_;
  const Case& case_;
  const Problem& problem_;
  std::unique_ptr<DeviceMemory> host_ = host_memory();
  GuardedMemory pool_;  ///< K and V pages
  std::shared_ptr<void> sparse_owner_;
  std::vector<std::vector<std::int32_t>> pages_;             ///< of each request
  std::vector<std::vector<std::int32_t>> compressed_pages_;  ///< likewise, of the other pool
  std::int64_t num_compressed_pages_ = 0;
  VectorPool index_;
  VectorPool compressed_;
  GuardedMemory sinks_, slopes_, k_scales_, v_scales_;
  LayerCall base_call_;
  std::int64_t num_pages_ = 0;
  bool names_groups_ = true;
};

}  // namespace attune::conformance
