"""What `host merge` writes loads in transformers and is PEFT's `merge_and_unload`."""

import json
import shutil
import subprocess
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from runs import GOLDEN, HOST, MODEL, OUT, base, data
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

TOLERANCE = 1e-5  # the bound, f32
TOKENS = data()["eval_tokens"]
TABLES = ["q_proj", "embed_tokens", "lm_head"]


def by_peft(name, path, **options):
    """A PEFT adapter with nothing zero."""
    torch.manual_seed(5)
    config = LoraConfig(bias="none", lora_dropout=0.0, task_type="CAUSAL_LM", **options)
    model = get_peft_model(LlamaForCausalLM.from_pretrained(path, dtype=torch.float32), config)
    with torch.no_grad():
        for key, param in model.named_parameters():
            if "lora_" in key:
                param.normal_(std=0.05)
    folder = OUT / "merge" / f"{name}-adapter"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, save_embedding_layers=False)
    return folder


def merge(name, adapter, *arguments, path=MODEL):
    out = OUT / "merge" / name
    shutil.rmtree(out, ignore_errors=True)
    command = [HOST, "merge", "--quiet", "--model", path, "--adapter", adapter, "--out", out]
    subprocess.run([*command, *arguments], check=True)
    return out


def load(name, out):
    model, report = AutoModelForCausalLM.from_pretrained(out, dtype="auto", output_loading_info=True)
    problems = {key: value for key, value in report.items() if value}
    if problems:
        sys.exit(f"{name}: transformers reports {problems}")
    text = "In the beginning God created the heaven and the earth."
    if AutoTokenizer.from_pretrained(out)(text) != AutoTokenizer.from_pretrained(MODEL)(text):
        sys.exit(f"{name}: the tokenizer changed on its way")
    return model


def logits(model):
    with torch.no_grad():
        return model(input_ids=TOKENS).logits


def expect(what, worst):
    print(f"{what}: {worst:.1e}")
    if not worst <= TOLERANCE:
        sys.exit(1)


for name, adapter in (
    ("trained", GOLDEN / "llama/adapter_trained_f32"),
    ("rslora", by_peft("rslora", MODEL, r=8, lora_alpha=8, use_rslora=True, target_modules="all-linear")),
    ("tables", by_peft("tables", MODEL, r=4, lora_alpha=8, target_modules=TABLES)),
):
    out = merge(name, adapter)
    theirs = PeftModel.from_pretrained(base("f32"), adapter).merge_and_unload().state_dict()
    ours = load_file(out / "model.safetensors")
    if set(ours) != set(theirs):
        sys.exit(f"{name}: keys differ: {sorted(set(ours) ^ set(theirs))}")
    expect(f"{name}, weights", max((ours[key] - theirs[key]).abs().max().item() for key in theirs))
    load(name, out)

# A tied head: PEFT's merge moves it along with the table; the adapter's own logits are the measure.
tied = OUT / "merge/tied-model"
shutil.rmtree(tied, ignore_errors=True)
shutil.copytree(MODEL, tied)
weights = load_file(tied / "model.safetensors")
del weights["lm_head.weight"]
save_file(weights, tied / "model.safetensors", metadata={"format": "pt"})
config = json.loads((tied / "config.json").read_text())
(tied / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
for name, targets in (("tied-table", ["embed_tokens"]), ("tied-tables", TABLES)):
    adapter = by_peft(name, tied, r=4, lora_alpha=8, target_modules=targets)
    model = load(name, merge(name, adapter, path=tied))
    peft = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(tied, dtype=torch.float32), adapter)
    theirs = logits(peft)
    expect(f"{name}, logits of {theirs.std().item():.1f}", (logits(model) - theirs).abs().max().item() / theirs.std().item())

# On decoded weights: the NF4 model with its adapter, in train mode.
adapter = GOLDEN / "llama/adapter_trained_nf4"
model = load("decoded", merge("decoded", adapter, "--plugins", "nf4", "--base", "decoded"))
theirs = logits(PeftModel.from_pretrained(base("nf4"), adapter).train())
expect(f"decoded, logits of {theirs.std().item():.1f}", (logits(model) - theirs).abs().max().item() / theirs.std().item())
