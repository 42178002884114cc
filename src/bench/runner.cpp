#include "bench/runner.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <attune/linear_state.hpp>

#include "base/join.hpp"
#include "base/math.hpp"
#include "bench/ceilings.hpp"
#include "device/host_memory.hpp"
#include "tensor/narrow_float.hpp"

namespace attune::bench {
namespace {

using base::join;

constexpr std::int64_t kCeilingBytes = std::int64_t{1} << 30;
constexpr std::int64_t kFlushBytes = std::int64_t{192}
                                     << 20;  // several times the largest last-level cache share
constexpr double kLatencySeconds = 20e-6;    // below this the floor is launch and wake-up, not work

/// As an engine allocates it.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : data_(device::host_memory(bytes)), bytes_(bytes) {
    require(data_ != nullptr, "there is memory for the case");
  }
  [[nodiscard]] void* data() const { return data_.get(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<void> data_;
  std::size_t bytes_;
};

/// Random numbers of any dtype, drawn once and repeated with a prime period: cheap, and no value is
/// common.
class Noise {
 public:
  Noise() : values_(kPeriod) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (float& x : values_) x = normal(random);
  }
  void fill(void* data, DType dtype, std::int64_t n, float scale, Executor& executor) const {
    Job job{this, data, dtype, n, scale};
    executor.run(
        base::ceil_div(n, kPiece),
        [](void* context, std::int64_t piece, int) {
          const Job& j = *static_cast<const Job*>(context);
          j.noise->fill_piece(j, piece * kPiece, std::min(j.n, (piece + 1) * kPiece));
        },
        &job);
  }

 private:
  static constexpr std::int64_t kPeriod = 1000003;
  static constexpr std::int64_t kPiece = 1 << 18;
  struct Job {
    const Noise* noise;
    void* data;
    DType dtype;
    std::int64_t n;
    float scale;
  };
  void fill_piece(const Job& j, std::int64_t first, std::int64_t last) const {
    for (std::int64_t i = first; i < last; ++i) {
      const float x = values_[static_cast<std::size_t>(i % kPeriod)] * j.scale;
      switch (j.dtype) {
        case DType::f32: static_cast<float*>(j.data)[i] = x; break;
        case DType::bf16: static_cast<tensor::Bf16*>(j.data)[i] = tensor::to_bf16(x); break;
        case DType::f16:
          static_cast<tensor::F16*>(j.data)[i] = tensor::round_to<tensor::F16>(x);
          break;
        case DType::fp8_e4m3:
          static_cast<tensor::E4m3*>(j.data)[i] = tensor::round_to<tensor::E4m3>(x);
          break;
        case DType::fp8_e5m2:
          static_cast<tensor::E5m2*>(j.data)[i] = tensor::round_to<tensor::E5m2>(x);
          break;
        default:
          static_cast<std::int8_t*>(j.data)[i] = tensor::round_to<std::int8_t>(x * 32.0f);
          break;
      }
    }
  }
  std::vector<float> values_;
};

/// The arrays and tensors of one case.
class Scene {
 public:
  Scene(const Case& c, KvLayout layout, Executor& executor)
      : c_(c), layout_(layout), executor_(executor) {
    for (std::int64_t i = 0; i <= c.batch; ++i)
      qo_indptr_.push_back(static_cast<std::int32_t>(i * c.qo_len()));
    if (is_linear(c.spec.variant)) {
      make_linear();
    } else {
      make_dense();
    }
  }

  [[nodiscard]] BatchView batch() const {
    BatchView b;
    b.form = c_.phase == Phase::prefill ? BatchForm::extend : BatchForm::decode;
    b.page_size = c_.page_size;
    b.qo_indptr = qo_indptr_;
    b.kv_indptr = kv_indptr_;
    b.kv_indices = kv_indices_;
    b.kv_last_page_len = last_page_len_;
    b.state_indices = state_indices_;
    b.prefix_groups = prefix_groups_;
    return b;
  }
  [[nodiscard]] BatchBounds bounds() const {
    return {.max_batch = c_.batch,
            .max_qo_tokens = c_.num_tokens(),
            .max_kv_entries = static_cast<std::int64_t>(kv_indices_.size()),
            .max_kv_len = c_.length + c_.shared,
            .page_size = c_.page_size,
            .decode_only = c_.phase == Phase::decode};
  }
  [[nodiscard]] LayerCall call() const {
    LayerCall call = call_;
    call.linear = is_linear(c_.spec.variant) ? &linear_ : nullptr;
    return call;
  }

