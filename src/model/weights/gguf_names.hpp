// GGUF tensor names → the names Hugging Face gives the same weights (layer model).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attune::model {

/// Architectures whose files are read: llama, qwen2, …
[[nodiscard]] bool knows_gguf_architecture(std::string_view architecture);
/// The same as a list for error texts.
[[nodiscard]] std::string gguf_architectures();

/// "blk.3.attn_q.weight" → "model.layers.3.self_attn.q_proj.weight". Names without a counterpart
/// (rope_freqs.weight) come back as they are.
[[nodiscard]] std::string hugging_face_name(std::string_view architecture, std::string_view name);

/// For a tensor that holds the same matrix of every expert, [experts, rows, columns]: the name of
/// expert `e`'s own one.
[[nodiscard]] std::optional<std::string> expert_name(std::string_view architecture,
                                                     std::string_view name, std::int64_t expert);

}  // namespace attune::model
