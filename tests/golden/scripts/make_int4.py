"""Packs the linears of `packed/dense`, and single weights, to 4 bits by AutoGPTQ, GPTQModel and AutoAWQ.

usage: make_int4.py GOLDEN OUT

GOLDEN: has packed/dense. OUT: receives OUT/packed/int4*.

The packages' own code packs and decodes (`quantizer_packages.py`). Grids of the linears are those of `int4`, rounded to
nearest; those of single weights are AutoGPTQ's.
"""

import json
import sys
from pathlib import Path
from unittest.mock import patch

import torch
from compressed import save_compressed
from quantizer_packages import (
    BITS,
    autoawq,
    autogptq,
    decoded_by_autoawq,
    decoded_by_autogptq,
    decoded_by_gptqmodel,
    gptqmodel,
    gptqmodel_layer,
)
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

torch.set_num_threads(1)

GOLDEN, OUT = Path(sys.argv[1]) / "packed", Path(sys.argv[2]) / "packed"
TOKENS = load_file(GOLDEN / "logits.safetensors")["tokens"]
GROUP = 32
TOP = 2**BITS - 1


def linear(weight):
    """A layer of torch with that weight."""
    made = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    made.weight.data = weight
    return made


def buffers(layer):
    """What a layer saves."""
    return {name: tensor.contiguous() for name, tensor in layer.state_dict().items()}


def pack_autogptq(weight, scales, zeros, group, indices=None):
    """The tensors of a weight [out, in], with scales and zeros [out, groups]; scales get the weight's dtype."""
    kind, shape = "Layer" if indices is None else "LayerByIndex", (weight.shape[1], weight.shape[0])
    layer = getattr(autogptq(), kind)(BITS, group, *shape, bias=False)
    layer.pack(linear(weight), scales, zeros.clone(), indices)
    return buffers(layer)


def pack_gptqmodel(weight, scales, zeros, group, checkpoint_format):
    """The same by GPTQModel, whose layer has the second format."""
    layer = gptqmodel_layer((weight.shape[1], weight.shape[0]), group)
    indices = torch.arange(weight.shape[1], dtype=torch.int32) // layer.group_size
    layer.pack_original(linear(weight), scales, zeros, indices)
    if checkpoint_format == "gptq":
        config = gptqmodel().Config(bits=BITS, group_size=group)
        gptqmodel().to_first_format(layer, config)
    # It packs with scales in f16 and computes in the model's dtype.
    return buffers(layer.to(weight.dtype))


def pack_autoawq(weight, scales, zeros, group):
    """The same by AutoAWQ."""
    scales, zeros = scales.t().contiguous(), zeros.t().contiguous()
    return buffers(autoawq().Layer.from_linear(linear(weight), BITS, group, scales=scales, zeros=zeros))


def pack_gptqmodel_awq(weight, scales, zeros, group):
    """AutoAWQ's files by GPTQModel."""
    layer = gptqmodel_layer((weight.shape[1], weight.shape[0]), group, kind="AwqLayer")
    layer.pack(linear(weight), scales, zeros)
    return buffers(layer)


def rounded(weight, symmetric):
    """Scales in f16 and zeros [out, groups] of a weight [out, in], and the weight of the nearest codes."""
    groups = weight.unflatten(1, (-1, GROUP))
    low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
    if symmetric:
        high = torch.maximum(high, -low)
        low = -high
    scale = (high / TOP - low / TOP).half().float()
    zero = torch.full_like(scale, 8) if symmetric else (-low / scale).round().clamp(0, TOP)
    codes = ((groups / scale[..., None]).round() + zero[..., None]).clamp(0, TOP)
    return scale, zero, ((codes - zero[..., None]) * scale[..., None]).flatten(1)


def of_model(kind):
    """The linears of the model, and its logits with what their files are decoded to with scales in f32."""
    symmetric = kind == "gptq-sym"
    pack, decoded = (pack_autoawq, decoded_by_autoawq) if kind == "awq" else (pack_autogptq, decoded_by_autogptq)
    model = LlamaForCausalLM.from_pretrained(GOLDEN / "dense", dtype=torch.float32)
    made = {}
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or name == "lm_head":
            continue
        scale, zero, values = rounded(module.weight.detach(), symmetric)
        tensors = pack(values.half(), scale, zero, GROUP)
        made.update({f"{name}.{key}": value for key, value in tensors.items()})
        module.weight.data = decoded({**tensors, "scales": tensors["scales"].float()}, GROUP)
        assert torch.equal(module.weight, values), name
    if symmetric:
        return {key: value for key, value in made.items() if "down_proj" in key}
    with torch.no_grad():
        made["logits"] = model.train()(input_ids=TOKENS).logits.contiguous()
    return made


def weight_of(inputs, seed, one_sign):
    """A weight [32, inputs] in f32. Groups of one sign have zeros of 0 or 15; other zeros are from 1 to 14."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(32, inputs, generator=generator) * 0.05
    if one_sign:
        weight[1:4] = weight[1:4].abs()
        weight[5] = -weight[5].abs()
        weight[8:16, : inputs // 2] = weight[8:16, : inputs // 2].abs()
    return weight


def grids(weight, group, symmetric):
    """AutoGPTQ's scales and zeros [out, groups] of a weight, and the weight of its nearest codes."""
    scales, zeros, values = [], [], []
    for columns in weight.split(weight.shape[1] if group == -1 else group, dim=1):
        quantizer = autogptq().Quantizer()
        quantizer.configure(BITS, perchannel=True, sym=symmetric)
        quantizer.find_params(columns, weight=True)
        scales.append(quantizer.scale)
        zeros.append(quantizer.zero)
        values.append(quantizer.quantize(columns))
    return torch.cat(scales, 1), torch.cat(zeros, 1), torch.cat(values, 1)


