#!/usr/bin/env python3
"""Writes tests/golden/models/minimax_m3_vl: a tiny random checkpoint of MiniMax-M3's language model in
the layout that is published, and the logits that numpy computes for it in fp64. Every query's blocks
are found one by one, by the definition. Needs numpy and safetensors.

    tools/make_block_sparse_golden.py tests/golden/models
"""
import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file

from golden_numpy import to_bf16, write_bf16

SEED, CONTINUATION, PROMPT_LENGTHS = 11, 6, (4, 23, 40)
# A block is no whole number of pages of 16, 4 or 3 tokens; the longest prompts have nine.
SPARSE = dict(
    use_sparse_attention=True, sparse_index_dim=12, sparse_num_index_heads=2, sparse_topk_blocks=4,
    sparse_block_size=5, sparse_disable_index_value=[0, 1, 1], sparse_score_type="max",
    sparse_init_block=1, sparse_local_block=1, sparse_attention_freq=[0, 1, 1])
TEXT = dict(
    architectures=["MiniMaxM3SparseForCausalLM"], dtype="bfloat16", hidden_size=48,
    intermediate_size=24, dense_intermediate_size=80, shared_intermediate_size=32,
    num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, head_dim=16, vocab_size=96,
    max_position_embeddings=256, rms_norm_eps=1e-6, use_gemma_norm=True, rope_theta=5000000,
    rotary_dim=8, partial_rotary_factor=0.5, hidden_act="swigluoai", use_qk_norm=True,
    qk_norm_type="per_head", tie_word_embeddings=False, num_local_experts=5, num_experts_per_tok=2,
    n_shared_experts=1, scoring_func="sigmoid", use_routing_bias=True, moe_layer_freq=[0, 1, 1],
    swiglu_alpha=1.702, swiglu_limit=7.0, routed_scaling_factor=2.0, bos_token_id=1, eos_token_id=2,
    sparse_attention_config=SPARSE)
CONFIG = dict(architectures=["MiniMaxM3SparseForConditionalGeneration"], model_type="minimax_m3_vl",
              text_config=TEXT)


def make_weights(random):
    c, weights = TEXT, {}
    hidden, dim = c["hidden_size"], c["head_dim"]

    def matrix(name, rows, columns, gain=1.0):
        noise = random.standard_normal((rows, columns))
        weights[name + ".weight"] = to_bf16(noise * gain / np.sqrt(columns))

    def norm(name, width):
        weights[name + ".weight"] = to_bf16(0.15 * random.standard_normal(width))

    def mlp(prefix, names, width):
        for name, shape in zip(names, ((width, hidden), (width, hidden), (hidden, width))):
            matrix(prefix + name, *shape)

    projections = ("gate_proj", "up_proj", "down_proj")
    root = "language_model.model."
    matrix(root + "embed_tokens", c["vocab_size"], hidden, np.sqrt(hidden))
    for layer in range(c["num_hidden_layers"]):
        at = f"{root}layers.{layer}."
        norm(at + "input_layernorm", hidden)
        norm(at + "post_attention_layernorm", hidden)
        heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        matrix(at + "self_attn.q_proj", heads * dim, hidden, 1.5)
        matrix(at + "self_attn.k_proj", kv_heads * dim, hidden, 1.5)
        matrix(at + "self_attn.v_proj", kv_heads * dim, hidden)
        matrix(at + "self_attn.o_proj", hidden, heads * dim)
        norm(at + "self_attn.q_norm", dim)
        norm(at + "self_attn.k_norm", dim)
        if SPARSE["sparse_attention_freq"][layer]:
            width = SPARSE["sparse_index_dim"]
            matrix(at + "self_attn.index_q_proj", kv_heads * width, hidden)
            matrix(at + "self_attn.index_k_proj", width, hidden)
            norm(at + "self_attn.index_q_norm", width)
            norm(at + "self_attn.index_k_norm", width)
        if not c["moe_layer_freq"][layer]:
            mlp(at + "mlp.", projections, c["dense_intermediate_size"])
            continue
        moe = at + "block_sparse_moe."
        matrix(moe + "gate", c["num_local_experts"], hidden)
        weights[moe + "e_score_correction_bias"] = to_bf16(
            0.25 * random.standard_normal(c["num_local_experts"]))
        for expert in range(c["num_local_experts"]):
            mlp(f"{moe}experts.{expert}.", ("w1", "w3", "w2"), c["intermediate_size"])
        mlp(moe + "shared_experts.", projections, c["shared_intermediate_size"])
    norm(root + "norm", hidden)
    matrix("language_model.lm_head", c["vocab_size"], hidden)
    return weights


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + TEXT["rms_norm_eps"]) * (1 + weight)


def rotate(x):
    """x [n, heads, dim]: its first rotary_dim dims turn by halves."""
    turned, half = TEXT["rotary_dim"], TEXT["rotary_dim"] // 2
    frequency = float(TEXT["rope_theta"]) ** (-np.arange(half) / half)
    angle = np.arange(len(x))[:, None, None] * frequency
    a, b = x[..., :half], x[..., half:turned]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle),
                           b * np.cos(angle) + a * np.sin(angle), x[..., turned:]], -1)


