// Prefill and decode of a GGUF file with llama.cpp, for comparison with `attune generate`: tokens a
// second by the clock, milliseconds of processor time a token.
//
// Build: pip download --no-deps --no-binary llama-cpp-python llama-cpp-python, unpack, and in its
// vendor/llama.cpp: cmake -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON, target llama. Then
// compile this file with -Iinclude -Iggml/include -Lbuild/bin -lllama -lggml -lggml-base.
//
// Run: llama_cpp model.gguf THREADS PROMPT_TOKENS NEW_TOKENS [REPETITIONS] [flash]
#include <llama.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

struct Clock {
  double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  double cpu = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }();
};

void report(const char* what, int tokens, const Clock& start) {
  const Clock now;
  std::printf("%s %d: %.1f tokens/s, %.2f ms of processor time a token\n", what, tokens,
              tokens / (now.wall - start.wall), 1e3 * (now.cpu - start.cpu) / tokens);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int threads = std::atoi(argv[2]);
  const int prompt = std::atoi(argv[3]);
  const int fresh = std::atoi(argv[4]);
  const int repetitions = argc > 5 ? std::atoi(argv[5]) : 3;
  const int batch = 512;

  llama_backend_init();
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<unsigned>(prompt + fresh + 8);
  params.n_batch = params.n_ubatch = batch;
  params.n_threads = params.n_threads_batch = threads;
  if (argc > 6 && std::strcmp(argv[6], "flash") == 0)
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  llama_context* context = llama_init_from_model(model, params);
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));

  std::vector<llama_token> tokens(static_cast<std::size_t>(prompt));
  for (int i = 0; i < prompt; ++i) tokens[static_cast<std::size_t>(i)] = 100 + i * 37 % 4000;
  for (int r = 0; r < repetitions; ++r) {
    llama_memory_clear(llama_get_memory(context), true);
    const Clock start;
    for (int i = 0; i < prompt; i += batch)
      if (llama_decode(context,
                       llama_batch_get_one(tokens.data() + i, std::min(batch, prompt - i))))
        return 1;
    report("prefill", prompt, start);
    const Clock first;
    for (int i = 0; i < fresh; ++i) {
      const float* logits = llama_get_logits_ith(context, -1);
      auto best = static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits);
      if (llama_decode(context, llama_batch_get_one(&best, 1))) return 1;
    }
    report("decode", fresh, first);
  }
}
