// Checks linear attention's Hopper kernels against the double-precision recurrence and times them
// on the shapes of docs/performance/cuda-linear.md.
//
//   linear_bench [verify] [time] [CASE ...] [batch=REQUESTS]
//                                     both without a word; all cases without a number
//   linear_bench once CASE [TOKENS] [batch=REQUESTS]
//                                     runs a case twice, of that length: for profilers and checkers
//
// "kernels" is the recurrence alone on prepared rows (what published figures time); "layer" is
// everything a backend's run() does, convolution included. Floors are bytes at 4.8 TB/s or flops at
// 989 TFLOP/s.
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <attune/linear_state.hpp>

#include "backends/shared/cuda/linear_planner.hpp"
#include "backends/shared/linear_checks.hpp"
#include "bench/cuda/harness.hpp"
#include "kernels/linear/convolution.hpp"
#include "kernels/linear/reference.hpp"
#include "kernels/linear/sm90/launch.hpp"

namespace attune::bench {
namespace {

namespace linear = kernels::linear;
namespace sm90 = kernels::linear::sm90;
namespace glue = backends::shared::cuda;

struct Case {
  const char* name;
  Variant variant;
  int k_heads;
  int v_heads;
  int dk;
  int dv;
  int taps;
  int batch;
  int tokens;  ///< of a request
  double floor_us;
  double peer_us;
  double goal_us;
  bool graph = false;  ///< in a CUDA graph, warm; else cold
};

constexpr Case kCases[] = {
    {"gdn prefill 1x8192, 32 heads", Variant::gdn, 32, 32, 128, 128, 4, 1, 8192, 48, 727, 150},
    {"gdn prefill 8x4096, 32 heads", Variant::gdn, 32, 32, 128, 128, 4, 8, 4096, 191, 1888, 600},
    {"gdn prefill 1x8192, 16/32 heads", Variant::gdn, 16, 32, 128, 128, 4, 1, 8192, 48, 280, 150},
    {"kda prefill 1x8192, 32 heads", Variant::kda, 32, 32, 128, 128, 4, 1, 8192, 70, 1009, 250},
    {"kda prefill 8x4096, 32 heads", Variant::kda, 32, 32, 128, 128, 4, 8, 4096, 280, 3871, 900},
    {"lightning prefill 1x8192, 64 heads", Variant::lightning, 64, 64, 128, 128, 0, 1, 8192, 112,
     728, 200},
    {"mamba2 prefill 1x8192, 128x64x128", Variant::mamba2, 8, 128, 128, 64, 4, 1, 8192, 60, 0, 0},
    {"gdn decode b64, 32 heads", Variant::gdn, 32, 32, 128, 128, 4, 64, 1, 56, 103, 72},
    {"gdn decode b1 in a graph", Variant::gdn, 32, 32, 128, 128, 4, 1, 1, 1, 72, 6, true},
    {"kda decode b64, 32 heads", Variant::kda, 32, 32, 128, 128, 4, 64, 1, 56, 0, 72},
    {"mamba2 decode b64, 128x64x128", Variant::mamba2, 8, 128, 128, 64, 4, 64, 1, 112, 0, 132},
    {"gdn decode b64, 16/32 heads", Variant::gdn, 16, 32, 128, 128, 4, 64, 1, 56, 0, 0},
    {"short_conv decode b64, 2048", Variant::short_conv, 0, 0, 2048, 0, 3, 64, 1, 1, 0, 0, true},
};

AttentionSpec spec_of(const Case& c) {
  AttentionSpec s;
  s.variant = c.variant;
  s.q_dtype = s.o_dtype = DType::bf16;
  s.kv_dtype = DType::f32;
  s.conv_kernel = c.taps;
  s.conv_dim = c.dk;
  if (c.variant == Variant::short_conv) return s;
  s.linear_num_k_heads = c.k_heads;
  s.linear_num_v_heads = c.v_heads;
  s.linear_head_dim_k = c.dk;
  s.linear_head_dim_v = c.dv;
  s.conv_dim = 2 * c.k_heads * c.dk + c.v_heads * c.dv;
  return s;
}

void must(const Status& s, const char* what) {
  if (s.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, s.text().c_str());
  std::exit(1);
}

linear::Family family_of(Variant v) {
  if (v == Variant::kda) return linear::Family::kda;
  if (v == Variant::mamba2) return linear::Family::mamba2;
  return v == Variant::lightning ? linear::Family::lightning : linear::Family::gdn;
}

int num_sms() {
  int n = 0;
  check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0), "SMs");
  return n;
}

