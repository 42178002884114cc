// One run of the reference: what each query keeps, and the answer of each of its heads.
#pragma once

#include <cstddef>
#include <cstdint>

#include <attune/backend.hpp>
#include <attune/spec.hpp>

#include "attention/mask.hpp"
#include "backends/reference/batch_arrays.hpp"
#include "backends/reference/kv_rows.hpp"

namespace attune::backends::reference {

/// What everything of it shares.
struct Run {
  const AttentionSpec& spec;
  const BatchArrays& batch;
  const LayerCall& call;
  const Workspace& workspace;
  KvRows k;
  KvRows v;
  KvRows compressed;  ///< keys and values

  /// Fills the lists of one query token from its indexer.
  void choose(std::int64_t token, int thread) const;
  /// Writes o and lse of one query token and query head.
  void compute(std::int64_t token, std::int64_t h, int thread) const;

 private:
  /// A query: whose it is, where it stands, which of the request's keys it may see.
  struct Query {
    std::size_t request;
    std::int64_t row;  ///< within its request
    std::int64_t position;
    attention::KeyRange keys;  ///< key indices
  };
  /// A stored key that a query attends to.
  struct Key {
    const KvRows& k;
    const KvRows& v;
    std::int64_t slot;
    std::int64_t position;
  };

  [[nodiscard]] double logit(double dot, double k_scale, std::int64_t h, std::int64_t p,
                             std::int64_t j) const;
  [[nodiscard]] double modified(double s, std::size_t request, std::int64_t h, std::int64_t p,
                                std::int64_t j) const;
  [[nodiscard]] std::int64_t query_for(std::int64_t p, std::int64_t j) const;
  [[nodiscard]] Query query_of(std::int64_t token) const;
  [[nodiscard]] std::int64_t compressed_end(const Query& q) const;
  template <class Do>
  void for_each_kept(std::int64_t token, std::int64_t kv_head, attention::KeyRange seen,
                     const Do& act) const;
  template <class Do>
  void for_each_key(const Query& q, std::int64_t token, std::int64_t h, const Do& act) const;
  void choose_blocks(std::int64_t token, int kv_head, int thread) const;
  void choose_keys(std::int64_t token, int thread) const;
};

}  // namespace attune::backends::reference
