"""What `host quantize` writes by `int4` and `gptq` is decoded by AutoGPTQ, GPTQModel and AutoAWQ as by the host.

Their layers come from their packages' sources (`tests/golden/scripts/quantizer_packages.py`). They hold the tensors of
a file as they are. transformers loads such models by these packages alone, and these install with CUDA only; so its
classes of the configs are used, and not its loader.
"""

import json
import shutil
import subprocess
import sys

import torch
from peft import LoraConfig, get_peft_model
from quantizer_packages import decoded_by_autoawq, decoded_by_autogptq, decoded_by_gptqmodel, gptqmodel
from runs import GOLDEN, HOST, OUT
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM
from transformers.quantizers.auto import AutoQuantizationConfig

PLACE = OUT / "int4"
MODULES = 7
WHOLE_ROWS = 1 << 20


def options(quantizer, **values):
    words = ["--plugins", quantizer]
    for key, value in values.items():
        words += ["--set", f"quantizer.{quantizer}.{key}={json.dumps(value)}"]
    return words


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def fresh(name):
    path = PLACE / name
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def model_with_zeros_at_the_ends():
    """The golden model with groups of one sign, whose zeros are 0 and 15, one beside the other and in whole words."""
    path = fresh("model")
    shutil.copytree(GOLDEN / "packed/dense", path)
    tensors = load_file(path / "model.safetensors")
    for name, tensor in tensors.items():
        if "_proj.weight" in name:
            half = tensor.shape[1] // 2
            tensor[1:4] = tensor[1:4].abs()
            tensor[5] = -tensor[5].abs()
            tensor[8:16, :half] = tensor[8:16, :half].abs()
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path


def rows():
    """Rows to calibrate with."""
    path = PLACE / "rows.jsonl"
    tokens = torch.randint(2, 64, (24, 32), generator=torch.Generator().manual_seed(7))
    path.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in tokens.tolist()))
    return path


def decoded_by_host(path, adapter):
    """The weights of a packed checkpoint in f32, after an update that is zero."""
    out = fresh(f"{path.name}-decoded")
    run(HOST, "merge", "--quiet", "--model", path, "--adapter", adapter, "--base", "decoded", "--out", out)
    return load_file(out / "model.safetensors")


def layers(path):
    """The tensors of each packed weight."""
    tensors = load_file(path / "model.safetensors")
    for key in sorted(tensors):
        name, _, part = key.rpartition(".")
        if part == "qweight":
            parts = ("qweight", "qzeros", "scales", "g_idx")
            yield name, {part: tensors[f"{name}.{part}"] for part in parts if f"{name}.{part}" in tensors}


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found}, expected {expected}")


def check_config(name, config, packages, group, symmetric):
    """The packages and transformers read the config as it was meant.

    GPTQModel's loader refuses asymmetric files of the first format that are not its own (`models/loader.py`).
    """
    theirs = AutoQuantizationConfig.from_dict(dict(config))
    expect(f"{name}, transformers", (theirs.bits, theirs.group_size), (4, group))
    if config["quant_method"] == "awq":
        return
    expect(f"{name}, transformers", (theirs.sym, theirs.desc_act), (symmetric, False))
    theirs = gptqmodel().Config.from_quant_config(dict(config))
    expect(f"{name}, GPTQModel", (theirs.bits, theirs.group_size, theirs.sym), (4, group, symmetric))
    expect(f"{name}, GPTQModel", (theirs.format, theirs.desc_act), (config["checkpoint_format"], False))
    is_taken = theirs.sym or theirs.format == "gptq_v2" or theirs.is_quantized_by_gptaq()
    expect(f"{name}, taken by GPTQModel", is_taken, "GPTQModel" in packages)
    for module in ("q_proj", "down_proj"):
        is_dense = "sites" in name and module == "down_proj"
        part = "self_attn" if module == "q_proj" else "mlp"
        found = theirs.dynamic_get(f"model.layers.0.{part}.{module}")
        expect(f"{name}, {module} in GPTQModel", found is False, is_dense)