 private:
  TensorView random(DType dtype, std::initializer_list<std::int64_t> shape, float scale = 1.0f) {
    TensorView view = TensorView::dense(nullptr, dtype, shape);
    memory_.emplace_back(static_cast<std::size_t>(view.num_elements()) * size_of(dtype));
    view.data = memory_.back().data();
    noise_.fill(view.data, dtype, view.num_elements(), scale, executor_);
    return view;
  }

  void make_dense() {
    const AttentionSpec& s = c_.spec;
    const std::int64_t pages = base::ceil_div<std::int64_t>(c_.length, c_.page_size);
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
                          static_cast<std::int32_t>(c_.length - (pages - 1) * c_.page_size));
    call_.q = random(s.q_dtype, {c_.num_tokens(), s.num_qo_heads, s.head_dim_qk});
    call_.o = random(s.o_dtype, {c_.num_tokens(), s.num_qo_heads, s.head_dim_vo});
    const auto cache = [&](int dim) {
      switch (layout_) {
        case KvLayout::hnd: return random(s.kv_dtype, {all, s.num_kv_heads, c_.page_size, dim});
        case KvLayout::nhd: return random(s.kv_dtype, {all, c_.page_size, s.num_kv_heads, dim});
        default: return random(s.kv_dtype, {all, c_.page_size, dim});
      }
    };
    call_.k_cache = cache(s.head_dim_qk);
    call_.v_cache = s.variant == Variant::mla ? TensorView{} : cache(s.head_dim_vo);
    if (s.kv_scales) call_.k_scale = call_.v_scale = s.kv_dtype == DType::i8 ? 1.0f / 32 : 0.5f;
  }

  void make_linear() {
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
    float* slopes = pointer(hv, 1.0f);
    for (std::int64_t h = 0; h < hv; ++h) slopes[h] = 1.0f / static_cast<float>(2 + h);
    linear_.slopes = slopes;
    linear_.state = random(DType::f32, {c_.batch, hv, dv, dk}, 0.1f);
    call_.o = random(s.o_dtype, {n, hv * dv});
  }

  const Case& c_;
  KvLayout layout_;
  Executor& executor_;
  Noise noise_;
  std::vector<Memory> memory_;
  std::vector<std::int32_t> qo_indptr_, kv_indptr_, kv_indices_, last_page_len_, state_indices_;
  std::vector<PrefixGroup> prefix_groups_;
  LayerCall call_;
  LinearCall linear_;
};

/// Reads more than the caches hold, on every thread. Reads, because lines written here would still
/// be on their way to memory while the case is timed.
class CacheFlush {
 public:
  explicit CacheFlush(Executor& executor) : executor_(executor), memory_(kFlushBytes) {
    std::memset(memory_.data(), 1, memory_.bytes());  // untouched pages would all be one
  }
  void operator()() {
    executor_.run(
        kPieces,
        [](void* context, std::int64_t piece, int) {
          const auto& self = *static_cast<const CacheFlush*>(context);
          const auto* data = static_cast<const volatile unsigned char*>(self.memory_.data());
          constexpr std::int64_t kLine = 64;
          for (std::int64_t i = piece * kPieceBytes; i < (piece + 1) * kPieceBytes; i += kLine)
            static_cast<void>(data[i]);
        },
        this);
  }

