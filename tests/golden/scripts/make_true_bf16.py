"""Makes the golden steps and the curve of training in bf16 alone: params, gradients and state.

usage: make_true_bf16.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its model and rows are the inputs.
OUT: receives OUT/optimizers/true_bf16.safetensors and true_bf16.json.

torch has two ways of a step on bf16 tensors. Its default on the CPU (`foreach=False`, and `fused=False`) makes a step
of tensor operations, each of which rounds its result to bf16. With `fused=True` a step is computed in f32 and each
result rounded once. The second is what the update here does; the first is kept to show how far it is from that.
For SGD there is the first alone: torch 2.13's fused SGD changes no bf16 param on the CPU.
"""

import json
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM, Trainer

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)

FROM = Path(sys.argv[1]) / "llama"
OUT = Path(sys.argv[2]) / "optimizers"
OUT.mkdir(parents=True, exist_ok=True)
BF16 = torch.bfloat16
NAMES = {"exp_avg": "first_moment", "exp_avg_sq": "second_moment", "momentum_buffer": "momentum"}
ADAMW = dict(lr=1e-2, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.05)
SGD = dict(lr=0.3, momentum=0.9, weight_decay=0.05)
CASES = {
    "adamw": (torch.optim.AdamW, ADAMW, True),
    "adamw_unfused": (torch.optim.AdamW, ADAMW, False),
    "sgd_unfused": (torch.optim.SGD, SGD, False),
}

# Four steps of a param, the gradients of the third far smaller.
generator = torch.Generator().manual_seed(11)
start = (torch.randn(130, generator=generator) * 0.1).to(BF16)
gradients = [(torch.randn(130, generator=generator) * scale).to(BF16) for scale in (0.1, 0.1, 0.001, 0.1)]
tensors = {"start": start} | {f"gradient.{step + 1}": gradient for step, gradient in enumerate(gradients)}
for case, (optimizer_class, options, fused) in CASES.items():
    param = torch.nn.Parameter(start.clone())
    optimizer = optimizer_class([param], foreach=False, fused=fused, **options)
    for step, gradient in enumerate(gradients):
        param.grad = gradient.clone()
        optimizer.step()
        tensors[f"{case}.param.{step + 1}"] = param.detach().clone()
        for key, value in optimizer.state[param].items():
            if key in NAMES:
                assert value.dtype == BF16, key
                tensors[f"{case}.{NAMES[key]}.{step + 1}"] = value.clone()

# Twenty steps of full fine-tuning, two micro-batches each, whose gradients torch adds up in bf16.
train_tokens = load_file(FROM / "data.safetensors")["train_tokens"]
summary = {"version": torch.__version__, "loss": {}}
for case, fused in (("fused", True), ("unfused", False)):
    model = LlamaForCausalLM.from_pretrained(FROM / "tiny-trained", dtype=BF16, attn_implementation="eager")
    model.train()
    decayed = set(Trainer.get_decay_parameter_names(None, model))
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if n in decayed], "weight_decay": 0.1},
        {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), eps=1e-8, foreach=False, fused=fused)
    losses = []
    for batch in train_tokens:
        optimizer.zero_grad()
        total = 0.0
        for half in batch.chunk(2):
            loss = model(input_ids=half, labels=half).loss / 2
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    assert all(p.dtype == p.grad.dtype == BF16 for _, p in named)
    summary["loss"][case] = losses
save_file(tensors, OUT / "true_bf16.safetensors")
(OUT / "true_bf16.json").write_text(json.dumps(summary, indent=1) + "\n")
