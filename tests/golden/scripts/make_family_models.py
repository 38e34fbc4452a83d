"""Makes the tiny models of the families beside Llama, their rows and their first adapters.

usage: make_family_models.py OUT

OUT: receives OUT/families. The committed ones are the reference: make_families.py starts from them.
Weights are wide enough that attention, windows and norms matter, and bf16, which f32 holds exactly.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GraniteConfig,
    GraniteForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
)

OUT = Path(sys.argv[1]) / "families"
SHARED = dict(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    initializer_range=0.15,
    sliding_window=8,
    bos_token_id=0,
    eos_token_id=1,
)
# In Qwen's models the first layer sees all, the second a window.
QWEN = dict(use_sliding_window=True, max_window_layers=1)
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
# Small ones, of 64 tokens.
SMALL = {**SHARED, "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48}
GEMMA = dict(head_dim=16, query_pre_attn_scalar=24, pad_token_id=None)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS = {
    "mistral": (
        MistralForCausalLM,
        MistralConfig(**SHARED, rms_norm_eps=1e-5, rope_parameters=ROPE),
    ),
    "qwen2": (
        Qwen2ForCausalLM,
        Qwen2Config(**SHARED, **QWEN, tie_word_embeddings=True, rope_parameters=LLAMA3),
    ),
    "qwen3": (
        Qwen3ForCausalLM,
        Qwen3Config(
            **SHARED, **QWEN, head_dim=32, rope_parameters={**ROPE, "rope_theta": 1000000.0}
        ),
    ),
    "granite": (
        GraniteForCausalLM,
        GraniteConfig(
            **{**SHARED, "hidden_size": 32, "intermediate_size": 48, "sliding_window": None},
            tie_word_embeddings=True,
            rope_parameters=ROPE,
            embedding_multiplier=3.0,
            attention_multiplier=0.25,
            residual_multiplier=0.5,
            logits_scaling=1.5,
        ),
    ),
    # Caps so low that scores and logits reach them.
    "gemma2": (
        Gemma2ForCausalLM,
        Gemma2Config(
            **SMALL,
            **GEMMA,
            rope_parameters=ROPE,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=4.0,
        ),
    ),
    "phi3": (
        Phi3ForCausalLM,
        Phi3Config(
            **SMALL, pad_token_id=None, rope_parameters={**ROPE, "partial_rotary_factor": 0.5}
        ),
    ),
    # The second layer sees all.
    "gemma3": (
        Gemma3ForCausalLM,
        Gemma3TextConfig(
            **SMALL,
            **GEMMA,
            sliding_window_pattern=2,
            rope_parameters={
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                "full_attention": {
                    "rope_type": "linear",
                    "factor": 4.0,
                    "rope_theta": 1000000.0,
                },
            },
        ),
    ),
    "starcoder2": (
        Starcoder2ForCausalLM,
        Starcoder2Config(**SMALL, rope_parameters=ROPE),
    ),
}
RANK = 4


def weights(kind, config, seed):
    torch.manual_seed(seed)
    model = kind(config)
    with torch.no_grad():
        for name, param in model.named_parameters():
            if name.endswith("norm.weight"):
                around = 0 if "gemma" in config.model_type else 1
                param.copy_(around + 0.2 * torch.randn_like(param))
            elif name.endswith(".bias"):
                param.copy_(0.3 * torch.randn_like(param))
    return model.to(torch.bfloat16)


def adapter(model):
    """LoRA under PEFT's names, B not zero, so that A has a gradient too."""
    first = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            out_width, in_width = module.weight.shape
            bound = in_width**-0.5
            a = torch.empty(RANK, in_width).uniform_(-bound, bound)
            first[f"base_model.model.{name}.lora_A.weight"] = a
            first[f"base_model.model.{name}.lora_B.weight"] = 0.02 * torch.randn(out_width, RANK)
    return first


def as_transformers_4_writes_it(config):
    old = {key: value for key, value in config.items() if key != "layer_types"}
    rope = old.pop("rope_parameters")
    if "full_attention" in rope:
        old["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        old["sliding_window_pattern"] = old.pop("_sliding_window_pattern")
        rope = rope["full_attention"]
    if "partial_rotary_factor" in rope:
        old["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    old["rope_theta"] = rope.pop("rope_theta")
    old["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    old["torch_dtype"] = old.pop("dtype")
    old["transformers_version"] = "4.51.0"
    return old


def rows(lengths, seed):
    """Random tokens of these lengths, padded with 0."""
    shape = (len(lengths), int(lengths.max()))
    tokens = torch.randint(2, 256, shape, generator=torch.Generator().manual_seed(seed))
    tokens[torch.arange(shape[1]) >= lengths[:, None]] = 0
    return tokens, lengths


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    eval_tokens, eval_lengths = rows(torch.tensor([32, 9, 21]), 1)
    lengths = torch.randint(2, 25, (80,), generator=torch.Generator().manual_seed(2))
    train_tokens, train_lengths = rows(lengths, 3)
    data = dict(eval_tokens=eval_tokens, eval_lengths=eval_lengths)
    data.update(train_tokens=train_tokens, train_lengths=train_lengths)
    save_file(data, OUT / "data.safetensors")
    for seed, (name, (kind, config)) in enumerate(MODELS.items(), 20):
        model = weights(kind, config, seed)
        model.save_pretrained(OUT / name)
        (OUT / name / "generation_config.json").unlink(missing_ok=True)
        config = json.loads((OUT / name / "config.json").read_text())
        old = json.dumps(as_transformers_4_writes_it(config), indent=2)
        (OUT / name / "config_4.json").write_text(old + "\n")
        save_file(adapter(model), OUT / name / "lora_init.safetensors")


main()
