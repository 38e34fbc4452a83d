"""An adapter written by PEFT comes back from the host bit for bit, and trains on as in PEFT."""

import json
import shutil
import sys

import torch
from peft import LoraConfig, get_peft_model
from runs import GOLDEN, OUT, base, data, expect_near, metrics, train
from safetensors.torch import load_file

SAME = ["r", "lora_alpha", "use_rslora", "bias", "task_type", "peft_type", "fan_in_fan_out"]
CURVE_TOLERANCE = 1e-5


def by_peft(name, **options):
    """A fresh PEFT adapter with nothing zero."""
    torch.manual_seed(3)
    config = LoraConfig(bias="none", lora_dropout=0.0, task_type="CAUSAL_LM", **options)
    model = get_peft_model(base("f32"), config)
    with torch.no_grad():
        for key, param in model.named_parameters():
            if "lora_B" in key:
                param.normal_(std=0.02)
    path = OUT / "peft" / name
    shutil.rmtree(path, ignore_errors=True)
    model.save_pretrained(path)
    return path


def round_trip(name, path):
    out = train(f"start-{name}", "lora", 0, arguments=["--adapter", path])
    theirs = load_file(path / "adapter_model.safetensors")
    ours = load_file(out / "adapter/adapter_model.safetensors")
    if set(theirs) != set(ours):
        sys.exit(f"{name}: keys differ: {sorted(set(theirs) ^ set(ours))}")
    for key, tensor in theirs.items():
        if not torch.equal(tensor, ours[key]):
            sys.exit(f"{name}: {key} changed in 0 steps")
    before = json.loads((path / "adapter_config.json").read_text())
    after = json.loads((out / "adapter/adapter_config.json").read_text())
    for key in SAME:
        if before.get(key) != after.get(key):
            sys.exit(f"{name}: {key} was {before.get(key)}, came back as {after.get(key)}")
    print(f"{name}: {len(ours)} tensors came back unchanged")


round_trip("golden", GOLDEN / "llama/adapter_init")
round_trip("some-targets", by_peft("some-targets", r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"]))
round_trip("regex", by_peft("regex", r=4, lora_alpha=8, target_modules=r".*layers\.1\..*(v|up)_proj"))
round_trip("rslora", by_peft("rslora", r=8, lora_alpha=8, use_rslora=True, target_modules="all-linear"))

out = train("start-curve", "lora", 20, arguments=["--adapter", GOLDEN / "llama/adapter_init"])
losses, _ = metrics(out)
curve = json.loads((GOLDEN / "llama/summary.json").read_text())["curve_lora_f32"]["loss"]
assert len(losses) == len(curve) == len(data()["train_tokens"])
for step, (ours, theirs) in enumerate(zip(losses, curve), start=1):
    if abs(ours - theirs) > CURVE_TOLERANCE:
        sys.exit(f"step {step}: host {ours}, PEFT {theirs}")
expect_near("20 steps from PEFT's adapter, last loss", losses[-1], curve[-1], CURVE_TOLERANCE)
