#include "bench/scene.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "attention/packed_latent.hpp"
#include "base/math.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::bench {
namespace {

/// Prime: drawn once and repeated, no value is common and no two rows are alike.
constexpr std::int64_t kPeriod = 1000003;

template <class T, class Convert>
std::vector<char> narrowed(const std::vector<float>& values, Convert convert) {
  std::vector<char> bytes(values.size() * sizeof(T));
  T* const out = reinterpret_cast<T*>(bytes.data());
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = convert(values[i]);
  return bytes;
}

/// Normal numbers times `scale`, `count` of them and at most a period.
std::vector<char> noise(DType dtype, std::int64_t count, float scale) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<std::size_t>(std::min(count, kPeriod)));
  for (float& x : values) x = normal(random);
  const auto rounded = [&]<class T>(T) {
    return narrowed<T>(values, [](float x) { return tensor::round_to<T>(x); });
  };
  switch (dtype) {
    case DType::f32: return narrowed<float>(values, [](float x) { return x; });
    case DType::bf16:
      return narrowed<tensor::Bf16>(values, [](float x) { return tensor::to_bf16(x); });
    case DType::f16: return rounded(tensor::F16{});
    case DType::fp8_e4m3: return rounded(tensor::E4m3{});
    case DType::fp8_e5m2: return rounded(tensor::E5m2{});
    default:
      return narrowed<std::int8_t>(
          values, [](float x) { return tensor::round_to<std::int8_t>(x * 32.0f); });
  }
}