def same_values(name, ours, theirs):
    """Equal after the one rounding to the dtype in which a package decodes; in f32 to the bit."""
    rounded = ours.to(theirs.dtype)
    if not torch.equal(rounded, theirs):
        worst = (rounded.float() - theirs.float()).abs().max().item()
        sys.exit(f"{name}: decoded otherwise, by up to {worst:.1e}")


def check(name, arguments, packages, group, count=MODULES):
    symmetric = "symmetric" in name.split("-")
    out = fresh(name)
    run(HOST, "quantize", "--quiet", "--model", MODEL, "--out", out, *arguments)
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    check_config(name, config, packages, group, symmetric)
    ours, seen, ends = decoded_by_host(out, ADAPTER), 0, 0
    for module, tensors in layers(out):
        weight = ours[f"{module}.weight"]
        for package in packages:
            decode = PACKAGES[package]
            for dtype in {tensors["scales"].dtype, torch.float32}:
                own = {**tensors, "scales": tensors["scales"].to(dtype)}
                same_values(f"{name}, {module}, {package}", weight, decode(own, group, config))
        seen += 1
        ends += (weight.unflatten(1, (-1, min(32, weight.shape[1]))).amin(2) >= 0).sum().item()
    expect(f"{name}: packed weights", seen, count)
    if not symmetric:
        expect(f"{name}: has groups with zeros of 0", ends > 0, True)
    print(f"{name}: {seen} weights decoded by {' and '.join(packages)} as by the host")


PACKAGES = {
    "AutoGPTQ": lambda tensors, group, config: decoded_by_autogptq(tensors, group),
    "GPTQModel": lambda tensors, group, config: decoded_by_gptqmodel(tensors, group, config["checkpoint_format"]),
    "AutoAWQ": lambda tensors, group, config: decoded_by_autoawq(tensors, group),
}
MODEL = model_with_zeros_at_the_ends()
ADAPTER = fresh("nothing")
model = LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
get_peft_model(model, LoraConfig(r=1, target_modules=["q_proj"], task_type="CAUSAL_LM")).save_pretrained(ADAPTER)
CALIBRATED = ["--set", f"data.calibration_files={json.dumps([str(rows())])}", "--set", "data.max_seq_len=32"]
SITES = ["--set", 'sites=[{match="*.down_proj", quantizer="none"}]']

check("gptq", options("int4", group_size=32), ["AutoGPTQ"], 32)
check("gptq-symmetric", options("int4", group_size=32, symmetric=True), ["AutoGPTQ", "GPTQModel"], 32)
check("gptq-symmetric-rows", options("int4", group_size=WHOLE_ROWS, symmetric=True), ["AutoGPTQ", "GPTQModel"], -1)
check("gptqmodel", options("int4", group_size=32, files="gptqmodel"), ["GPTQModel"], 32)
check("gptqmodel-symmetric", options("int4", group_size=32, files="gptqmodel", symmetric=True), ["AutoGPTQ", "GPTQModel"], 32)
check("gptq_v2", options("int4", group_size=32, files="gptq_v2"), ["GPTQModel"], 32)
check("gptq_v2-rows", options("int4", group_size=WHOLE_ROWS, files="gptq_v2"), ["GPTQModel"], -1)
check("gptq_v2-bf16", options("int4", group_size=16, files="gptq_v2", scale_dtype="bf16"), ["GPTQModel"], 16)
check("gptq_v2-sites", options("int4", group_size=32, files="gptq_v2") + SITES, ["GPTQModel"], 32, MODULES - 1)
check("gptq-calibrated", options("gptq", group_size=32) + CALIBRATED, ["AutoGPTQ"], 32)
check("gptq_v2-calibrated", options("gptq", group_size=32, files="gptq_v2") + CALIBRATED, ["GPTQModel"], 32)
check("awq", options("int4", group_size=32, files="awq"), ["AutoAWQ"], 32)
check("awq-rows", options("int4", group_size=WHOLE_ROWS, files="awq"), ["AutoAWQ"], -1)
