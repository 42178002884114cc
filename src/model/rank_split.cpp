#include "model/rank_split.hpp"

#include <string_view>

#include "base/join.hpp"

namespace attune::model {
namespace {

using base::join;

constexpr int kMostRanks = 1024;

class Split {
 public:
  explicit Split(int ranks) : ranks_(ranks) {}

  void divide(int& heads, std::string_view what) {
    if (heads % ranks_ != 0)
      refuse(join(heads, " ", what, " do not divide over ", ranks_, " ranks"));
    else
      heads /= ranks_;
  }
  void divide_or_share(int& heads, std::string_view what) {
    if (heads % ranks_ == 0)
      heads /= ranks_;
    else if (heads > 0 && ranks_ % heads == 0)
      heads = 1;
    else
      refuse(join(heads, " ", what, " neither divide over ", ranks_, " ranks nor these over them"));
  }
  void split(AttentionConfig& a) {
    divide(a.num_qo_heads, "query heads");
    if (a.kv_lora_rank > 0)
      divide(a.num_kv_heads, "heads of expanded keys");
    else
      divide_or_share(a.num_kv_heads, "KV heads");
  }
  void split(LinearConfig& l) {
    if (l.variant == Variant::short_conv) return divide(l.conv_dim, "channels of a convolution");
    divide(l.num_v_heads, "linear value heads");
    divide_or_share(l.num_k_heads, "linear key heads");
    if (l.conv_dim > 0)
      l.conv_dim = 2 * l.num_k_heads * l.head_dim_k + l.num_v_heads * l.head_dim_v;
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  void refuse(std::string text) {
    if (status_.ok()) status_ = invalid_argument(std::move(text));
  }

  int ranks_;
  Status status_;
};

}  // namespace

Result<ModelConfig> rank_of(const ModelConfig& model, int ranks) {
  if (ranks < 1 || ranks > kMostRanks)
    return invalid_argument(join("ranks are ", ranks, ", wanted 1 to ", kMostRanks));
  ModelConfig rank = model;
  Split split(ranks);
  for (AttentionConfig& a : rank.attention) split.split(a);
  for (LinearConfig& l : rank.linear) split.split(l);
  if (!split.status().ok()) return split.status();
  return rank;
}

}  // namespace attune::model