/// Tokens of the fp8 latent cache: normal numbers in every part, all scales 2^-7.
std::vector<char> packed_tokens(std::int64_t count) {
  namespace packed = attention::packed_latent;
  constexpr std::int64_t kTokens = 4093;
  const std::int64_t tokens = std::min(count, kTokens);
  const std::vector<char> latents = noise(DType::fp8_e4m3, tokens * packed::kLatents, 128.0f);
  const std::vector<char> rope = noise(DType::bf16, tokens * packed::kRope, 1.0f);
  const float scales[packed::kScales] = {1 / 128.0f, 1 / 128.0f, 1 / 128.0f, 1 / 128.0f};
  std::vector<char> bytes(static_cast<std::size_t>(tokens * packed::kTokenBytes));
  const auto latent_at = [&](std::int64_t i) {
    return latents[static_cast<std::size_t>(i) % latents.size()];
  };
  for (std::int64_t t = 0; t < tokens; ++t) {
    char* const token = bytes.data() + t * packed::kTokenBytes;
    for (int d = 0; d < packed::kLatents; ++d) token[d] = latent_at(t * packed::kLatents + d);
    std::memcpy(token + packed::kScalesAt, scales, sizeof scales);
    std::memcpy(token + packed::kRopeAt, rope.data() + t * 2 * packed::kRope, 2 * packed::kRope);
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<Scene>> Scene::make(const Case& c, KvLayout layout, Machine& machine) {
  std::unique_ptr<Scene> scene(new Scene(c, layout, machine));
  for (std::int64_t i = 0; i <= c.batch; ++i)
    scene->qo_indptr_.push_back(static_cast<std::int32_t>(i * c.qo_len()));
  if (is_linear(c.spec.variant)) {
    scene->make_linear();
  } else {
    scene->make_dense();
  }
  if (!scene->status_.ok()) return scene->status_;
  return scene;
}

BatchView Scene::batch() const {
  BatchView b;
  b.form = c_.phase == Phase::prefill ? BatchForm::extend : BatchForm::decode;
  b.page_size = c_.page_size;
  b.qo_indptr = qo_indptr_;
  b.kv_indptr = kv_indptr_;
  b.kv_indices = kv_indices_;
  b.kv_last_page_len = last_page_len_;
  b.state_indices = state_indices_;
  b.prefix_groups = prefix_groups_;
  b.kv_offset = kv_offset_;
  b.compressed = {.kv_indptr = compressed_indptr_, .kv_indices = compressed_indices_};
  return b;
}
BatchBounds Scene::bounds() const {
  return {.max_batch = c_.batch,
          .max_qo_tokens = c_.num_tokens(),
          .max_kv_entries = static_cast<std::int64_t>(kv_indices_.size()),
          .max_kv_len = c_.length + c_.shared,
          .max_positions = c_.spec.compress_ratio > 0 ? c_.length : 0,
          .page_size = c_.page_size,
          .decode_only = c_.phase == Phase::decode};
}
LayerCall Scene::call() const {
  LayerCall call = call_;
  call.linear = is_linear(c_.spec.variant) ? &linear_ : nullptr;
  call.sparse = c_.spec.index_topk > 0 ? &sparse_ : nullptr;
  call.compressed = c_.spec.compress_ratio > 0 ? &compressed_ : nullptr;
  return call;
}

void* Scene::filled(std::size_t bytes, const void* pattern, std::size_t pattern_bytes) {
  if (!status_.ok()) return nullptr;
  auto memory = machine_.allocate(bytes);
  status_ =
      memory.ok() ? machine_.fill(memory->get(), bytes, pattern, pattern_bytes) : memory.status();
  if (!status_.ok()) return nullptr;
  memory_.push_back(std::move(*memory));
  return memory_.back().get();
}

TensorView Scene::random(DType dtype, std::initializer_list<std::int64_t> shape, float scale) {
  TensorView view = TensorView::dense(nullptr, dtype, shape);
  const std::vector<char> pattern = noise(dtype, view.num_elements(), scale);
  view.data = filled(static_cast<std::size_t>(view.num_elements()) * size_of(dtype), pattern.data(),
                     pattern.size());
  return view;
}

const float* Scene::numbers(const std::vector<float>& values) {
  const std::size_t bytes = values.size() * sizeof(float);
  return static_cast<const float*>(filled(bytes, values.data(), bytes));
}

void Scene::make_dense() {
  const AttentionSpec& s = c_.spec;
  std::int64_t length = c_.length;
  if (s.window_left >= 0) {
    // A window's pool has taken back what the first query sees no more.
    const std::int64_t first = std::max<std::int64_t>(0, length - c_.qo_len() - s.window_left);
    kv_offset_.assign(static_cast<std::size_t>(c_.batch), first / c_.page_size * c_.page_size);
    length -= kv_offset_[0];
  }
  const std::int64_t pages = base::ceil_div<std::int64_t>(length, c_.page_size);
  const std::int64_t shared = c_.shared / c_.page_size;
  const std::int64_t all = shared + pages * c_.batch;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(all));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(11));
  for (std::int64_t i = 0; i < c_.batch; ++i) {
    kv_indices_.insert(kv_indices_.end(), ids.begin(), ids.begin() + shared);
    const auto own = ids.begin() + shared + i * pages;
    kv_indices_.insert(kv_indices_.end(), own, own + pages);
  }
  for (std::int64_t i = 0; i <= c_.batch; ++i)
    kv_indptr_.push_back(static_cast<std::int32_t>(i * (shared + pages)));
  if (shared > 0 && !c_.flat)
    prefix_groups_ = {{.num_requests = static_cast<std::int32_t>(c_.batch),
                       .num_pages = static_cast<std::int32_t>(shared)}};
  last_page_len_.assign(static_cast<std::size_t>(c_.batch),
                        static_cast<std::int32_t>(length - (pages - 1) * c_.page_size));
  call_.q = random(s.q_dtype, {c_.num_tokens(), s.num_qo_heads, s.q_columns()});
  call_.o = random(s.o_dtype, {c_.num_tokens(), s.num_qo_heads, s.head_dim_vo});
  const auto cache = [&](int dim) {
    switch (layout_) {
      case KvLayout::mla_latent_fp8: {
        const std::vector<char> pattern = packed_tokens(all * c_.page_size);
        TensorView view = TensorView::dense(
            nullptr, DType::u8, {all, c_.page_size, attention::packed_latent::kTokenBytes});
        view.data =
            filled(static_cast<std::size_t>(view.num_elements()), pattern.data(), pattern.size());
        return view;
      }
      case KvLayout::hnd: return random(s.kv_dtype, {all, s.num_kv_heads, c_.page_size, dim});
      case KvLayout::nhd: return random(s.kv_dtype, {all, c_.page_size, s.num_kv_heads, dim});
      default: return random(s.kv_dtype, {all, c_.page_size, dim});
    }
  };
  call_.k_cache = cache(s.head_dim_qk);
  call_.v_cache = is_latent(s.variant) ? TensorView{} : cache(s.head_dim_vo);
  if (s.kv_scales) call_.k_scale = call_.v_scale = s.kv_dtype == DType::i8 ? 1.0f / 32 : 0.5f;
  if (s.sinks) call_.sinks = random(DType::f32, {s.num_qo_heads}).as<float>();
  if (s.compress_ratio > 0)
    make_compressed();
  else if (s.index_topk > 0)
    make_indexer(all, c_.page_size);
}

