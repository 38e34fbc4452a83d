"""Packs the linears of `packed/dense`, and weights with edges, by compressed-tensors.

usage: make_compressed_tensors.py GOLDEN OUT

GOLDEN: has packed/dense. OUT: receives OUT/packed/compressed_tensors.*.

Scales are those of the smallest and largest numbers of a block, in f32.
"""

import json
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.quant_scheme import MXFP4A16, NVFP4A16
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

torch.set_num_threads(1)

GOLDEN, OUT = Path(sys.argv[1]) / "packed", Path(sys.argv[2]) / "packed"
TOKENS = load_file(GOLDEN / "logits.safetensors")["tokens"]
PRESETS = {"mxfp4": MXFP4A16["weights"], "nvfp4": NVFP4A16["weights"]}


def scheme(kind):
    return QuantizationScheme(targets=["Linear"], weights=PRESETS[kind], format=f"{kind}-pack-quantized")


def compressed(kind, weight):
    """The tensors of a weight, and what they decode to in bf16."""
    args = PRESETS[kind]
    blocks = weight.unflatten(-1, (-1, args.group_size))
    number = generate_gparam(weight.min(), weight.max()) if kind == "nvfp4" else None
    scale, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, global_scale=number)
    tensors = {"weight": weight.clone(), "weight_scale": scale}
    if number is not None:
        tensors["weight_global_scale"] = number
    compressor = BaseCompressor.get_value_from_registry(f"{kind}-pack-quantized")
    packed = compressor.compress(tensors, scheme(kind))
    return packed, compressor.decompress(packed, scheme(kind))["weight"]


def decoded(kind, packed):
    """The decoded weight in f32."""
    codes = torch.stack((packed["weight_packed"] & 15, packed["weight_packed"] >> 4), -1).flatten(1).long()
    sizes = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    values = sizes[codes & 7] * torch.where(codes >= 8, -1.0, 1.0)
    if kind == "mxfp4":
        scale = 2.0 ** (packed["weight_scale"].float() - 127)
    else:
        scale = packed["weight_scale"].float() / packed["weight_global_scale"]
    return values * scale.repeat_interleave(PRESETS[kind].group_size, 1)


def edges():
    """Weights whose blocks have zeros, signs of zero, numbers between two values, and extreme sizes."""
    torch.manual_seed(17)
    weight = torch.randn(24, 64)
    weight[0, :32] = 0.0
    weight[1, :4] = torch.tensor([-0.0, -1e-30, 1e-42, -1e-42])
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])
    weight[2, :16] = torch.cat((ties, -ties))
    weight[3, :16] = torch.cat((ties, -ties)).nextafter(torch.tensor(0.0))
    for row, exponent in enumerate(range(-44, 36, 4)):
        weight[4 + row] *= 10.0**exponent
    weight[23, 32:] = torch.linspace(3.4, 4.1, 32)
    return weight


def of_kind(kind):
    model = LlamaForCausalLM.from_pretrained(GOLDEN / "dense", dtype=torch.float32)
    made = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            packed, _ = compressed(kind, module.weight.detach())
            made.update({f"{kind}.{name}.{key}": value for key, value in packed.items()})
            module.weight.data = decoded(kind, packed)
    with torch.no_grad():
        made[f"{kind}.logits"] = model.train()(input_ids=TOKENS).logits.contiguous()
    # The largest sizes are told apart from the others, for which one number is too large.
    for part, weight in (("edges", edges()), ("usual", edges()[12:18])):
        packed, values = compressed(kind, weight)
        made.update({f"{kind}.{part}.{key}": value for key, value in packed.items()})
        made[f"{kind}.{part}.decoded"] = values
        assert torch.equal(decoded(kind, packed).bfloat16(), values)
    return made


OUT.mkdir(parents=True, exist_ok=True)
tensors = {"edges": edges(), "usual": edges()[12:18].contiguous()}
configs = {}
for kind in PRESETS:
    tensors.update(of_kind(kind))
    config = QuantizationConfig(
        config_groups={"group_0": scheme(kind)},
        format=f"{kind}-pack-quantized",
        ignore=["lm_head"],
        quantization_status="compressed",
    )
    configs[kind] = json.loads(config.model_dump_json())
save_file({key: value.contiguous() for key, value in tensors.items()}, OUT / "compressed_tensors.safetensors")
(OUT / "compressed_tensors.json").write_text(json.dumps(configs, indent=2) + "\n")