/// One layer on the card, its plan, and its launches.
class Layer {
 public:
  explicit Layer(const Case& c)
      : spec(spec_of(c)), setup{spec, family_of(c.variant), num_sms()}, tokens(c.batch * c.tokens) {
    heads = std::max(1, spec.linear_num_v_heads);
    width = c.variant == Variant::short_conv ? spec.conv_dim : heads * spec.linear_head_dim_v;
    gate_width = c.variant == Variant::kda ? heads * spec.linear_head_dim_k : heads;
    history = std::max(0, spec.conv_kernel - 1);
    state_slot = std::int64_t{heads} * std::max(1, spec.linear_head_dim_v * spec.linear_head_dim_k);
    input = bf16(tokens * spec.conv_dim, 1);
    gate = bf16(tokens * gate_width, 2);
    beta = bf16(tokens * heads, 3);
    weight = Array<float>(std::size_t(spec.conv_dim) * std::max(1, spec.conv_kernel));
    bias = Array<float>(spec.conv_dim);
    a_log = Array<float>(heads);
    dt_bias = Array<float>(gate_width);
    d_skip = Array<float>(heads);
    state = Array<float>(c.batch * state_slot);
    conv_state = bf16(std::int64_t{c.batch} * spec.conv_dim * history, 9);
    o = Array<std::uint16_t>(tokens * width);
    randomise(weight, 4, 0.5f);
    randomise(bias, 5, 0.3f);
    randomise(a_log, 6, 0.5f);
    randomise(dt_bias, 7, 0.5f);
    randomise(d_skip, 8);
    randomise(state, 10, 0.1f);
    std::vector<float> s(heads);
    for (int h = 0; h < heads; ++h) s[h] = std::exp2(-8.0f * (h + 1) / heads);
    slopes = Array<float>(s);

    std::vector<std::int32_t> indptr{0}, slots;
    for (int r = 0; r < c.batch; ++r) {
      indptr.push_back(indptr.back() + c.tokens);
      slots.push_back((r * 37 + 5) % c.batch);
    }
    BatchView view;
    view.qo_indptr = indptr;
    view.state_indices = slots;
    must(glue::make_lists(setup, view, lists), "lists");
    const auto sizes = glue::sizes_of(
        setup, {.max_batch = c.batch, .max_qo_tokens = tokens, .decode_only = false});
    workspace = Array<std::uint8_t>(glue::lay_out(setup, sizes, nullptr).bytes);
    workspace.fill_bytes(0xff);
    parts = glue::lay_out(setup, sizes, workspace.get());
    plan::WorkspaceImage image;
    glue::write_image(parts, lists, workspace.get(), image);
    check(cudaMemcpy(image.place(), image.data(), image.bytes(), cudaMemcpyHostToDevice), "plan");
    if (parts.readers != nullptr)
      check(cudaMemset(parts.readers, 0, parts.counter_bytes), "counters");
    make_params();
  }

  /// All that a backend's run() launches.
  void run(cudaStream_t stream) const {
    if (setup.recurs()) {
      must(sm90::launch_recurrent(decode, stream), "recurrent");
      must(sm90::launch_prompts(prompt.params, prompt.copy_rows, prompt.slice, stream), "prompts");
    } else {
      must(sm90::launch_convolution(convolution, stream), "convolution");
    }
    if (advances()) must(sm90::launch_advance(convolution, stream), "advance");
  }
  /// The recurrence on rows that an earlier run() prepared; the convolution's state stays.
  void run_kernels(cudaStream_t stream) const {
    if (!setup.recurs()) return run(stream);
    sm90::DecodeParams reading = decode;
    reading.conv_state = nullptr;
    must(sm90::launch_recurrent(reading, stream), "recurrent");
    must(sm90::launch_prompts(prompt.params, false, prompt.slice, stream), "prompts");
  }

  /// Whether the convolution's state is moved by a launch of its own.
  [[nodiscard]] bool advances() const {
    return spec.conv_kernel > 1 && !glue::recurrent_moves_history(setup, lists);
  }

