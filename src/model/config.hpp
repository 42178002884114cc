// ModelConfig: a model as plain data: all that a forward pass, selection and the cache need to know
// before any weight is read (layer model). Made from a Hugging Face config.json (config_parse.hpp)
// or field by field (GGUF metadata).
//
// Layers that attend alike share one AttentionConfig: `layers[i].attention` is an index into
// `attention`. Every number is resolved: no "absent means hidden / heads" is left for a reader.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attune/spec.hpp>
#include <attune/tensor.hpp>

namespace attune {
struct LinearFamilyLayers;  // <attune/linear_family.hpp>
}

namespace attune::model {

enum class RopeType : std::uint8_t {
  none,
  standard,
  linear,
  dynamic,
  yarn,
  llama3,
  longrope,
  proportional
};

/// Rotary positions of one kind of layer. `none` = no rotation (NoPE).
struct RopeConfig {
  RopeType type = RopeType::none;
  double theta = 10000.0;
  int rotary_dim = 0;        ///< leading dims of a head that turn (mla: of the rope part); even
  bool interleaved = false;  ///< pairs are (2i, 2i+1); otherwise (i, i + rotary_dim / 2)
  int frequency_dim = 0;  ///< pair i turns by theta^(-2i / frequency_dim); 0 = rotary_dim. An odd
                          ///< width has an even rotary_dim above it
  int turning_pairs = 0;  ///< proportional: pairs that turn, the others stay; 0 = all
  double factor = 1.0;    ///< linear, dynamic, yarn, llama3
  double low_freq_factor = 1.0;   ///< llama3
  double high_freq_factor = 4.0;  ///< llama3
  double beta_fast = 32.0;        ///< yarn
  double beta_slow = 1.0;         ///< yarn
  bool truncate = true;           ///< yarn: round the correction range to integers
  double mscale = 0.0;            ///< yarn, DeepSeek: 0 = absent
  double mscale_all_dim = 0.0;
  std::optional<double>
      attention_factor;               ///< factor on cos and sin if given; else the type's own rule
  std::int64_t original_context = 0;  ///< original_max_position_embeddings
  std::vector<double> short_factor;   ///< longrope, rotary_dim / 2 entries
  std::vector<double> long_factor;
  std::vector<int> mrope_sections;  ///< multimodal: equal to plain RoPE for text
  [[nodiscard]] bool operator==(const RopeConfig&) const = default;
};

enum class AttentionLayerKind : std::uint8_t {
  full,
  sliding,
  chunked,  ///< Llama-4: own chunk of positions only
  mla,
  sparse_mla,      ///< mla behind an indexer (DSA)
  dsv4,            ///< DeepSeek-V4: window, and compressed keys if compress_ratio > 0
  minimax_sparse,  ///< GQA behind a block indexer
  dual_chunk,      ///< Qwen2.5-1M
  cross,           ///< keys of an encoder
  encoder,         ///< bidirectional, no cache
};

[[nodiscard]] std::string_view name(AttentionLayerKind kind);

enum class QkNorm : std::uint8_t {
  none,
  per_head,   ///< RMSNorm over each head's dims, weight [head_dim] (Qwen3, Gemma-3)
  per_layer,  ///< RMSNorm over all heads at once, weight [heads * head_dim] (OLMo, MiniMax-M2)
  l2,         ///< without weight, after RoPE (Llama-4)
};

/// The indexer of a sparse variant.
struct IndexerConfig {
  int num_heads = 0;
  int head_dim = 0;
  int topk = 0;          ///< keys kept (sparse_mla, dsv4), or blocks (minimax_sparse)
  int block_size = 0;    ///< minimax_sparse
  int init_blocks = 0;   ///< minimax_sparse: first blocks always kept
  int local_blocks = 0;  ///< minimax_sparse: last blocks always kept
  bool rope_interleaved = false;
  [[nodiscard]] bool operator==(const IndexerConfig&) const = default;
};

/// Dual chunk attention (Qwen2.5-1M): positions count anew in every chunk, so that no distance
/// exceeds chunk_size, and those up to local_size are true.
struct DualChunkConfig {
  std::int64_t chunk_size = 0;        ///< 0 = off
  std::int64_t local_size = 0;        ///< below chunk_size
  std::int64_t original_context = 0;  ///< positions beyond it sharpen the softmax; 0 = none do
  [[nodiscard]] std::int64_t period() const { return chunk_size - local_size; }
  [[nodiscard]] bool operator==(const DualChunkConfig&) const = default;
};

/// One way to attend that some layers share.
struct AttentionConfig {
  AttentionLayerKind kind = AttentionLayerKind::full;
  int num_qo_heads = 0;
  int num_kv_heads = 0;
  int head_dim_qk = 0;  ///< of the projections: mla has qk_nope_head_dim + qk_rope_head_dim here
  int head_dim_vo = 0;
  double sm_scale = 0.0;         ///< with YaRN's, Granite's, Gemma's factors inside
  double logits_soft_cap = 0.0;  ///< 0 = off
  std::int64_t sliding_window =
      0;  ///< keys seen, own position included (Hugging Face's count); 0 = off
  std::int64_t attention_chunk = 0;  ///< chunked; 0 = off
  DualChunkConfig dual_chunk;
  bool causal = true;
  bool sinks = false;
  bool alibi = false;
  bool relative_bias = false;  ///< T5
  std::int64_t xai_temperature_len = 0;
  RopeConfig rope;

