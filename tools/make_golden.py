#!/usr/bin/env python3
"""Makes the golden models under tests/golden/models: one tiny random checkpoint a family, with the
logits that Hugging Face transformers computes for it in fp32. Needs torch and transformers; the
tests themselves need only the files.

    tools/make_golden.py --out tests/golden/models [--seed 7] [FAMILY ...]

A folder holds config.json, model.safetensors (bf16) and golden.safetensors: for prompt i
    prompt{i}      int32 [n]
    tokens{i}      int32 [n + continuation]    the prompt and what greedy decoding adds
    all_logits{i}  fp32  [n + continuation, vocab]   one uncached pass over tokens{i}
"""
import argparse
import hashlib
import pathlib

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

VOCAB = 96
PROMPT_LENGTHS = (4, 23, 40)
CONTINUATION = 6

# Three query heads to a KV head and a width that is no power of two: shapes the other sets lack.
COMMON = dict(
    vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
    num_attention_heads=6, num_key_value_heads=2, head_dim=16, max_position_embeddings=256,
    tie_word_embeddings=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)
EXPERTS = dict(
    num_experts=5, num_local_experts=5, n_routed_experts=5, num_experts_per_tok=2,
    moe_intermediate_size=24, n_shared_experts=1, shared_expert_intermediate_size=24, n_group=1,
    topk_group=1,
)
LATENT = dict(
    kv_lora_rank=24, q_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=16,
    num_attention_heads=4, num_key_value_heads=4, head_dim=8,
)
MAMBA2 = dict(
    mamba_n_heads=6, mamba_d_head=16, mamba_d_state=12, mamba_n_groups=2, mamba_d_conv=4,
    mamba_expand=2, mamba_chunk_size=8, mamba_d_ssm=96,
)
DELTA = dict(
    linear_conv_kernel_dim=4, linear_key_head_dim=12, linear_value_head_dim=16,
    linear_num_key_heads=2, linear_num_value_heads=4,
)
INDEXER = dict(index_topk=6, index_head_dim=20, index_n_heads=9)


def layers(*kinds):
    """layer_types from (kind, count) pairs written as 'kind*count'."""
    out = []
    for word in kinds:
        kind, _, count = word.partition("*")
        out += [kind] * int(count or 1)
    return dict(layer_types=out, num_hidden_layers=len(out))


LOCAL_GLOBAL = layers("sliding_attention*2", "full_attention")
LINEAR_FULL = layers("linear_attention*2", "full_attention")