  /// One launch of each kernel of a layer, by name.
  template <class Visit>
  void each_kernel(Visit visit) const {
    if (!setup.recurs()) {
      visit("conv",
            [&](cudaStream_t s) { must(sm90::launch_convolution(convolution, s), "conv"); });
    } else if (decode.num_spans > 0) {
      visit("recurrent",
            [&](cudaStream_t s) { must(sm90::launch_recurrent(decode, s), "recurrent"); });
    }
    if (setup.recurs() && prompt.params.num_sequences > 0) {
      const sm90::PromptParams& d = prompt.params;
      if (prompt.copy_rows)
        visit("prepare", [&](cudaStream_t s) { must(sm90::launch_prepare(d, s), "prepare"); });
      if (sm90::has_delta_rule(setup.family)) {
        visit("scores", [&](cudaStream_t s) { must(sm90::launch_scores(d, s), "scores"); });
      } else {
        visit("gates", [&](cudaStream_t s) { must(sm90::launch_gates(d, s), "gates"); });
      }
      visit("scan", [&](cudaStream_t s) { must(sm90::launch_scan(d, prompt.slice, s), "scan"); });
    }
    if (advances())
      visit("advance",
            [&](cudaStream_t s) { must(sm90::launch_advance(convolution, s), "advance"); });
  }

  /// Largest error of `head`'s outputs and states over all requests, as parts of the largest value.
  double error_of_head(int head) {
    const auto host_input = input.download();
    const auto host_gate = gate.download();
    const auto host_beta = beta.download();
    const auto host_conv = conv_state.download();
    auto want_state = state.download();
    const auto w = weight.download(), b = bias.download(), a = a_log.download(),
               t = dt_bias.download(), d = d_skip.download(), s = slopes.download();
    std::vector<std::uint16_t> want_o(tokens * width);
    run({});
    check(cudaDeviceSynchronize(), "run");
    const auto have_o = o.download();
    const auto have_state = state.download();

    linear::Params p = params;
    const auto moved = [](linear::Activations x, const void* device, const void* host) {
      if (x.data == nullptr) return x;
      x.data = static_cast<const std::byte*>(host) +
               (static_cast<const std::byte*>(x.data) - static_cast<const std::byte*>(device));
      return x;
    };
    p.conv_input = moved(p.conv_input, input.get(), host_input.data());
    p.q = moved(p.q, input.get(), host_input.data());
    p.k = moved(p.k, input.get(), host_input.data());
    p.v = moved(p.v, input.get(), host_input.data());
    p.gate = moved(p.gate, gate.get(), host_gate.data());
    p.beta = moved(p.beta, beta.get(), host_beta.data());
    p.conv_weight = w.data();
    p.conv_bias = b.data();
    p.conv_state = host_conv.data();
    p.a_log = a.data();
    p.dt_bias = t.data();
    p.d_skip = params.d_skip == nullptr ? nullptr : d.data();
    p.slopes = s.data();
    p.state = want_state.data();
    p.o = want_o.data();
    const std::int64_t cells = std::int64_t{p.dv} * p.dk;
    double worst = 0.0, largest = 1e-9, worst_state = 0.0, largest_state = 1e-9;
    const auto widen = [](std::uint16_t x) {
      const std::uint32_t bits = std::uint32_t{x} << 16;
      float f;
      std::memcpy(&f, &bits, 4);
      return static_cast<double>(f);
    };
    for (const sm90::Span& span : lists.spans) {
      linear::run_reference(p, {span.first_token, span.num_tokens, span.slot, head, 1});
      for (std::int64_t token = span.first_token; token < span.first_token + span.num_tokens;
           ++token)
        for (int i = 0; i < p.dv; ++i) {
          const std::int64_t at = token * width + head * p.dv + i;
          largest = std::max(largest, std::fabs(widen(want_o[at])));
          const double e = std::fabs(widen(have_o[at]) - widen(want_o[at]));
          if (!(e <= worst)) worst = e;
        }
      for (std::int64_t i = 0; i < cells; ++i) {
        const std::int64_t at = span.slot * state_slot + head * cells + i;
        largest_state = std::max(largest_state, std::fabs(double{want_state[at]}));
        const double e = std::fabs(double{have_state[at]} - want_state[at]);
        if (!(e <= worst_state)) worst_state = e;
      }
    }
    return std::max(worst / largest, worst_state / largest_state);
  }