  bool qkv_bias = false;
  bool o_bias = false;
  QkNorm qk_norm = QkNorm::none;
  bool v_norm = false;          ///< Gemma-4: RMSNorm without weight on values
  bool k_is_v = false;          ///< Gemma-4: values are the keys' projection (attention_k_eq_v)
  bool output_gate = false;     ///< q_proj also makes a sigmoid gate on the output (Qwen3-Next)
  double value_scale = 1.0;     ///< MiMo-V2: attention_value_scale
  double key_multiplier = 1.0;  ///< Falcon-H1
  /// Llama-4, NoPE layers: q *= 1 + temperature_scale * ln(floor((p + 1) / temperature_floor) + 1);
  /// 0 = off.
  double temperature_scale = 0.0;
  double temperature_floor = 8192.0;

  // mla, sparse_mla; q_lora_rank also dsv4
  int q_lora_rank = 0;  ///< 0 = one plain projection
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;
  double q_lora_scale = 1.0;   ///< LongCat: factor on the normalised query latent
  double kv_lora_scale = 1.0;  ///< LongCat: factor on the normalised KV latent

  IndexerConfig indexer;

  // dsv4
  int compress_ratio = 0;  ///< 0 = window only
  int o_groups = 0;
  int o_lora_rank = 0;
  // ZAYA: kernel sizes of the two convolutions before q, k and v
  int cca_time0 = 0;
  int cca_time1 = 0;

