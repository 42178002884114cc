// The arrays of one case: random data, permuted pages, on the machine it runs on (layer bench).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include <attune/backend.hpp>
#include <attune/compressed_call.hpp>
#include <attune/linear_state.hpp>
#include <attune/sparse_call.hpp>

#include "bench/case.hpp"
#include "bench/machine.hpp"

namespace attune::bench {

class Scene {
 public:
  /// `c` and `machine` outlive it.
  [[nodiscard]] static Result<std::unique_ptr<Scene>> make(const Case& c, KvLayout layout,
                                                           Machine& machine);

  [[nodiscard]] BatchView batch() const;
  [[nodiscard]] BatchBounds bounds() const;
  [[nodiscard]] LayerCall call() const;

 private:
  Scene(const Case& c, KvLayout layout, Machine& machine)
      : c_(c), layout_(layout), machine_(machine) {}
  void make_dense();
  void make_indexer(std::int64_t pages, std::int64_t keys_of_page);
  void make_compressed();
  void make_linear();
  /// Once something has failed, nothing more is done and status_ says what.
  TensorView random(DType dtype, std::initializer_list<std::int64_t> shape, float scale = 1.0f);
  const float* numbers(const std::vector<float>& values);
  void* filled(std::size_t bytes, const void* pattern, std::size_t pattern_bytes);

  const Case& c_;
  KvLayout layout_;
  Machine& machine_;
  Status status_{};
  std::vector<std::shared_ptr<void>> memory_;
  std::vector<std::int32_t> qo_indptr_, kv_indptr_, kv_indices_, last_page_len_, state_indices_;
  std::vector<PrefixGroup> prefix_groups_;
  LayerCall call_;
  LinearCall linear_;
  SparseCall sparse_;
  CompressedCall compressed_;
  std::vector<std::int32_t> compressed_indptr_, compressed_indices_;
  std::vector<std::int64_t> kv_offset_;
};

}  // namespace attune::bench
