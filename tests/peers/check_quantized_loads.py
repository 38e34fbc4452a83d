"""What `host quantize` writes loads in transformers and bitsandbytes, and their logits are the host's."""

import os
import shutil
import subprocess
import sys

import torch
from runs import HOST, MODEL, OUT
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

# The bound, f32 in train mode (in eval mode bitsandbytes runs a bf16 product on some processors).
TOLERANCE = 1e-4
CASES = {
    "nf4": ["--plugins", "nf4"],
    "nf4-plain": ["--plugins", "nf4", "--set", "quantizer.nf4.double_quant=false"],
    "nf4-128": ["--plugins", "nf4", "--set", "quantizer.nf4.block_size=128"],
    "fp4": ["--plugins", "fp4"],
    "nf4-sites": ["--plugins", "nf4", "--set", 'sites=[{match="*.1.mlp.down_proj", quantizer="none"}, {match="lm_head", quantizer="nf4"}]'],
}


def quantize(name, arguments):
    out = OUT / "quantized" / name
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([HOST, "quantize", "--quiet", "--model", MODEL, "--out", out, *arguments], check=True)
    return out


for name, arguments in CASES.items():
    out = quantize(name, arguments)
    subprocess.run([os.environ["ESPALIER_LOGITS"], out, "none", OUT / "logits.safetensors"], check=True)
    ours = load_file(OUT / "logits.safetensors")
    model, report = AutoModelForCausalLM.from_pretrained(
        out, dtype=torch.float32, device_map="cpu", output_loading_info=True
    )
    problems = {key: value for key, value in report.items() if value}
    if problems:
        sys.exit(f"{name}: transformers reports {problems}")
    packed = [name for name, module in model.named_modules() if type(module).__name__ == "Linear4bit"]
    with torch.no_grad():
        theirs = model.train()(input_ids=ours["tokens"]).logits
    worst = (ours["logits"] - theirs).abs().max().item()
    print(f"{name}: {len(packed)} packed, logits differ by at most {worst:.1e} of {theirs.std().item():.1f}")
    if worst > TOLERANCE or len(packed) != 14:
        sys.exit(1)
    text = "In the beginning God created the heaven and the earth."
    if AutoTokenizer.from_pretrained(out)(text) != AutoTokenizer.from_pretrained(MODEL)(text):
        sys.exit(f"{name}: the tokenizer changed on its way")