  [[nodiscard]] bool operator==(const AttentionConfig&) const = default;
};

/// One linear mixer that some layers share. Dims as in AttentionSpec.
struct LinearConfig {
  std::string family;              ///< of LinearFamilies; empty: one in tree, which `variant` names
  Variant variant = Variant::gdn;  ///< gdn, kda, mamba2, lightning, short_conv
  int num_k_heads = 0;             ///< mamba2: groups of B and C
  int num_v_heads = 0;
  int head_dim_k = 0;  ///< mamba2: d_state
  int head_dim_v = 0;
  int conv_kernel = 0;  ///< 0 = no convolution
  int conv_dim = 0;     ///< channels of the convolution
  bool conv_bias = false;
  bool proj_bias = false;
  int chunk_size = 0;             ///< of the parallel form, if the file says so
  bool gated_norm = true;         ///< RMSNorm with gate on the mixer's output
  int norm_groups = 1;            ///< mamba2: that norm is taken over inner / norm_groups channels
  bool norm_before_gate = false;  ///< otherwise the gate is applied before the norm
  double time_step_min = 0.0;     ///< mamba2: clamp of softplus(dt)
  double time_step_max = std::numeric_limits<double>::infinity();
  bool allow_negative_eigenvalues = false;                ///< OLMo-Hybrid: beta in (0, 2)
  double gate_lower_bound = 0.0;                          ///< Kimi-K3; 0 = none
  bool full_rank_gate = false;                            ///< Kimi-K3
  std::array<double, 5> ssm_multipliers{1, 1, 1, 1, 1};   ///< Falcon-H1: z, x, B, C, dt
  std::shared_ptr<const LinearFamilyLayers> described{};  ///< by a plugin's record; else none
  [[nodiscard]] bool operator==(const LinearConfig&) const = default;
};

enum class FeedForwardKind : std::uint8_t { none, dense, moe, dense_and_moe };

/// What one layer is made of. -1 = the layer has no such part.
struct LayerConfig {
  int attention = -1;        ///< index into ModelConfig::attention
  int cross_attention = -1;  ///< Whisper's decoder: after the self attention
  int linear = -1;           ///< index into ModelConfig::linear; beside `attention` in Falcon-H1
  FeedForwardKind feed_forward = FeedForwardKind::dense;
  int kv_source = -1;         ///< reads the cache that this earlier layer wrote (Gemma-3n, Gemma-4)
  bool owns_indexer = true;   ///< false: reuses the top-k of the layer before (GLM-5.2)
  int intermediate_size = 0;  ///< of the dense feed-forward
};

enum class Activation : std::uint8_t {
  silu,
  gelu,
  gelu_tanh,
  relu,
  relu2,
  swiglu_oai,  ///< gpt-oss: clamped, x * sigmoid(alpha * x) * (up + 1)
  situ,        ///< Kimi-K3
};

enum class NormKind : std::uint8_t {
  rms,
  rms_plus_one,  ///< Gemma: x * (1 + weight)
  layer_norm,
};

enum class NormPlacement : std::uint8_t {
  pre,
  post,      ///< OLMo-2/3, EXAONE-4: on each branch's output only
  sandwich,  ///< Gemma-2/3/4: before and after each branch
  parallel,  ///< Cohere: one norm, attention and feed-forward side by side
};

enum class RouterScore : std::uint8_t { softmax, sigmoid, sqrt_softplus };

/// Mixture of experts; num_experts 0 = none.
struct MoeConfig {
  int num_experts = 0;
  int experts_per_token = 0;
  int num_shared_experts = 0;
  int intermediate_size = 0;         ///< of one routed expert
  int shared_intermediate_size = 0;  ///< of the shared experts together; 0 = none
  RouterScore score = RouterScore::softmax;
  bool softmax_after_topk = false;  ///< gpt-oss, Mixtral-like: softmax over the chosen logits only
  bool normalize_topk = false;
  double routed_scale = 1.0;
  int num_groups = 1;  ///< DeepSeek: experts in groups, top groups first
  int topk_groups = 1;
  bool selection_bias = false;  ///< a bias that takes part in the choice, not in the weight
  bool shared_gate = false;     ///< Qwen: sigmoid gate on the shared expert
  int num_zero_experts = 0;     ///< LongCat: identity experts
  int num_skip_experts = 0;     ///< ZAYA: choices behind the experts that contribute nothing
  int num_hash_layers = 0;      ///< DeepSeek-V4: first layers route by token id
  int latent_size = 0;          ///< routed experts work in a latent of this width; 0 = hidden
  bool scale_input = false;     ///< Llama-4: the router's score scales the expert's input

