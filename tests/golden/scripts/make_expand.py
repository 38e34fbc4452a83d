"""Makes the golden numbers of `host expand`: a tiny Llama, its expansion by the rule of
AnswerDotAI/fsdp_qlora (scripts/block_expansion.py), and steps that train its new layers alone.

usage: make_expand.py GOLDEN OUT

GOLDEN: unused; every number follows from the seed.
OUT: receives OUT/expand.
"""

import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)

OUT = Path(sys.argv[2]) / "expand"
RATE = 0.5
STEPS = 10
CONFIG = LlamaConfig(
    hidden_act="silu",
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    attention_bias=True,
    mlp_bias=True,
    initializer_range=0.2,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=2,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=4,
    num_attention_heads=2,
    num_key_value_heads=1,
    vocab_size=32,
    max_position_embeddings=64,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)


def expanded(state, layers, rate):
    """The original rule, on the names of all tensors: the new state, and the new layers."""
    added = int(layers * rate)
    split = int(layers / added)
    output, new, count = {}, [], 0
    for name, tensor in state.items():
        if ".layers." not in name:
            output[name] = tensor
    for layer in range(layers):
        own = {n: t for n, t in state.items() if f".layers.{layer}." in n}
        for name, tensor in own.items():
            output[name.replace(f".layers.{layer}.", f".layers.{count}.")] = tensor
        count += 1
        if (layer + 1) % split == 0:
            for name, tensor in own.items():
                zero = "down_proj" in name or "o_proj" in name
                tensor = torch.zeros_like(tensor) if zero else tensor.clone()
                output[name.replace(f".layers.{layer}.", f".layers.{count}.")] = tensor
            new.append(count)
            count += 1
    assert count == layers + added
    assert new == [split + (split + 1) * i for i in range(added)]
    return output, new


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1234)
    model = LlamaForCausalLM(CONFIG).float().eval()
    with torch.no_grad():
        for name, param in model.named_parameters():
            if name.endswith("bias"):
                param.normal_(0, 0.2)
    model.save_pretrained(OUT / "model")
    (OUT / "model" / "generation_config.json").unlink()
    state = load_file(OUT / "model" / "model.safetensors")
    more, new = expanded(state, CONFIG.num_hidden_layers, RATE)
    save_file(more, OUT / "expanded.safetensors", {"format": "pt"})

    rows = torch.randint(3, CONFIG.vocab_size, (2, 24))
    train = torch.randint(3, CONFIG.vocab_size, (STEPS, 2, 24))
    config = LlamaConfig.from_dict(CONFIG.to_dict() | {"num_hidden_layers": 6})
    larger = LlamaForCausalLM(config).float()
    larger.load_state_dict(more)
    with torch.no_grad():
        logits = model(rows).logits
        assert torch.equal(logits, larger.eval()(rows).logits)

    for name, param in larger.named_parameters():
        param.requires_grad_(any(f".layers.{layer}." in name for layer in new))
    trained = {n: p for n, p in larger.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-2, betas=(0.9, 0.999), weight_decay=0.0)
    losses, norms = [], []
    for batch in train:
        loss = larger(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in trained.values()]).item())
        optimizer.step()
    expected = {
        "tokens": rows,
        "logits": logits,
        "train_tokens": train.flatten(0, 1),
        "losses": torch.tensor(losses),
        "norms": torch.tensor(norms),
        "added": torch.tensor(new),
    }
    with torch.no_grad():
        expected["trained_logits"] = larger(rows).logits
    save_file(expected, OUT / "expected.safetensors")


main()
