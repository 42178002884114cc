// Trees of draft tokens through a backend: every token of a tree answers as if its branch stood
// alone, and after the accepted branch has closed up, decoding goes on as if nothing else had been.
#include <attune/draft_tree.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <attune/validate.hpp>

#include "attention/page_table.hpp"
#include "backends/cpu/descriptor.hpp"
#include "backends/reference/descriptor.hpp"
#include "cache/kv_move.hpp"
#include "device/thread_pool.hpp"

namespace attune::conformance {
namespace {

using Tokens = std::vector<std::int32_t>;

struct Scene {
  const char* name;
  BackendFactory factory;
  KvLayout layout;
  int page_size;
  int group;
  std::int64_t window_left;
  std::int64_t chunk = 0;
};

constexpr int kKvHeads = 2;
constexpr int kDim = 40;
constexpr std::int32_t kPages = 96;

/// A number that depends on the token's identity: its position and its id.
float value(std::int64_t position, std::int64_t id, std::int64_t head, std::int64_t d, int salt) {
  const double x = std::sin(static_cast<double>(position * 7919 + id * 104729 + head * 31 + salt) +
                            0.37 * static_cast<double>(d));
  return static_cast<float>(x);
}

/// One request: its pages, and the token at each place behind each other place.
struct Sequence {
  cache::RequestPages pages;
  std::int64_t context = 0;  ///< tokens whose keys are in order
};

class Model {
 public:
  Model(const Scene& scene, Executor& executor) : scene_(scene), pool_(kPages, scene.page_size) {
    spec_ = {.num_qo_heads = kKvHeads * scene.group,
             .num_kv_heads = kKvHeads,
             .head_dim_qk = kDim,
             .head_dim_vo = kDim,
             .sm_scale = 0.4f,
             .window_left = scene.window_left,
             .attention_chunk = scene.chunk,
             .q_dtype = DType::f32,
             .o_dtype = DType::f32,
             .kv_dtype = DType::f32};
    plain_ = make(spec_, executor);
    tree_ = make(*tree_spec(spec_), executor);
    const auto floats = static_cast<std::size_t>(kPages) *
                        static_cast<std::size_t>(scene.page_size) * kKvHeads * kDim;
    k_.assign(floats, std::numeric_limits<float>::quiet_NaN());
    v_ = k_;
  }

  [[nodiscard]] const AttentionSpec& spec() const { return spec_; }
  [[nodiscard]] PagePool& pool() { return pool_; }

  [[nodiscard]] TensorView cache(std::vector<float>& memory) const {
    return scene_.layout == KvLayout::nhd
               ? TensorView::dense(memory.data(), DType::f32,
                                   {kPages, scene_.page_size, kKvHeads, kDim})
               : TensorView::dense(memory.data(), DType::f32,
                                   {kPages, kKvHeads, scene_.page_size, kDim});
  }

  /// The step's tokens at `positions` with `ids`, request by request, behind their contexts.
  /// Returns o. `mask`: of a tree, else the causal rule.
  std::vector<float> step(std::vector<Sequence*> sequences, const std::vector<std::int64_t>& counts,
                          const std::vector<std::int64_t>& positions, const Tokens& ids,
                          const TreeMask* mask, BatchForm form) {
    std::vector<std::vector<std::int32_t>> page_ids;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Sequence& s = *sequences[i];
      EXPECT_TRUE(s.pages.extend(pool_, s.context + counts[i]).ok());
      page_ids.emplace_back();
      for (const PageId page : s.pages.pages())
        page_ids.back().push_back(static_cast<std::int32_t>(page));
    }
    std::vector<attention::PageTableRow> rows;
    for (std::size_t i = 0; i < sequences.size(); ++i)
      rows.push_back(
          {.pages = page_ids[i], .kv_len = sequences[i]->context + counts[i], .qo_len = counts[i]});
    attention::PageTable table;
    EXPECT_TRUE(table.assign(rows, scene_.page_size).ok());
    BatchView batch = table.view(form);
    if (mask != nullptr) {
      batch.custom_mask = mask->bits();
      batch.custom_mask_indptr = mask->indptr();
    }
    const auto tokens = static_cast<std::int64_t>(ids.size());
    std::vector<float> q = fill(positions, ids, spec_.num_qo_heads, 1);
    std::vector<float> k = fill(positions, ids, kKvHeads, 2);
    std::vector<float> v = fill(positions, ids, kKvHeads, 3);
    std::vector<float> o(q.size(), -7.0f);
    LayerCall call{.q = view(q, tokens, spec_.num_qo_heads),
                   .o = view(o, tokens, spec_.num_qo_heads),
                   .k = view(k, tokens, kKvHeads),
                   .v = view(v, tokens, kKvHeads),
                   .slot_mapping = table.slot_mapping(),
                   .k_cache = cache(k_),
                   .v_cache = cache(v_)};
    Backend& backend = mask != nullptr ? *tree_ : *plain_;
    std::vector<std::byte> memory(backend.workspace_size(attention::bounds_of(batch)).device_bytes +
                                  256);
    void* aligned = memory.data();
    std::size_t room = memory.size();
    std::align(256, room - 256, aligned, room);
    const auto plan = backend.plan(
        batch,
        {.device = aligned,
         .device_bytes = backend.workspace_size(attention::bounds_of(batch)).device_bytes},
        {});
    EXPECT_TRUE(plan.ok()) << plan.status().text();
    if (!plan.ok()) return o;
    EXPECT_TRUE(backend.append_kv(call, {}).ok());
    const Status ran = backend.run(**plan, call, {});
    EXPECT_TRUE(ran.ok()) << ran.text();
    return o;
  }