def ordered_by_autogptq(weight, group, seed):
    """AutoGPTQ's GPTQ with act-order and static groups: scales, zeros, the group of each column, and the weight."""
    layer = linear(weight.clone())
    gptq = autogptq().GPTQ(layer)
    gptq.quantizer.configure(BITS, perchannel=True, sym=False)
    inputs = torch.randn(1, 96, weight.shape[1], generator=torch.Generator().manual_seed(seed))
    inputs *= 1 + torch.arange(weight.shape[1]) * 5 % 7
    gptq.add_batch(inputs, layer(inputs))
    with patch("torch.cuda.synchronize"):
        scales, zeros, indices = gptq.fasterquant(group_size=group, actorder=True, static_groups=True)
    return scales, zeros, indices, layer.weight.data


def autogptq_config(group, symmetric, ordered=False):
    """`BaseQuantizeConfig.to_dict` of AutoGPTQ 0.7.1, whose module does not load beside transformers 5."""
    return {
        "bits": BITS,
        "group_size": group,
        "damp_percent": 0.01,
        "desc_act": ordered,
        "static_groups": ordered,
        "sym": symmetric,
        "true_sequential": True,
        "model_name_or_path": None,
        "model_file_base_name": None,
        "is_marlin_format": False,
        "quant_method": "gptq",
    }


def gptqmodel_config(**settings):
    """GPTQModel's config, with what it says about itself where it saves."""
    config = gptqmodel().Config(bits=BITS, **settings)
    config.meta_set_versionable("quantizer", [f"gptqmodel:{gptqmodel().version}"])
    if "static_groups" in settings:
        config.meta_set("static_groups", settings["static_groups"])
    told = json.loads(json.dumps(config.to_dict()))
    del told["meta"]["offload_to_disk_path"]  # a new name each time
    return told


def single_weights():
    """By name: the tensors of a weight, what its package decodes them to, and the `quantization_config`."""
    made = {}
    for group, inputs, kind, dtype in [
        (32, 64, "asymmetric", torch.float16),
        (32, 64, "asymmetric", torch.float32),
        (64, 128, "symmetric", torch.float16),
        (128, 256, "asymmetric", torch.float16),
        (-1, 96, "asymmetric", torch.float16),
        # AutoGPTQ damages the zeros beside one of 0 when it packs: this is how it then reads them.
        (32, 64, "one-sign", torch.float16),
    ]:
        symmetric = kind == "symmetric"
        scales, zeros, values = grids(weight_of(inputs, 1, kind == "one-sign"), group, symmetric)
        tensors = pack_autogptq(values.to(dtype), scales, zeros, group)
        name = f"autogptq|{group}|{kind}|{str(dtype)[6:]}"
        made[name] = tensors, decoded_by_autogptq(tensors, group), autogptq_config(group, symmetric)
    scales, zeros, indices, values = ordered_by_autogptq(weight_of(96, 2, one_sign=False), 32, 3)
    tensors = pack_autogptq(values.half(), scales, zeros, 32, indices)
    decoded = decoded_by_autogptq(tensors, 32, "LayerByIndex")
    made["autogptq|32|ordered|float16"] = tensors, decoded, autogptq_config(32, False, ordered=True)

    for group, inputs, symmetric, dtype, checkpoint_format in [
        (32, 64, False, torch.float16, "gptq"),
        (64, 128, True, torch.float16, "gptq"),
        (32, 64, False, torch.float16, "gptq_v2"),
        (64, 128, False, torch.bfloat16, "gptq_v2"),
        (-1, 96, False, torch.float16, "gptq_v2"),
    ]:
        scales, zeros, values = grids(weight_of(inputs, 4, one_sign=not symmetric), group, symmetric)
        tensors = pack_gptqmodel(values.to(dtype), scales, zeros, group, checkpoint_format)
        config = gptqmodel_config(group_size=group, sym=symmetric, desc_act=False, format=checkpoint_format)
        name = f"gptqmodel|{group}|{'symmetric' if symmetric else 'asymmetric'}|{str(dtype)[6:]}|{checkpoint_format}"
        made[name] = tensors, decoded_by_gptqmodel(tensors, group, checkpoint_format), config

    for package, pack in [("autoawq", pack_autoawq), ("gptqmodel-awq", pack_gptqmodel_awq)]:
        for group, inputs in [(32, 64), (128, 128)] if package == "autoawq" else [(64, 128)]:
            scales, zeros, values = grids(weight_of(inputs, 5, one_sign=True), group, symmetric=False)
            tensors = pack(values.half(), scales, zeros, group)
            if package == "autoawq":
                config = autoawq().Config(q_group_size=group).to_transformers_dict()
            else:
                config = gptqmodel_config(group_size=group, sym=False, quant_method="awq", format="gemm")
            made[f"{package}|{group}|asymmetric|float16"] = tensors, decoded_by_autoawq(tensors, group), config
    return made


OUT.mkdir(parents=True, exist_ok=True)
tensors = {}
for kind in ("gptq", "gptq-sym", "awq"):
    tensors.update({f"{kind}.{key}": value for key, value in of_model(kind).items()})
save_file(tensors, OUT / "int4.safetensors")
tensors, configs = {}, {}
for name, (saved, decoded, config) in single_weights().items():
    tensors |= {f"{name}|{key}": value for key, value in saved.items()} | {f"{name}|decoded": decoded}
    configs[name] = config
save_compressed(tensors, OUT / "int4_packages.safetensors.gz")
(OUT / "int4_packages.json").write_text(json.dumps(configs) + "\n")
