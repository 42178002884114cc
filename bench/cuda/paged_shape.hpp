// What a batch of paged prefill is, and its numbers of operations.
#pragma once

#include <string>
#include <vector>

#include "backends/shared/cuda/hopper_tiles.hpp"

namespace attune::bench {

struct Shape {
  std::string name;
  std::vector<int> qo_len = {}, kv_len = {};
  int qo_heads = 32;
  int kv_heads = 8;
  int dim_qk = 128;
  int dim_vo = 128;
  int page = 64;
  bool hnd = false;
  bool causal = true;
  int window_left = -1;
  float soft_cap = 0.0f;
  bool sinks = false;
  bool alibi = false;
  bool custom_mask = false;
  bool hopper = false;  ///< flashinfer, which may take Hopper's tiles …
  backends::shared::hopper::Keys keys = backends::shared::hopper::Keys::by_cost;  ///< … over these
};

}  // namespace attune::bench
