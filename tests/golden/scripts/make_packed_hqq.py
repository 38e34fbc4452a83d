"""Packs the tiny Llama of `packed/dense` by hqq, in the checkpoints that transformers writes.

usage: make_packed_hqq.py GOLDEN OUT

GOLDEN: has packed/dense. OUT: receives OUT/packed/hqq*.

transformers 5 has given up packing with hqq; transformers 4.57.3 puts `HQQLinear.state_dict()` of every linear beside the
dense tensors and the arguments into `quantization_config`, which is what is done here. Compared once: the same tensors.
"""

import json
import shutil
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

torch.set_num_threads(1)

GOLDEN, OUT = Path(sys.argv[1]) / "packed", Path(sys.argv[2]) / "packed"
TOKENS = load_file(GOLDEN / "logits.safetensors")["tokens"]
EACH = {
    "self_attn.q_proj": dict(nbits=8, group_size=32),
    "self_attn.k_proj": dict(nbits=6, group_size=64),
    "self_attn.v_proj": dict(nbits=5, group_size=64, axis=0),
    "self_attn.o_proj": dict(nbits=3, group_size=64),
    "mlp.gate_proj": dict(nbits=2, group_size=16),
    "mlp.up_proj": dict(nbits=1, group_size=8, axis=0),
    "mlp.down_proj": dict(nbits=4, group_size=64, axis=0),
}
VARIANTS = {
    "hqq": (dict(nbits=4, group_size=64), torch.float32),
    "hqq3-bf16": (dict(nbits=3, group_size=64, axis=0), torch.bfloat16),
    "hqq2-floats": (dict(nbits=2, group_size=16, view_as_float=True), torch.float32),
    "hqq-mixed": (EACH, torch.float32),
}


def linears(model):
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            yield name, module


def tag(name):
    return ".".join(part for part in name.split(".") if part not in ("model", "layers") and not part.isnumeric())


def config_of(options, name):
    options = options.get(tag(name), options)
    config = BaseQuantizeConfig(**{"axis": 1, **options})
    config.pop("scale_quant_params", None), config.pop("zero_quant_params", None)
    return {**config, "scale_quant_params": None, "zero_quant_params": None}


def replace(model, name, layer):
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, layer)


def packed(options, dtype):
    """The checkpoint's tensors and its quantization_config."""
    model = LlamaForCausalLM.from_pretrained(GOLDEN / "dense", dtype=torch.float32)
    configs = {}
    for name, linear in list(linears(model)):
        configs[tag(name)] = config_of(options, name)
        layer = HQQLinear(linear, config_of(options, name), compute_dtype=dtype, device="cpu")
        replace(model, name, layer)
    tensors = {}
    for name, module in model.named_modules():
        if isinstance(module, HQQLinear):
            tensors.update({f"{name}.{key}": value for key, value in module.state_dict().items()})
    inside = tuple(f"{name}." for name, module in model.named_modules() if isinstance(module, HQQLinear))
    for name, param in model.named_parameters():
        if not name.startswith(inside):
            tensors[name] = param.data
    first = next(iter(configs.values()))
    same = all(config == first for config in configs.values())
    quantization = {"quant_config": first if same else configs, "quant_method": "hqq", "skip_modules": ["lm_head"]}
    return tensors, quantization


def logits(path):
    """By hqq in f32, whatever the scales are stored in."""
    model = LlamaForCausalLM.from_pretrained(GOLDEN / "dense", dtype=torch.float32)
    tensors = load_file(path / "model.safetensors")
    for name, _ in list(linears(model)):
        layer = HQQLinear(None, None, compute_dtype=torch.float32, device="cpu")
        state = {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(name + ".")}
        layer.load_state_dict(state)
        replace(model, name, layer)
    with torch.no_grad():
        return model(input_ids=TOKENS).logits.contiguous()


OUT.mkdir(parents=True, exist_ok=True)
made = {}
for variant, (options, dtype) in VARIANTS.items():
    folder = OUT / variant
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tensors, quantization = packed(options, dtype)
    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((GOLDEN / "dense/config.json").read_text())
    config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    made[variant] = logits(folder)
save_file(made, OUT / "hqq_logits.safetensors")