  /// Whether `times` runs from the same state give the same bits: kernels that wait for one another
  /// might read too early. Of single tokens every other run is by the kernel for few of them.
  bool repeats(int times) {
    const auto first_state = state.download();
    const auto first_history = conv_state.download();
    std::vector<std::uint16_t> want_o;
    std::vector<std::uint16_t> want_history;
    std::vector<float> want_state;
    for (int i = 0; i < times; ++i) {
      state.upload(first_state);
      conv_state.upload(first_history);
      const int staying = std::exchange(decode.staying, i % 2 == 0 ? decode.staying : 0);
      run({});
      decode.staying = staying;
      check(cudaDeviceSynchronize(), "run");
      auto have_o = o.download();
      auto have_state = state.download();
      auto have_history = conv_state.download();
      const auto same = [](const auto& a, const auto& b) {
        return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
      };
      if (i > 0 && (!same(have_o, want_o) || !same(have_state, want_state) ||
                    !same(have_history, want_history)))
        return false;
      want_o = std::move(have_o);
      want_state = std::move(have_state);
      want_history = std::move(have_history);
    }
    return true;
  }

  AttentionSpec spec;
  glue::LinearSetup setup;
  std::int64_t tokens;
  int heads = 1;
  std::int64_t width = 0;

 private:
  static Array<std::uint16_t> bf16(std::int64_t n, int seed) {
    Array<std::uint16_t> a(n);
    fill_normal<<<2048, 256>>>(reinterpret_cast<__nv_bfloat16*>(a.get()), a.size(), seed, 1.0f);
    return a;
  }

  void make_params() {
    LinearCall l;
    LayerCall call;
    const DType t = DType::bf16;
    const auto part = [&](int first, int columns) {
      TensorView v = TensorView::dense(input.get() + first, t, {tokens, columns});
      v.stride[0] = spec.conv_dim;
      return v;
    };
    const int keys = spec.linear_num_k_heads * spec.linear_head_dim_k;
    l.conv_input = TensorView::dense(input.get(), t, {tokens, spec.conv_dim});
    l.conv_weight = weight.get();
    l.conv_bias = bias.get();
    l.conv_silu = spec.variant != Variant::short_conv;
    const auto slots = static_cast<std::int64_t>(lists.spans.size());
    l.conv_state = TensorView::dense(conv_state.get(), t, {slots, spec.conv_dim, history});
    l.q = part(0, keys);
    l.k = part(keys, keys);
    l.v = part(2 * keys, spec.conv_dim - 2 * keys);
    l.gate = TensorView::dense(gate.get(), t, {tokens, gate_width});
    l.beta = TensorView::dense(beta.get(), t, {tokens, heads});
    l.a_log = a_log.get();
    l.dt_bias = dt_bias.get();
    if (spec.variant == Variant::mamba2) l.d_skip = d_skip.get();
    l.slopes = slopes.get();
    l.state = TensorView::dense(
        state.get(), DType::f32,
        {slots, heads, std::max(1, spec.linear_head_dim_v), std::max(1, spec.linear_head_dim_k)});
    call.o = TensorView::dense(o.get(), t, {tokens, width});
    call.linear = &l;
    convolution =
        glue::convolution_launch(lists, parts, backends::shared::convolution_params(spec, call));
    if (!setup.recurs()) return;
    params = backends::shared::recurrence_params(spec, call);
    decode = glue::decode_params(setup, lists, parts, params, conv_state.get());
    prompt = glue::prompt_launch(setup, lists, parts, params);
  }

  int gate_width = 0;
  int history = 0;
  std::int64_t state_slot = 0;
  Array<std::uint16_t> input, gate, beta, conv_state, o;
  Array<float> weight, bias, a_log, dt_bias, d_skip, slopes, state;
  Array<std::uint8_t> workspace;
  glue::LinearLists lists;
  glue::LinearParts parts;
  linear::Params params;
  sm90::DecodeParams decode;
  glue::PromptLaunch prompt;
  sm90::ConvolutionParams convolution;
};

