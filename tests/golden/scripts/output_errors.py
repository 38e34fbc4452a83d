"""How far the outputs of decoded weights are from those of the dense model on rows of text: for each linear |X (W - Q)^T|^2.

Usage: output_errors.py MODEL ROWS.jsonl TOKENS FIRST OTHER...    FIRST and OTHERs are written by `host quantize --decoded`

X are the inputs of each linear of MODEL on the first TOKENS (at most) of each row. Prints the sum over all linears as a share of FIRST's, and
at how many linears the error is lower. A measurement, not part of `cargo xtask golden`.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def gram_matrices(folder, rows, tokens):
    """X^T X of the inputs of each linear but the head's, f64 [in, in], and the model's weights."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = {}

    def sum_up(name):
        def hook(_, inputs):
            x = inputs[0].reshape(-1, inputs[0].shape[-1]).double()
            found[name] = found.get(name, 0) + x.T @ x

        return hook

    linears = {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"}
    for name, module in linears.items():
        module.register_forward_pre_hook(sum_up(name))
    with torch.no_grad():
        for row in rows:
            model(torch.tensor([tokenizer(row)["input_ids"][:tokens]]))
    return found, {name: module.weight.double() for name, module in linears.items()}


def main():
    folder, rows, tokens, *packed = sys.argv[1:]
    rows = [json.loads(line)["text"] for line in open(rows)]
    grams, weights = gram_matrices(folder, rows, int(tokens))

    def errors(name):
        decoded = {}
        for file in Path(name).glob("*.safetensors"):
            decoded |= load_file(file)
        found = {}
        for site, weight in weights.items():
            lost = weight.detach() - decoded[f"{site}.weight"].double()
            found[site] = ((lost @ grams[site]) * lost).sum().item()
        return found

    plain = errors(packed[0])
    print(f"{len(plain)} linears, {len(rows)} rows, {packed[0]}: 1")
    for name in packed[1:]:
        other = errors(name)
        lower = sum(other[site] < plain[site] for site in plain)
        print(f"{name}: {sum(other.values()) / sum(plain.values()):.3f}, lower at {lower}")


main()