def blocks_of(index_q, index_k, position, margins):
    """The blocks that one head of one query keeps; how clear the choice was."""
    size, budget = SPARSE["sparse_block_size"], SPARSE["sparse_topk_blocks"]
    blocks = list(range(position // size + 1))
    if len(blocks) <= budget:
        return blocks
    first, last = SPARSE["sparse_init_block"], SPARSE["sparse_local_block"]
    always = blocks[:first] + blocks[len(blocks) - last:]
    scores = index_k[:position + 1] @ index_q
    best = {b: scores[b * size:(b + 1) * size].max() for b in blocks if b not in always}
    order = sorted(best, key=best.get, reverse=True)
    left = budget - len(always)
    margins.append(best[order[left - 1]] - best[order[left]])
    return always + order[:left]


def attend(q, k, v, index, margins):
    n, heads, dim = q.shape
    group, size = heads // k.shape[1], SPARSE["sparse_block_size"]
    out = np.zeros((n, heads, v.shape[-1]))
    for i in range(n):
        for kv_head in range(k.shape[1]):
            seen = list(range(i + 1))
            if index is not None:
                kept = blocks_of(index[0][i, kv_head], index[1], i, margins)
                seen = [j for j in seen if j // size in kept]
            for head in range(kv_head * group, (kv_head + 1) * group):
                logits = k[seen, kv_head] @ q[i, head] / np.sqrt(dim)
                p = np.exp(logits - logits.max())
                out[i, head] = p @ v[seen, kv_head] / p.sum()
    return out


def swiglu(gate, up):
    limit = TEXT["swiglu_limit"]
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return (up + 1) * gate * sigmoid(TEXT["swiglu_alpha"] * gate)


def logits_of(w, tokens, margins):
    c, root = TEXT, "language_model.model."
    x = w[root + "embed_tokens.weight"][tokens]
    n, dim = len(tokens), c["head_dim"]
    for layer in range(c["num_hidden_layers"]):
        at = f"{root}layers.{layer}."
        linear = lambda name, y: y @ w[at + name + ".weight"].T
        feed = lambda prefix, names, y: linear(
            prefix + names[2], swiglu(linear(prefix + names[0], y), linear(prefix + names[1], y)))
        y = norm(x, w[at + "input_layernorm.weight"])
        heads = lambda name, width=dim: linear("self_attn." + name, y).reshape(n, -1, width)
        turned = lambda name, width=dim: rotate(
            norm(heads(name + "_proj", width), w[f"{at}self_attn.{name}_norm.weight"]))
        index = None
        if SPARSE["sparse_attention_freq"][layer]:
            width = SPARSE["sparse_index_dim"]
            index = turned("index_q", width), turned("index_k", width)[:, 0]
        o = attend(turned("q"), turned("k"), heads("v_proj"), index, margins)
        x = x + linear("self_attn.o_proj", o.reshape(n, -1))
        y = norm(x, w[at + "post_attention_layernorm.weight"])
        projections = ("gate_proj", "up_proj", "down_proj")
        if not c["moe_layer_freq"][layer]:
            x = x + feed("mlp.", projections, y)
            continue
        moe = "block_sparse_moe."
        score = sigmoid(linear(moe + "gate", y))
        choice = np.argsort(-(score + w[at + moe + "e_score_correction_bias"]), -1)
        routed = np.zeros_like(y)
        for i in range(n):
            chosen = choice[i, :c["num_experts_per_tok"]]
            for expert in chosen:
                routed[i] += score[i, expert] / score[i, chosen].sum() * feed(
                    f"{moe}experts.{expert}.", ("w1", "w3", "w2"), y[i])
        x = x + c["routed_scaling_factor"] * routed + feed(moe + "shared_experts.", projections, y)
    return norm(x, w[root + "norm.weight"]) @ w["language_model.lm_head.weight"].T


def main():
    out = pathlib.Path(sys.argv[1]) / "minimax_m3_vl"
    out.mkdir(exist_ok=True)
    random = np.random.default_rng(SEED)
    weights = make_weights(random)
    golden, margins, least = {}, [], np.inf
    for i, length in enumerate(PROMPT_LENGTHS):
        prompt = random.integers(3, TEXT["vocab_size"], length).astype(np.int32)
        tokens = list(prompt)
        for _ in range(CONTINUATION):
            tokens.append(int(logits_of(weights, tokens, [])[-1].argmax()))
        logits = logits_of(weights, tokens, margins).astype(np.float32)
        best = np.sort(logits, -1)
        least = min(least, (best[:, -1] - best[:, -2]).min())
        golden |= {f"prompt{i}": prompt, f"tokens{i}": np.array(tokens, np.int32),
                   f"all_logits{i}": logits}
    (out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    write_bf16(weights, out / "model.safetensors")
    save_file(golden, out / "golden.safetensors")
    print(f"minimax_m3_vl: least margin {least:.4f}; {len(margins)} choices of blocks, the closest "
          f"by {min(margins):.5f}")


if __name__ == "__main__":
    main()
