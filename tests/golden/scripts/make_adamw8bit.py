"""Makes the golden steps and curve of 8-bit AdamW: bitsandbytes' AdamW8bit on the CPU.

usage: make_adamw8bit.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its model and rows are the inputs.
OUT: receives OUT/optimizers/adamw8bit.safetensors and adamw8bit.json.
"""

import json
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import bitsandbytes as bnb
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
OPTIONS = dict(betas=(0.9, 0.999), eps=1e-8)
NAMES = {"state1": "first_moment", "absmax1": "first_absmax", "state2": "second_moment", "absmax2": "second_absmax"}

# Four steps of a param of 17 blocks and a short one, and of a small param. The first gradients of
# the large one are 0, as are those of its fourth block; the third step's are far smaller.
generator = torch.Generator().manual_seed(7)
draw = lambda n: torch.randn(n, generator=generator)
params = {"large": torch.nn.Parameter(draw(4500) * 0.1), "small": torch.nn.Parameter(draw(100) * 0.1)}
optimizer = bnb.optim.AdamW8bit(params.values(), lr=1e-2, weight_decay=0.05, **OPTIONS)
tensors = {}
for step in range(5):
    for name, param in params.items():
        if step > 0:
            param.grad = draw(param.numel()) * (0.001 if step == 3 else 0.1)
            if name == "large":
                param.grad[:7] = 0
                param.grad[768:1024] = 0
            tensors[f"{name}.gradient.{step}"] = param.grad.clone()
    if step > 0:
        optimizer.step()
    for name, param in params.items():
        tensors[f"{name}.param.{step}"] = param.detach().clone()
        for key, value in optimizer.state[param].items() if step > 0 else ():
            if key in NAMES:
                tensors[f"{name}.{NAMES[key]}.{step}"] = value.clone().contiguous()

# Twenty steps of full fine-tuning. Projections of keys and values, and norms, are small.
train_tokens = load_file(FROM / "data.safetensors")["train_tokens"]
model = LlamaForCausalLM.from_pretrained(FROM / "tiny-trained", dtype=torch.float32, attn_implementation="sdpa")
model.train()
decayed = set(Trainer.get_decay_parameter_names(None, model))
named = list(model.named_parameters())
groups = [
    {"params": [p for n, p in named if n in decayed], "weight_decay": 0.1},
    {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0},
]
optimizer = bnb.optim.AdamW8bit(groups, lr=1e-3, **OPTIONS)
losses, norms = [], []
for batch in train_tokens:
    loss = model(input_ids=batch, labels=batch).loss
    optimizer.zero_grad()
    loss.backward()
    norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
    optimizer.step()
    losses.append(loss.item())
eight_bit = [n for n, p in named if optimizer.state[p]["state1"].dtype == torch.uint8]
save_file(tensors, OUT / "adamw8bit.safetensors")
summary = {"version": bnb.__version__, "eight_bit": eight_bit, "loss": losses, "grad_norm": norms}
(OUT / "adamw8bit.json").write_text(json.dumps(summary, indent=1) + "\n")
