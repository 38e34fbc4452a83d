"""What `host quantize --plugins hqq` writes is a state of hqq's own layers, and what hqq writes is a checkpoint of ours.

transformers 5 reads no hqq checkpoints. Where PYTHON has transformers 4 beside hqq, its loader is used; else every layer
is made as that loader makes it, by `HQQLinear.load_state_dict`.
"""

import json
import os
import shutil
import subprocess
import sys

import torch
import transformers
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from peft import LoraConfig, get_peft_model
from runs import GOLDEN, HOST, MODEL, OUT
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

VALUES = 1e-6  # of the largest value: the bound
LOGITS = 1e-4  # the bound, f32
TRANSFORMERS_READS = int(transformers.__version__.split(".")[0]) < 5


def options(**values):
    return [word for key, value in values.items() for word in ("--set", f"quantizer.hqq.{key}={json.dumps(value)}")]


CASES = {
    "4": (14, []),
    "8": (14, options(bits=8, group_size=32)),
    "5": (14, options(bits=5)),
    "3": (14, options(bits=3)),
    "3-axis-0": (14, options(bits=3, axis=0)),
    "2": (14, options(bits=2, group_size=16)),
    "1-axis-0": (14, options(bits=1, group_size=8, axis=0)),
    "4-bf16": (14, options(meta="bf16")),
    "4-plain": (14, options(optimize=False)),
    "2024": (14, options(profile="2024-03", meta="f32")),
    "sites": (
        13,
        ["--set", 'sites=[{match="*.1.mlp.down_proj", quantizer="none"}, {match="*.q_proj", options={bits=2, axis=0}}]'],
    ),
}


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def fresh(name):
    path = OUT / "hqq" / name
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def layers(path):
    """Every packed weight of a checkpoint as hqq's own layer, in f32."""
    tensors = load_file(path / "model.safetensors")
    for key in sorted(tensors):
        name, _, part = key.rpartition(".")
        if part != "W_q":
            continue
        state = {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(name + ".")}
        layer = HQQLinear(None, None, compute_dtype=torch.float32, device="cpu")
        if missing := layer.state_dict_keys() - {"bias"} - set(state):
            sys.exit(f"{name}: hqq misses {sorted(missing)}")
        layer.load_state_dict(dict(state))
        again = {key: value for key, value in layer.state_dict().items() if value is not None}
        # The layer computes in f32 and has its numbers in f32.
        for part in sorted(set(state) - {"compute_dtype", "scale", "zero"}):
            if not torch.equal(state[part], again[part]):
                sys.exit(f"{name}.{part}: came back from hqq otherwise")
        yield name, layer


def peer(path):
    """The peers' model of a packed checkpoint."""
    if TRANSFORMERS_READS:
        model, report = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, output_loading_info=True)
        if problems := {key: value for key, value in report.items() if value}:
            sys.exit(f"{path.name}: transformers reports {problems}")
        return model.train()
    model = LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    for name, layer in layers(path):
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, layer)
    return model.train()


def expect(what, worst, limit):
    print(f"{what}: {worst:.1e}")
    if not worst <= limit:
        sys.exit(1)


def compare_logits(name, path, count):
    run(os.environ["ESPALIER_LOGITS"], path, "none", OUT / "logits.safetensors")
    ours = load_file(OUT / "logits.safetensors")
    model = peer(path)
    packed = sum(type(module).__name__ == "HQQLinear" for module in model.modules())
    if packed != count:
        sys.exit(f"{name}: {packed} layers are hqq's, expected {count}")
    with torch.no_grad():
        theirs = model(input_ids=ours["tokens"]).logits
    worst = (ours["logits"] - theirs).abs().max().item()
    expect(f"{name}: {packed} packed, logits of {theirs.std().item():.1f} differ by at most", worst, LOGITS)


# An adapter that does nothing: what is merged is what the host decodes.
adapter = fresh("nothing")
model = LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
get_peft_model(model, LoraConfig(r=1, target_modules="all-linear", task_type="CAUSAL_LM")).save_pretrained(adapter)

print(f"transformers {transformers.__version__} {'reads' if TRANSFORMERS_READS else 'does not read'} hqq checkpoints")
for name, (count, arguments) in CASES.items():
    out = fresh(f"ours-{name}")
    run(HOST, "quantize", "--quiet", "--model", MODEL, "--plugins", "hqq", "--out", out, *arguments)
    merged = fresh(f"decoded-{name}")
    run(HOST, "merge", "--quiet", "--model", out, "--adapter", adapter, "--base", "decoded", "--out", merged)
    decoded = load_file(merged / "model.safetensors")
    worst = 0.0
    for module, layer in layers(out):
        ours, theirs = decoded[f"{module}.weight"].float(), layer.dequantize()
        worst = max(worst, ((ours - theirs).abs().max() / theirs.abs().max()).item())
    expect(f"{name}: hqq decodes as the host, largest difference", worst, VALUES)
    compare_logits(name, out, count)

# And back: what hqq itself packs and saves, as the golden checkpoints' script does, on the larger model.
for name, arguments in {"4": dict(nbits=4), "3": dict(nbits=3, axis=0), "2": dict(nbits=2, group_size=16)}.items():
    model = LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    tensors = dict(model.state_dict())
    config = BaseQuantizeConfig(**{"group_size": 64, "axis": 1, **arguments})
    for module, linear in list(model.named_modules()):
        if isinstance(linear, torch.nn.Linear) and module != "lm_head":
            layer = HQQLinear(linear, dict(config), compute_dtype=torch.float32, device="cpu")
            del tensors[f"{module}.weight"]
            tensors |= {f"{module}.{key}": value for key, value in layer.state_dict().items()}
    out = fresh(f"theirs-{name}")
    shutil.copytree(MODEL, out)
    tensors = {key: value.detach().clone().contiguous() for key, value in tensors.items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    about = json.loads((out / "config.json").read_text())
    about["quantization_config"] = {"quant_config": config, "quant_method": "hqq", "skip_modules": ["lm_head"]}
    (out / "config.json").write_text(json.dumps(about))
    compare_logits(f"by hqq, {name}", out, 14)
