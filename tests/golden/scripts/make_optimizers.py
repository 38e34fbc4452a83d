"""Makes the golden curves of optimizers and parameter groups: full fine-tuning with torch.optim,
grouped as transformers' Trainer groups.

usage: make_optimizers.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its model and rows are the inputs.
OUT: receives OUT/optimizers with everything that is computed from them.
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
# Some of the trained params are kept: the norms, which are exempt from decay, and two others.
KEPT = ("norm.weight", "layernorm.weight", "layers.0.self_attn.k_proj.weight", "layers.1.self_attn.o_proj.weight")

train_tokens = load_file(FROM / "data.safetensors")["train_tokens"]


def groups(model, decay, embedding):
    """The two groups of Trainer.create_optimizer, and the embedding apart where it has a rate."""
    decayed = set(Trainer.get_decay_parameter_names(None, model))
    named = list(model.named_parameters())
    made = []
    if embedding:
        name = "model.embed_tokens.weight"
        made.append({"params": [p for n, p in named if n == name], "weight_decay": 0.0, **embedding})
        named = [(n, p) for n, p in named if n != name]
    made.append({"params": [p for n, p in named if n in decayed], "weight_decay": decay})
    made.append({"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0})
    return made


CASES = {
    "adamw": (torch.optim.AdamW, dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8), 0.1, None),
    "adamw_embedding": (torch.optim.AdamW, dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8), 0.1, dict(lr=1e-4)),
    "sgd_momentum": (torch.optim.SGD, dict(lr=0.01, momentum=0.9), 0.1, None),
    "sgd_nesterov": (torch.optim.SGD, dict(lr=0.01, momentum=0.9, nesterov=True), 0.1, dict(lr=0.001)),
    "sgd_plain": (torch.optim.SGD, dict(lr=0.05), 0.0, None),
}

OUT.mkdir(parents=True, exist_ok=True)
summary, last = {}, {}
for case, (optimizer_class, options, decay, embedding) in CASES.items():
    model = LlamaForCausalLM.from_pretrained(FROM / "tiny-trained", dtype=torch.float32, attn_implementation="sdpa")
    model.train()
    made = groups(model, decay, embedding)
    optimizer = optimizer_class(made, **options)
    losses, norms = [], []
    for batch in train_tokens:
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    counts = [[len(one["params"]), sum(p.numel() for p in one["params"])] for one in made]
    summary[case] = {"options": options, "weight_decay": decay, "groups": counts, "loss": losses, "grad_norm": norms}
    for name, param in model.named_parameters():
        if name.endswith(KEPT):
            last[f"{case}.{name}"] = param.detach().float().contiguous().clone()
save_file(last, OUT / "trained_final.safetensors")
(OUT / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