  void close_up(Sequence& s, const Tokens& path) {
    std::vector<cache::SlotMove> moves;
    cache::path_moves(path, s.context, s.pages, scene_.page_size, moves);
    for (std::vector<float>* memory : {&k_, &v_})
      EXPECT_TRUE(cache::move_tokens(cache(*memory), scene_.layout, moves).ok());
    s.context += static_cast<std::int64_t>(path.size());
    s.pages.truncate(pool_, s.context);
  }

 private:
  std::unique_ptr<Backend> make(const AttentionSpec& spec, Executor& executor) {
    BackendContext context;
    context.spec = spec;
    context.device = cpu_device();
    context.page_size = scene_.page_size;
    context.kv_layout = scene_.layout;
    context.executor = &executor;
    auto made = scene_.factory(context);
    EXPECT_TRUE(made.ok()) << made.status().text();
    return std::move(*made);
  }

  static TensorView view(std::vector<float>& rows, std::int64_t tokens, int heads) {
    return TensorView::dense(rows.data(), DType::f32, {tokens, heads, kDim});
  }

  static std::vector<float> fill(const std::vector<std::int64_t>& positions, const Tokens& ids,
                                 int heads, int salt) {
    std::vector<float> rows;
    for (std::size_t t = 0; t < ids.size(); ++t)
      for (int h = 0; h < heads; ++h)
        for (int d = 0; d < kDim; ++d) rows.push_back(value(positions[t], ids[t], h, d, salt));
    return rows;
  }