FAMILIES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": dict(sliding_window=7),
    "smollm3": dict(layers("full_attention*3"), no_rope_layers=[1, 0, 1]),
    "gemma2": dict(layers("sliding_attention", "full_attention"), sliding_window=6,
                   query_pre_attn_scalar=20, attn_logit_softcapping=4.0,
                   final_logit_softcapping=15.0),
    "gemma3_text": dict(LOCAL_GLOBAL, sliding_window=6, query_pre_attn_scalar=20),
    "gemma4_text": dict(LOCAL_GLOBAL, sliding_window=6, hidden_size_per_layer_input=8,
                        vocab_size_per_layer_input=VOCAB, per_layer_config={"2": {"head_dim": 24}}),
    "gpt_oss": dict(EXPERTS, **layers("sliding_attention", "full_attention"), sliding_window=5,
                    intermediate_size=24,
                    rope_parameters=dict(rope_type="yarn", factor=4.0, beta_fast=32.0,
                                         beta_slow=1.0, truncate=False, rope_theta=150000.0,
                                         original_max_position_embeddings=64)),
    "cohere2": dict(LOCAL_GLOBAL, sliding_window=6),
    "olmo3": dict(LOCAL_GLOBAL, sliding_window=6),
    "exaone4": dict(LOCAL_GLOBAL, sliding_window=6),
    "granite_swa": dict(num_hidden_layers=3, sliding_window=6, embedding_multiplier=3.0,
                        residual_multiplier=0.6, logits_scaling=2.0, attention_multiplier=0.2),
    "llama4_text": dict(EXPERTS, **layers("chunked_attention*2", "full_attention"),
                        attention_chunk_size=9, intermediate_size=24, intermediate_size_mlp=80,
                        moe_layers=[1], no_rope_layers=[1, 1, 0], floor_scale=8,
                        num_experts_per_tok=1),
    "minimax_m2": dict(EXPERTS, intermediate_size=24),
    # Its windowed layers double the KV heads.
    "mimo_v2_flash": dict(EXPERTS, num_hidden_layers=3, num_attention_heads=8, sliding_window=5,
                          v_head_dim=24),
    "deepseek_v2": dict(EXPERTS, **LATENT, first_k_dense_replace=1),
    "deepseek_v3": dict(EXPERTS, **LATENT, first_k_dense_replace=1) | dict(
        n_routed_experts=6, n_group=2, topk_group=1),
    "longcat_flash": dict(EXPERTS, **LATENT, num_layers=2, ffn_hidden_size=64,
                          expert_ffn_hidden_size=24, moe_topk=2, zero_expert_num=2),
    "minicpm3": dict(LATENT),
    "deepseek_v32": dict(EXPERTS, **LATENT, **INDEXER, first_k_dense_replace=1,
                         mlp_layer_types=["dense", "sparse"],
                         **layers("deepseek_sparse_attention*2")),
    "glm_moe_dsa": dict(EXPERTS, **LATENT, **INDEXER, first_k_dense_replace=1,
                        mlp_layer_types=["dense", "sparse", "dense"],
                        indexer_types=["full", "shared", "full"],
                        **layers("deepseek_sparse_attention*3")),
    "deepseek_v4": dict(
        EXPERTS, **layers("heavily_compressed_attention", "compressed_sparse_attention",
                          "sliding_attention"),
        num_attention_heads=4, num_key_value_heads=1, head_dim=32, q_lora_rank=32,
        qk_rope_head_dim=8, partial_rotary_factor=0.25, sliding_window=6, o_groups=2,
        o_lora_rank=12, index_n_heads=4, index_head_dim=16, index_topk=3,
        compress_rates=dict(compressed_sparse_attention=4, heavily_compressed_attention=8),
        mlp_layer_types=["moe"] * 3,
        rope_parameters=dict(
            main=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25),
            compress=dict(rope_type="default", rope_theta=160000.0, partial_rotary_factor=0.25))),
    "minimax_m3_vl_text": dict(EXPERTS, intermediate_size=24, shared_intermediate_size=32),
    "qwen3_next": dict(EXPERTS, **DELTA, **LINEAR_FULL),
    "qwen3_5_text": dict(DELTA, **LINEAR_FULL),
    "olmo_hybrid": dict(DELTA, **LINEAR_FULL) | dict(
        linear_num_key_heads=4, linear_value_head_dim=24),
    "kimi_linear": dict(EXPERTS, **LATENT, **LINEAR_FULL, num_experts_per_token=2,
                        num_shared_experts=1, mlp_layer_types=["dense", "sparse", "sparse"],
                        linear_head_dim=12, linear_num_heads=4, linear_conv_kernel_dim=4),
    "mamba2": dict(num_heads=6, head_dim=16, state_size=12, n_groups=2, expand=2, conv_kernel=4,
                   chunk_size=8, time_step_rank=6),
    "bamba": dict(MAMBA2, attn_layer_indices=[1]),
    "falcon_h1": dict(MAMBA2),
    "granitemoehybrid": dict(EXPERTS, **MAMBA2, **LINEAR_FULL, shared_intermediate_size=32,
                             intermediate_size=24),
    "nemotron_h": dict(EXPERTS, num_hidden_layers=None, mamba_num_heads=6, mamba_head_dim=16,
                       ssm_state_size=12, n_groups=2, conv_kernel=4, chunk_size=8,
                       moe_shared_expert_intermediate_size=24,
                       layers_block_type=["linear_attention", "mlp", "full_attention"]),
    "minimax": dict(EXPERTS, block_size=8, **layers("linear_attention", "full_attention")),
    "lfm2": dict(conv_L_cache=3, block_ff_dim=80, **layers("conv", "full_attention", "conv")),
    "lfm2_moe": dict(EXPERTS, conv_L_cache=3, num_dense_layers=1,
                     **layers("conv", "full_attention", "conv")),
    "zaya": dict(EXPERTS, router_hidden_size=12, **layers("hybrid*2")) | dict(
        num_experts_per_tok=1),
}

