#include "kernels/ops/matmul.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <list>
#include <string>
#include <vector>

#include <dnnl.hpp>

#include "base/math.hpp"

namespace attune::kernels::ops {
namespace {

constexpr std::size_t kMaxPlans = 1024;  // a decode of growing length plans a new shape a step
constexpr std::int64_t kPartGranularity = 64;  // columns: a multiple of oneDNN's widest n block

// oneDNN of Debian and Ubuntu is built on OpenMP and links the runtime itself; which one (gomp or
// omp) is its affair, so the two functions are looked up instead of linked. Where they are absent,
// oneDNN has no threads to keep quiet.
struct OpenMp {
  int (*get_max_threads)() = nullptr;
  void (*set_num_threads)(int) = nullptr;

  OpenMp() {
    if (void* get = dlsym(RTLD_DEFAULT, "omp_get_max_threads"))
      std::memcpy(&get_max_threads, &get, sizeof get);
    if (void* set = dlsym(RTLD_DEFAULT, "omp_set_num_threads"))
      std::memcpy(&set_num_threads, &set, sizeof set);
  }
};

// The number of OpenMP threads is a property of the calling thread: one inside the scope, the
// caller's own value again after it.
class OneThread {
 public:
  explicit OneThread(const OpenMp& omp) : omp_(omp) {
    if (omp_.get_max_threads == nullptr || omp_.set_num_threads == nullptr) return;
    before_ = omp_.get_max_threads();
    if (before_ != 1) omp_.set_num_threads(1);
  }
  ~OneThread() {
    if (before_ > 1) omp_.set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const OpenMp& omp_;
  int before_ = 1;
};

dnnl::memory::data_type to_dnnl(DType t) {
  return t == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// oneDNN 2 describes an operation in two steps, oneDNN 3 in one. A template, so that the branch for
// the other version is never compiled.
template <class M>
typename M::primitive_desc describe(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                    const dnnl::memory::desc& b, const dnnl::memory::desc& c,
                                    const dnnl::primitive_attr& attributes) {
  if constexpr (requires { typename M::desc; }) {
    return typename M::primitive_desc(typename M::desc(a, b, c), attributes, engine);
  } else {
    return typename M::primitive_desc(engine, a, b, c, attributes);
  }
}

// One primitive with its argument memories, a set for each thread: run() sets three pointers.
struct Piece {
  struct Arguments {
    dnnl::memory a, b, c, scratchpad;
  };
  dnnl::matmul primitive;
  std::vector<Arguments> by_thread;
};

struct AlignedFree {
  void operator()(void* p) const { std::free(p); }
};
struct Scratchpad {
  std::unique_ptr<void, AlignedFree> data;
  std::size_t bytes = 0;
};

std::string describe_shape(const MatmulShape& s) {
  return "[" + std::to_string(s.m) + ", " + std::to_string(s.k) + "] x [" + std::to_string(s.n) +
         ", " + std::to_string(s.k) + "] in " + std::string(name(s.input)) + " to " +
         std::string(name(s.output));
}

}  // namespace

class MatmulPlan {
 public:
  MatmulShape shape;  // with its leading dimensions filled in
  std::int64_t max_parts = 1;
  std::int64_t parts = 0;
  bool split_n = true;
  std::int64_t part_size = 0;   // rows or columns of C in each part but the last
  std::array<Piece, 2> pieces;  // whole part, last part
};

std::int64_t num_parts(const MatmulPlan& plan) { return plan.parts; }

struct Matmul::State {
  OpenMp omp;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::vector<dnnl::stream> streams;
  std::vector<Scratchpad> scratchpads;
  struct Entry {
    MatmulShape key;
    std::int64_t max_parts;
    std::shared_ptr<const MatmulPlan> plan;
  };
  std::list<Entry> cache;  // most recently used first