  Scene scene_;
  PagePool pool_;
  AttentionSpec spec_;
  std::unique_ptr<Backend> plain_;
  std::unique_ptr<Backend> tree_;
  std::vector<float> k_;
  std::vector<float> v_;
};

void expect_near(const std::vector<float>& have, std::size_t have_row,
                 const std::vector<float>& want, std::size_t want_row, std::size_t width,
                 const std::string& what) {
  for (std::size_t c = 0; c < width; ++c)
    ASSERT_NEAR(have[have_row * width + c], want[want_row * width + c], 2e-5) << what;
}

class DraftTrees : public testing::TestWithParam<Scene> {};

TEST_P(DraftTrees, AnswerAsTheirBranchesAndCloseUp) {
  auto pool = device::ThreadPool::make({.num_threads = 2});
  ASSERT_TRUE(pool.ok());
  // Mixed sizes: a bush, a single token, a chain, and a tree across page borders.
  const std::vector<Tokens> parents{
      {-1, 0, 0, 1, 2, 2, 4}, {-1}, {-1, 0, 1, 2}, {-1, 0, 1, 0, 3, 4, 2, 6, 5}};
  const std::vector<std::int64_t> contexts{13, 6, 1, 30};
  const std::vector<Tokens> accepted{{0, 2, 4, 6}, {0}, {0, 1}, {0, 3, 4, 5, 8}};
  Model model(GetParam(), **pool);
  Model alone(GetParam(), **pool);
  const auto width = static_cast<std::size_t>(model.spec().num_qo_heads * kDim);

  std::vector<Sequence> sequences(parents.size());
  std::vector<Sequence*> all;
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> positions;
  Tokens ids;
  std::vector<DraftTree> trees;
  for (std::size_t i = 0; i < parents.size(); ++i) {
    std::vector<std::int64_t> places;
    for (std::int64_t p = 0; p < contexts[i]; ++p) places.push_back(p);
    const Tokens context(places.size(), static_cast<std::int32_t>(i));
    (void)model.step({&sequences[i]}, {contexts[i]}, places, context, nullptr, BatchForm::extend);
    sequences[i].context = contexts[i];
    all.push_back(&sequences[i]);
    counts.push_back(static_cast<std::int64_t>(parents[i].size()));
    trees.push_back({.parents = parents[i], .context_len = contexts[i]});
    for (std::size_t t = 0; t < parents[i].size(); ++t)
      ids.push_back(static_cast<std::int32_t>(100 * i + t));
  }
  TreeMask mask;
  ASSERT_TRUE(mask.assign(trees, model.spec()).ok());
  positions.assign(mask.positions().begin(), mask.positions().end());
  const auto o = model.step(all, counts, positions, ids, &mask, BatchForm::target_verify);

  std::size_t first = 0;
  for (std::size_t i = 0; i < parents.size(); first += parents[i].size(), ++i) {
    for (std::size_t t = 0; t < parents[i].size(); ++t) {
      // The branch of token t, as a plain sequence of its own.
      Tokens branch;
      for (auto j = static_cast<std::int32_t>(t); j >= 0;
           j = parents[i][static_cast<std::size_t>(j)])
        branch.insert(branch.begin(), static_cast<std::int32_t>(100 * i) + j);
      std::vector<std::int64_t> places;
      Tokens tokens(static_cast<std::size_t>(contexts[i]), static_cast<std::int32_t>(i));
      tokens.insert(tokens.end(), branch.begin(), branch.end());
      for (std::size_t p = 0; p < tokens.size(); ++p)
        places.push_back(static_cast<std::int64_t>(p));
      Sequence plain;
      const auto want = alone.step({&plain}, {static_cast<std::int64_t>(tokens.size())}, places,
                                   tokens, nullptr, BatchForm::extend);
      expect_near(o, first + t, want, tokens.size() - 1, width,
                  "request " + std::to_string(i) + ", token " + std::to_string(t));

      if (static_cast<std::int32_t>(t) == accepted[i].back()) {
        model.close_up(sequences[i], accepted[i]);
        const std::int64_t at = sequences[i].context;
        const auto next = model.step({&sequences[i]}, {1}, {at}, {777}, nullptr, BatchForm::decode);
        plain.context = at;
        const auto wanted = alone.step({&plain}, {1}, {at}, {777}, nullptr, BatchForm::decode);
        expect_near(next, 0, wanted, 0, width, "decode of request " + std::to_string(i));
        EXPECT_EQ(
            sequences[i].pages.pages().size(),
            static_cast<std::size_t>((at + 1 + GetParam().page_size - 1) / GetParam().page_size));
      }
      plain.pages.clear(alone.pool());
    }
  }
  for (Sequence& s : sequences) s.pages.clear(model.pool());
  EXPECT_EQ(model.pool().num_held(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, DraftTrees,
    testing::Values(Scene{"reference", backends::reference::kMake, KvLayout::nhd, 4, 3, -1},
                    Scene{"reference_window", backends::reference::kMake, KvLayout::hnd, 3, 1, 5},
                    Scene{"cpu", backends::cpu::kMake, KvLayout::nhd, 4, 3, -1},
                    Scene{"cpu_page1", backends::cpu::kMake, KvLayout::nhd, 1, 1, -1},
                    Scene{"cpu_window", backends::cpu::kMake, KvLayout::hnd, 5, 9, 3},
                    Scene{"cpu_window0", backends::cpu::kMake, KvLayout::nhd, 16, 2, 0},
                    Scene{"cpu_chunk", backends::cpu::kMake, KvLayout::hnd, 8, 4, -1, 6}),
    [](const auto& scene) { return std::string(scene.param.name); });

TEST(KvMove, RefusesSlotsOutsideTheCache) {
  std::vector<float> memory(2 * 4 * 8);
  const TensorView latent = TensorView::dense(memory.data(), DType::f32, {2, 4, 8});
  const auto move = [&](std::int64_t from, std::int64_t to) {
    return cache::move_tokens(latent, KvLayout::mla_latent,
                              std::vector<cache::SlotMove>{{from, to}})
        .code();
  };
  memory[5 * 8 + 3] = 2.5f;
  EXPECT_EQ(move(5, 2), StatusCode::ok);
  EXPECT_EQ(memory[2 * 8 + 3], 2.5f);
  EXPECT_EQ(move(8, 2), StatusCode::invalid_argument);
  EXPECT_EQ(move(0, -1), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace attune::conformance