void Scene::make_compressed() {
  const AttentionSpec& s = c_.spec;
  const std::int64_t keys_of_page = c_.page_size / s.compress_ratio;
  const std::int64_t pages = base::ceil_div(c_.length / s.compress_ratio, keys_of_page);
  compressed_indices_.resize(static_cast<std::size_t>(pages * c_.batch));
  std::iota(compressed_indices_.begin(), compressed_indices_.end(), 0);
  std::shuffle(compressed_indices_.begin(), compressed_indices_.end(), std::mt19937(13));
  for (std::int64_t i = 0; i <= c_.batch; ++i)
    compressed_indptr_.push_back(static_cast<std::int32_t>(i * pages));
  compressed_.cache = random(s.kv_dtype, {pages * c_.batch, keys_of_page, s.head_dim_qk});
  if (s.index_topk > 0) make_indexer(pages * c_.batch, keys_of_page);
}

void Scene::make_indexer(std::int64_t pages, std::int64_t keys_of_page) {
  const AttentionSpec& s = c_.spec;
  const std::int64_t n = c_.num_tokens();
  const bool blocks = s.index_block_size > 0;
  sparse_ = {.topk_indices = blocks ? random(DType::f32, {n, s.index_lists(), s.index_topk})
                                    : random(DType::f32, {n, s.index_topk}),
             .index_q = random(s.q_dtype, {n, s.index_num_heads, s.index_head_dim}),
             .index_cache = random(s.index_dtype, {pages, keys_of_page, s.index_head_dim})};
  if (!blocks) sparse_.index_weights = random(DType::f32, {n, s.index_num_heads});
  sparse_.topk_indices.dtype = DType::i32;  // written before they are read
}

void Scene::make_linear() {
  const AttentionSpec& s = c_.spec;
  const std::int64_t n = c_.num_tokens();
  const std::int64_t hk = s.linear_num_k_heads;
  const std::int64_t hv = s.linear_num_v_heads;
  const std::int64_t dk = s.linear_head_dim_k;
  const std::int64_t dv = s.linear_head_dim_v;
  for (std::int64_t i = 0; i < c_.batch; ++i)
    state_indices_.push_back(static_cast<std::int32_t>(i));
  const auto pointer = [&](std::int64_t count, float scale) {
    return random(DType::f32, {count}, scale).as<float>();
  };
  if (s.conv_kernel > 0) {
    linear_.conv_input = random(s.q_dtype, {n, s.conv_dim});
    linear_.conv_weight = pointer(s.conv_dim * s.conv_kernel, 0.5f);
    linear_.conv_state = random(s.q_dtype, {c_.batch, s.conv_dim, s.conv_kernel - 1});
  } else {
    linear_.q = random(s.q_dtype, {n, hk * dk});
    linear_.k = random(s.q_dtype, {n, hk * dk});
    linear_.v = random(s.q_dtype, {n, hv * dv});
  }
  linear_.gate = random(s.q_dtype, {n, s.variant == Variant::kda ? hv * dk : hv});
  linear_.beta = random(s.q_dtype, {n, hv});
  linear_.a_log = pointer(hv, 0.5f);
  linear_.dt_bias = pointer(hv * dk, 0.5f);
  std::vector<float> slopes(static_cast<std::size_t>(hv));
  for (std::size_t h = 0; h < slopes.size(); ++h) slopes[h] = 1.0f / static_cast<float>(2 + h);
  linear_.slopes = numbers(slopes);
  linear_.state = random(DType::f32, {c_.batch, hv, dv, dk}, 0.1f);
  call_.o = random(s.o_dtype, {n, hv * dv});
}

}  // namespace attune::bench
