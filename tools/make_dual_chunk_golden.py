#!/usr/bin/env python3
"""Writes tests/golden/models/qwen2_1m: the weights of tests/golden/models/qwen2 under dual chunk
attention (Qwen2.5-1M), and the logits that numpy computes for them in fp64. Nothing in transformers
knows this attention; here it is one softmax over all keys whose logits are formed pair by pair, with
the rotation that each pair's distance asks for. Needs numpy and safetensors.

    tools/make_dual_chunk_golden.py tests/golden/models
"""
import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file

from golden_numpy import read_weights

# The longest prompts of the golden models run over three chunks of these, of 16 positions: whole pages
# for backends that need that.
CHUNKS = dict(chunk_size=20, local_size=4, original_max_position_embeddings=12)
PERIOD = CHUNKS["chunk_size"] - CHUNKS["local_size"]
CONTINUATION = 6


def rotate(x, positions, theta):
    """x [n, heads, dim], neox pairs."""
    half = x.shape[-1] // 2
    angle = positions[:, None, None] * theta ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle),
                           b * np.cos(angle) + a * np.sin(angle)], -1)


def attend(q, k, v, theta):
    n, heads, dim = q.shape
    k, v = (np.repeat(x, heads // x.shape[1], 1) for x in (k, v))
    place = np.arange(n)
    turned_k = rotate(k, place % PERIOD, theta)
    size = CHUNKS["chunk_size"]
    by_distance = [rotate(q, at, theta) for at in (
        place % PERIOD, np.minimum(place % PERIOD + PERIOD, size),
        np.full(n, min(2 * PERIOD - 1, size)))]
    logits = np.full((heads, n, n), -np.inf)
    for i in range(n):
        mscale = max(1.0, 0.1 * np.log((i + 1) / CHUNKS["original_max_position_embeddings"]) + 1.0)
        for j in range(i + 1):
            query = by_distance[min(i // PERIOD - j // PERIOD, 2)][i]
            logits[:, i, j] = mscale**2 * (query * turned_k[j]).sum(-1) / np.sqrt(dim)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", p, v)


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def logits_of(w, c, tokens):
    x = w["model.embed_tokens.weight"][tokens].astype(np.float64)
    n, dim = len(tokens), c["head_dim"]
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        linear = lambda name, y: y @ w[at + name + ".weight"].T + w.get(at + name + ".bias", 0.0)
        y = norm(x, w[at + "input_layernorm.weight"], c["rms_norm_eps"])
        q, k, v = (linear(f"self_attn.{name}_proj", y).reshape(n, -1, dim) for name in "qkv")
        o = attend(q, k, v, c["rope_parameters"]["rope_theta"])
        x = x + linear("self_attn.o_proj", o.reshape(n, -1))
        y = norm(x, w[at + "post_attention_layernorm.weight"], c["rms_norm_eps"])
        gate = linear("mlp.gate_proj", y)
        x = x + linear("mlp.down_proj", gate / (1 + np.exp(-gate)) * linear("mlp.up_proj", y))
    return norm(x, w["model.norm.weight"], c["rms_norm_eps"]) @ w["lm_head.weight"].T


def main():
    models = pathlib.Path(sys.argv[1])
    plain, out = models / "qwen2", models / "qwen2_1m"
    out.mkdir(exist_ok=True)
    config = json.loads((plain / "config.json").read_text())
    weights = read_weights(plain / "model.safetensors")
    prompts = read_weights(plain / "golden.safetensors")
    golden, margin = {}, np.inf
    for i in range(3):
        prompt = prompts[f"prompt{i}"].astype(np.int32)
        tokens = list(prompt)
        for _ in range(CONTINUATION):
            tokens.append(int(logits_of(weights, config, tokens)[-1].argmax()))
        logits = logits_of(weights, config, tokens).astype(np.float32)
        best = np.sort(logits, -1)
        margin = min(margin, (best[:, -1] - best[:, -2]).min())
        golden |= {f"prompt{i}": prompt, f"tokens{i}": np.array(tokens, np.int32),
                   f"all_logits{i}": logits}
    config |= dict(dual_chunk_attention_config=CHUNKS)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "model.safetensors").write_bytes((plain / "model.safetensors").read_bytes())
    save_file(golden, out / "golden.safetensors")
    print(f"qwen2_1m: least margin {margin:.4f}")


if __name__ == "__main__":
    main()