  Piece make_piece(const MatmulShape& s, std::int64_t m, std::int64_t n);
};

Piece Matmul::State::make_piece(const MatmulShape& s, std::int64_t m, std::int64_t n) {
  using Desc = dnnl::memory::desc;
  using Dims = dnnl::memory::dims;
  const Desc a(Dims{m, s.k}, to_dnnl(s.input), Dims{s.lda, 1});
  const Desc b(Dims{s.k, n}, to_dnnl(s.input), s.b_is_kn ? Dims{s.ldb, 1} : Dims{1, s.ldb});
  const Desc c(Dims{m, n}, to_dnnl(s.output), Dims{s.ldc, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const auto description = describe<dnnl::matmul>(engine, a, b, c, attributes);

  Piece piece;
  piece.primitive = dnnl::matmul(description);
  const Desc scratch = description.scratchpad_desc();
  for (std::size_t t = 0; t < streams.size(); ++t) {
    piece.by_thread.push_back({.a = dnnl::memory(a, engine, nullptr),
                               .b = dnnl::memory(b, engine, nullptr),
                               .c = dnnl::memory(c, engine, nullptr),
                               .scratchpad = dnnl::memory(scratch, engine, nullptr)});
    Scratchpad& pad = scratchpads[t];
    if (scratch.get_size() <= pad.bytes) continue;
    pad.bytes = base::round_up<std::size_t>(scratch.get_size(), 4096);
    pad.data.reset(std::aligned_alloc(4096, pad.bytes));
    if (!pad.data) throw std::bad_alloc();
  }
  return piece;
}

Matmul::Matmul(int num_threads) : state_(std::make_unique<State>()) {
  const auto threads = static_cast<std::size_t>(std::max(num_threads, 1));
  for (std::size_t t = 0; t < threads; ++t) state_->streams.emplace_back(state_->engine);
  state_->scratchpads.resize(threads);
}

Matmul::~Matmul() = default;

bool Matmul::has_fast_bf16() {
  // The values of cpu_isa are nested bit sets: every AVX-512 server level is above every AVX2
  // level.
  return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
}

Result<std::shared_ptr<const MatmulPlan>> Matmul::plan(const MatmulShape& shape,
                                                       std::int64_t max_parts) {
  const bool f32 = shape.input == DType::f32 && shape.output == DType::f32;
  const bool bf16 =
      shape.input == DType::bf16 && (shape.output == DType::f32 || shape.output == DType::bf16);
  if ((!f32 && !bf16) || shape.m < 0 || shape.n < 0 || shape.k < 0 || max_parts < 1)
    return invalid_argument(
        "matmul: want fp32 x fp32 to fp32 or bf16 x bf16 to fp32 or bf16, found " +
        describe_shape(shape));

  for (auto it = state_->cache.begin(); it != state_->cache.end(); ++it) {
    if (it->key != shape || it->max_parts != max_parts) continue;
    state_->cache.splice(state_->cache.begin(), state_->cache, it);
    return state_->cache.front().plan;
  }

  auto plan = std::make_shared<MatmulPlan>();
  MatmulShape& s = plan->shape;
  s = shape;
  if (s.lda == 0) s.lda = s.k;
  if (s.ldb == 0) s.ldb = s.b_is_kn ? s.n : s.k;
  if (s.ldc == 0) s.ldc = s.n;
  plan->max_parts = max_parts;

  if (s.m > 0 && s.n > 0) {
    // Columns first: each part then reads its own share of the weights, the larger operand.
    plan->split_n = s.n >= kPartGranularity * max_parts || s.n >= s.m;
    const std::int64_t size = plan->split_n ? s.n : s.m;
    const std::int64_t granularity = plan->split_n ? kPartGranularity : 1;
    plan->part_size = std::min(size, base::round_up(base::ceil_div(size, max_parts), granularity));
    plan->parts = base::ceil_div(size, plan->part_size);
    const std::int64_t last = size - (plan->parts - 1) * plan->part_size;
    if (s.k > 0) {
      const OneThread quiet(state_->omp);
      try {
        plan->pieces[1] =
            plan->split_n ? state_->make_piece(s, s.m, last) : state_->make_piece(s, last, s.n);
        if (plan->parts > 1)
          plan->pieces[0] = plan->split_n ? state_->make_piece(s, s.m, plan->part_size)
                                          : state_->make_piece(s, plan->part_size, s.n);
      } catch (const dnnl::error& e) {
        return internal_error("oneDNN cannot multiply " + describe_shape(s) + ": " + e.what());
      } catch (const std::bad_alloc&) {
        return Status(StatusCode::out_of_memory, "no memory to multiply " + describe_shape(s));
      }
    }
  }

  state_->cache.push_front({.key = shape, .max_parts = max_parts, .plan = plan});
  if (state_->cache.size() > kMaxPlans) state_->cache.pop_back();
  return std::shared_ptr<const MatmulPlan>(std::move(plan));
}

Status Matmul::run(const MatmulPlan& plan, const void* a, const void* b, void* c, std::int64_t part,
                   int thread) const {
  const MatmulShape& s = plan.shape;
  require(part >= 0 && part < plan.parts, "a part of the plan");
  require(thread >= 0 && static_cast<std::size_t>(thread) < state_->streams.size(),
          "a thread the Matmul was made for");
  const std::int64_t first = part * plan.part_size;
  const auto in = static_cast<std::int64_t>(size_of(s.input));
  const auto out = static_cast<std::int64_t>(size_of(s.output));
  const std::int64_t a_offset = plan.split_n ? 0 : first * s.lda;
  const std::int64_t b_offset = plan.split_n ? first * (s.b_is_kn ? 1 : s.ldb) : 0;
  const std::int64_t c_offset = plan.split_n ? first : first * s.ldc;
  auto* c_part = static_cast<char*>(c) + c_offset * out;

  if (s.k == 0) {
    if (s.accumulate) return {};
    const std::int64_t rows = plan.split_n ? s.m : std::min(plan.part_size, s.m - first);
    const std::int64_t columns = plan.split_n ? std::min(plan.part_size, s.n - first) : s.n;
    for (std::int64_t r = 0; r < rows; ++r)
      std::memset(c_part + r * s.ldc * out, 0, static_cast<std::size_t>(columns * out));
    return {};
  }

  const auto t = static_cast<std::size_t>(thread);
  const Piece& piece = plan.pieces[part + 1 == plan.parts ? 1 : 0];
  const Piece::Arguments& args = piece.by_thread[t];
  // oneDNN takes pointers to mutable memory for its sources, too.
  auto* a_part = const_cast<char*>(static_cast<const char*>(a)) + a_offset * in;
  auto* b_part = const_cast<char*>(static_cast<const char*>(b)) + b_offset * in;
  const OneThread quiet(state_->omp);
  try {
    args.a.set_data_handle(a_part);
    args.b.set_data_handle(b_part);
    args.c.set_data_handle(c_part);
    args.scratchpad.set_data_handle(state_->scratchpads[t].data.get());
  } catch (const dnnl::error& e) {
    return internal_error(std::string("oneDNN refuses an operand: ") + e.what());
  }
  const std::array<dnnl_exec_arg_t, 4> arguments{{{DNNL_ARG_SRC, args.a.get()},
                                                  {DNNL_ARG_WEIGHTS, args.b.get()},
                                                  {DNNL_ARG_DST, args.c.get()},
                                                  {DNNL_ARG_SCRATCHPAD, args.scratchpad.get()}}};
  const dnnl_status_t status =
      dnnl_primitive_execute(piece.primitive.get(), state_->streams[t].get(),
                             static_cast<int>(arguments.size()), arguments.data());
  if (status != dnnl_success)
    return internal_error("oneDNN failed in a product, status " +
                          std::to_string(static_cast<int>(status)));
  return {};
}

}  // namespace attune::kernels::ops