  /// What a router chooses among.
  [[nodiscard]] int num_choices() const {
    return num_experts + num_zero_experts + num_skip_experts;
  }
};

enum class PositionKind : std::uint8_t { rotary, none, learned, sinusoidal, relative_bias };

struct EncoderConfig {
  int num_layers = 0;  ///< 0 = decoder only
  int attention = -1;  ///< index into ModelConfig::attention
  int intermediate_size = 0;
  std::int64_t max_positions = 0;
};

class LinearFamilies;

struct ModelConfig {
  const LinearFamilies* families = nullptr;  ///< from outside (linear_families.hpp); may be none
  std::string architecture;                  ///< e.g. LlamaForCausalLM
  std::string model_type;  ///< e.g. llama; of the text part where the file nests one
  std::int64_t vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;        ///< of a dense feed-forward
  std::int64_t context_length = 0;  ///< max_position_embeddings
  bool tie_embeddings = false;
  DType dtype = DType::bf16;                 ///< of the checkpoint
  std::optional<DType> checkpoint_kv_dtype;  ///< a quantised checkpoint that asks for a KV type
  std::optional<std::int32_t> bos_token;
  std::vector<std::int32_t> eos_tokens;
  std::optional<std::int32_t> pad_token;

  std::vector<LayerConfig> layers;
  std::vector<AttentionConfig> attention;
  std::vector<LinearConfig> linear;
  MoeConfig moe;
  EncoderConfig encoder;
  bool is_encoder_only = false;
  int num_token_types = 0;  ///< BERT: segments that have an embedding of their own

  NormKind norm = NormKind::rms;
  NormPlacement norm_placement = NormPlacement::pre;
  double norm_eps = 1e-5;
  Activation activation = Activation::silu;
  bool gated_mlp = true;  ///< act(gate) * up; otherwise act(up)
  bool mlp_bias = false;
  double swiglu_limit = 0.0;  ///< clamp of gate and up; 0 = none
  double swiglu_alpha = 1.702;
  PositionKind positions = PositionKind::rotary;

  double embedding_multiplier =
      1.0;  ///< Gemma: sqrt(hidden); Granite, MiniCPM, Falcon-H1: from the file
  double residual_multiplier = 1.0;  ///< on each branch before it is added (Granite, MiniCPM)
  double logits_multiplier = 1.0;    ///< Granite 1/logits_scaling, Cohere logit_scale, MiniCPM
  double final_logits_soft_cap = 0.0;

  // One family each.
  double attention_in_multiplier = 1.0;  ///< Falcon-H1
  double attention_out_multiplier = 1.0;
  double ssm_in_multiplier = 1.0;
  double ssm_out_multiplier = 1.0;
  std::array<double, 2> mlp_multipliers{1, 1};  ///< Falcon-H1: gate, down
  bool residual_after_norm = false;             ///< MiniMax: the residual is the normed input
  std::array<double, 2> full_attention_mix{
      1, 1};  ///< MiniMax: alpha of the residual, beta of the branch
  std::array<double, 2> linear_attention_mix{1, 1};
  std::array<double, 2> mlp_mix{1, 1};
  int hyper_connections = 0;  ///< DeepSeek-V4: hc_mult
  int hyper_sinkhorn_iterations = 0;
  double hyper_eps = 1e-6;
  double compress_rope_theta = 0.0;  ///< DeepSeek-V4: of layers with compressed keys
  int per_layer_input_size = 0;      ///< Gemma-3n, Gemma-4
  std::int64_t per_layer_vocab_size = 0;
  int router_hidden_size = 0;     ///< ZAYA: the router is a network of its own, of this width
  bool residual_scaling = false;  ///< ZAYA: vectors on the residual and on each branch

  [[nodiscard]] int num_layers() const { return static_cast<int>(layers.size()); }
  [[nodiscard]] const AttentionConfig* attention_of(int layer) const {
    const int i = layers[static_cast<std::size_t>(layer)].attention;
    return i < 0 ? nullptr : &attention[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] const LinearConfig* linear_of(int layer) const {
    const int i = layers[static_cast<std::size_t>(layer)].linear;
    return i < 0 ? nullptr : &linear[static_cast<std::size_t>(i)];
  }
};

}  // namespace attune::model