# Arguments that a config class takes although its defaults do not list them.
ALWAYS_PASSED = {"attn_layer_indices", "block_ff_dim", "layer_types"}


def make_config(family):
    known = AutoConfig.for_model(family).to_dict().keys() | COMMON.keys() | ALWAYS_PASSED
    wanted = COMMON | FAMILIES[family]
    kept = {k: v for k, v in wanted.items() if k in known and v is not None}
    if "num_hidden_layers" in FAMILIES[family] and FAMILIES[family]["num_hidden_layers"] is None:
        kept.pop("num_hidden_layers", None)
    return AutoConfig.for_model(family, **kept)


def seed_of(name, seed):
    """Each tensor has its own stream, so that adding one to a family leaves the others alone."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:7], "little")


@torch.no_grad()
def randomise(model, family, seed):
    """Weights large enough that softmaxes are peaked and gates open and close, then rounded to bf16."""
    for name, weight in model.named_parameters():
        stream = torch.Generator().manual_seed(seed_of(f"{family}/{name}", seed))
        noise = torch.randn(weight.shape, generator=stream)
        if weight.ndim >= 2 and "embed" in name:
            value = noise
        elif weight.ndim >= 2:
            peaked = any(part in name for part in ("q_", "k_", "qkv", "index"))
            fan_in = weight.shape[-1] if weight.shape[-1] > 4 else 4
            value = noise * (1.5 if peaked else 1.0) / fan_in**0.5
        elif name.endswith(("bias", "sinks")) or "sink" in name:
            value = 0.25 * noise
        elif "A_log" in name or "dt_bias" in name:
            value = weight + 0.25 * noise
        else:
            value = weight * (1 + 0.15 * noise)
        weight.copy_(value.bfloat16().float())


@torch.no_grad()
def logits_of(model, tokens):
    return model(tokens[None].long(), use_cache=False).logits[0].float().contiguous()


def make_golden(model, seed):
    golden = {}
    stream = torch.Generator().manual_seed(seed)
    for i, length in enumerate(PROMPT_LENGTHS):
        prompt = torch.randint(3, VOCAB, (length,), generator=stream, dtype=torch.int32)
        tokens = prompt
        for _ in range(CONTINUATION):
            best = logits_of(model, tokens)[-1].argmax().int().view(1)
            tokens = torch.cat([tokens, best])
        golden |= {
            f"prompt{i}": prompt, f"tokens{i}": tokens, f"all_logits{i}": logits_of(model, tokens),
        }
    if not all(t.isfinite().all() for t in golden.values()):
        raise ValueError("the logits are not finite")
    return golden


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("families", nargs="*", default=list(FAMILIES), metavar="FAMILY")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    failed = []
    for family in args.families:
        try:
            torch.manual_seed(args.seed)
            config = make_config(family)
            model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
            model = model.float().eval()
            randomise(model, family, args.seed)
            golden = make_golden(model, args.seed)
        except Exception as error:  # a family that this transformers cannot make must not stop the rest
            failed.append(family)
            print(f"{family}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        folder = args.out / family
        folder.mkdir(parents=True, exist_ok=True)
        save_file(golden, folder / "golden.safetensors")
        model.bfloat16().save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        top = golden["all_logits2"].topk(2).values
        size = sum(f.stat().st_size for f in folder.iterdir())
        print(f"{family}: {size // 1024} KiB, least margin {(top[:, 0] - top[:, 1]).min():.4f}",
              flush=True)
    raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