/// Cases are named by number; without one all are meant.
bool is_wanted(int argc, char** argv, std::size_t at) {
  bool any = false;
  for (int i = 1; i < argc; ++i) {
    if (std::isdigit(static_cast<unsigned char>(argv[i][0])) == 0) continue;
    if (std::strtoul(argv[i], nullptr, 10) == at) return true;
    any = true;
  }
  return !any;
}

/// The last head of every case at its own length, a middle one at lengths about the chunk's
/// borders.
bool verify(int argc, char** argv) {
  bool good = true;
  const auto judge = [&](const Case& c, int head) {
    Layer layer(c);
    const double error = layer.error_of_head(head);
    const bool fine = error < 1.5e-2;
    good = good && fine;
    std::printf("%-40s head %3d  error %.1e  %s\n", c.name, head, error, fine ? "ok" : "WRONG");
  };
  for (std::size_t at = 0; at < std::size(kCases); ++at) {
    const Case& c = kCases[at];
    if (c.variant == Variant::short_conv || !is_wanted(argc, argv, at)) continue;
    judge(c, c.v_heads - 1);
    if ((c.batch == 1) != (c.tokens == 1)) {
      const bool same = Layer(c).repeats(8);
      good = good && same;
      std::printf("%-40s eight runs, %s\n", c.name, same ? "the same bits: ok" : "OTHER BITS");
    }
    for (int n : {9, 63, 64, 65, 200}) {
      Case other = c;
      const std::string name = std::string(c.name) + " at 3x" + std::to_string(n);
      other.name = name.c_str();
      other.batch = 3;
      other.tokens = n;
      judge(other, c.v_heads / 2);
    }
  }
  return good;
}

/// The card lowers its clocks under load: every row begins with a cool one.
void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(150)); }

/// What the command line asks for, or the case's own.
int batch_of(const Case& c, int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], "batch=", 6) == 0) return std::max(1, std::atoi(argv[i] + 6));
  return c.batch;
}

void time_all(int argc, char** argv) {
  std::printf("%-40s %9s %9s %9s %9s %9s\n", "us, median", "kernels", "layer", "goal", "peer",
              "floor");
  for (std::size_t at = 0; at < std::size(kCases); ++at) {
    if (!is_wanted(argc, argv, at)) continue;
    Case c = kCases[at];
    c.batch = batch_of(c, argc, argv);
    const Layer layer(c);
    layer.run({});
    rest();
    const auto timed = [&](auto launch) {
      return 1e6 * (c.graph ? time_graph(launch) : time_cold(launch));
    };
    const double kernels = timed([&](cudaStream_t s) { layer.run_kernels(s); });
    const double whole = timed([&](cudaStream_t s) { layer.run(s); });
    std::string parts;
    layer.each_kernel([&](const char* kernel, auto launch) {
      char text[40];
      std::snprintf(text, sizeof text, "  %s %.1f", kernel, timed(launch));
      parts += text;
    });
    std::printf("%-40s %9.1f %9.1f %9.0f %9.0f %9.0f  %-7s%s\n", c.name, kernels, whole, c.goal_us,
                c.peer_us, c.floor_us,
                c.goal_us == 0         ? ""
                : kernels <= c.goal_us ? "reached"
                                       : "short",
                parts.c_str());
  }
}

int run(int argc, char** argv) {
  const auto asked = [&](const char* word) { return asks_for(argc, argv, word); };
  must(sm90::prepare_kernels(), "prepare_kernels");
  if (argc >= 3 && std::strcmp(argv[1], "once") == 0) {
    const auto at = static_cast<std::size_t>(std::atoi(argv[2]));
    if (at >= std::size(kCases)) return 2;
    Case c = kCases[at];
    if (argc > 3 && std::isdigit(static_cast<unsigned char>(argv[3][0])) != 0)
      c.tokens = std::atoi(argv[3]);
    c.batch = batch_of(c, argc, argv);
    const Layer layer(c);
    for (int i = 0; i < 2; ++i) layer.run({});
    check(cudaDeviceSynchronize(), c.name);
    return 0;
  }
  const bool good = !asked("verify") || verify(argc, argv);
  if (asked("time")) time_all(argc, argv);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace attune::bench

int main(int argc, char** argv) { return attune::bench::run(argc, argv); }