 private:
  static constexpr std::int64_t kPieces = 192;
  static constexpr std::int64_t kPieceBytes = kFlushBytes / kPieces;
  Executor& executor_;
  Memory memory_;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void fill_rates(Row& row, const Case& c, const Ceilings& ceilings, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  row.ms = median * 1e3;
  row.ms_min = seconds.front() * 1e3;
  row.ms_max = seconds.back() * 1e3;
  row.tflops = c.flops() / median / 1e12;
  row.gbps = c.bytes() / median / 1e9;
  const double rate = c.spec.q_dtype == DType::f32 ? ceilings.f32_flops : ceilings.bf16_flops;
  const double compute = c.flops() / rate;
  const double memory = c.bytes() / ceilings.bytes_per_s;
  const double floor = std::max(compute, memory);
  row.percent_of_ceiling = 100.0 * floor / median;
  row.bound = floor < kLatencySeconds ? Bound::latency
              : compute > memory      ? Bound::compute
                                      : Bound::memory;
}

}  // namespace

Ceilings measure_ceilings(Executor& executor, CpuIsa isa) {
  const Ceiling read = read_bandwidth(executor, isa, kCeilingBytes);
  const Ceiling bf16 = product_rate(executor, isa, DType::bf16);
  const Ceiling f32 = product_rate(executor, isa, DType::f32);
  return {.bytes_per_s = read.rate,
          .bf16_flops = std::max(bf16.rate, f32.rate),
          .f32_flops = f32.rate,
          .bandwidth_how = read.how,
          .bf16_how = bf16.rate > f32.rate ? bf16.how : f32.how,
          .f32_how = f32.how};
}

Result<Row> run_case(const Registry& registry, std::string_view backend, const Case& c,
                     const DeviceInfo& device, Executor& executor, const Ceilings& ceilings,
                     const RunOptions& options) {
  if (device.kind != DeviceKind::cpu)
    return unsupported(join("attune bench times CPU backends; ", device.name,
                            " is measured by the programs under bench/cuda"),
                       {{std::string(backend), "device", "cpu", std::string(name(device.kind))}});
  SelectionOptions wanted;
  wanted.prefill = wanted.decode = std::string(backend);
  wanted.page_size = is_linear(c.spec.variant) ? 0 : c.page_size;
  wanted.kv_dtype = c.spec.kv_dtype;
  ModelQuery query;
  LayerGroup& group = query.groups.emplace_back();
  group.layers.push_back(0);
  group.kind = name(c.spec.variant);
  group.spec = c.spec;
  const Result<Selection> chosen = registry.select(query, device, wanted);
  if (!chosen.ok()) return chosen.status();
  const KvLayout layout = chosen->groups[0].kv_layout.value_or(KvLayout::nhd);
  Result<std::unique_ptr<Backend>> made = registry.make(backend, {.spec = c.spec,
                                                                  .device = device,
                                                                  .page_size = c.page_size,
                                                                  .kv_layout = layout,
                                                                  .executor = &executor});
  if (!made.ok()) return made.status();

  const Scene scene(c, layout, executor);
  const WorkspaceSize size = (*made)->workspace_size(scene.bounds());
  const Memory device_memory(size.device_bytes);
  const Memory host_memory(size.host_bytes);
  const Result<PlanHandle> plan = (*made)->plan(scene.batch(),
                                                {.device = device_memory.data(),
                                                 .device_bytes = size.device_bytes,
                                                 .host = host_memory.data(),
                                                 .host_bytes = size.host_bytes},
                                                {});
  if (!plan.ok()) return plan.status();
  const LayerCall call = scene.call();
  if (Status s = (*made)->run(**plan, call, {}); !s.ok())
    return s;  // warm-up: pages are touched, code is read

  CacheFlush flush(executor);
  std::vector<double> seconds;
  double total = 0.0;
  while (static_cast<int>(seconds.size()) < options.min_repeats ||
         (static_cast<int>(seconds.size()) < options.max_repeats && total < options.max_seconds)) {
    flush();
    const auto start = std::chrono::steady_clock::now();
    if (Status s = (*made)->run(**plan, call, {}); !s.ok()) return s;
    seconds.push_back(seconds_since(start));
    total += seconds.back();
  }
  Row row{.case_name = c.name,
          .backend = std::string(backend),
          .device = std::string(name(device.kind))};
  fill_rates(row, c, ceilings, std::move(seconds));
  return row;
}

}  // namespace attune::bench
