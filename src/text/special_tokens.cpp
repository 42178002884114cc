#include "text/special_tokens.hpp"

#include <algorithm>
#include <array>

namespace attune::text {
namespace {

constexpr std::array<std::string_view, 16> kEnds{
    "<|im_end|>",                               // ChatML: Qwen, SmolLM, Yi
    "<|eot_id|>",                               // Llama 3
    "<|eom_id|>",                               // Llama 3, a turn that waits for a tool
    "<|end_of_text|>",                          // Llama 3, Granite
    "<|eot|>",                                  // Llama 4
    "<|eom|>",                                  // Llama 4
    "<|end|>",                                  // Phi 3
    "<|endoftext|>",                            // GPT-2 and its descendants
    "<end_of_turn>",                            // Gemma 2 and 3
    "<turn|>",                                  // Gemma 4
    "<|return|>",                               // gpt-oss, the final answer
    "<|call|>",                                 // gpt-oss, a tool call
    "<|END_OF_TURN_TOKEN|>",                    // Cohere
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",  // DeepSeek
    "<|user|>",                                 // GLM 4: the model hands the turn back
    "[e~[",                                     // MiniMax M2
};

}  // namespace

bool ends_generation(std::string_view piece) {
  return std::find(kEnds.begin(), kEnds.end(), piece) != kEnds.end();
}

}  // namespace attune::text
