"""Packs the linears of `packed/dense` to 4 bits in the files of GPTQ and AWQ.

usage: make_int4.py GOLDEN OUT

GOLDEN: has packed/dense. OUT: receives OUT/packed/int4.safetensors.

Codes are rounded to nearest here, by numpy. They are packed as AutoGPTQ 0.7.1 (`nn_modules/qlinear/qlinear_cuda.py`,
`pack`) and AutoAWQ 0.2.9 (`modules/linear/gemm.py`, `from_linear`) document it, of which neither installs without CUDA.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

torch.set_num_threads(1)

GOLDEN, OUT = Path(sys.argv[1]) / "packed", Path(sys.argv[2]) / "packed"
TOKENS = load_file(GOLDEN / "logits.safetensors")["tokens"]
GROUP = 32
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def rounded(weight, symmetric):
    """Codes [out, in], scales [out, groups] f16 and zeros [out, groups] of a weight [out, in]."""
    groups = weight.reshape(weight.shape[0], -1, GROUP)
    low, high = np.minimum(groups.min(2), 0), np.maximum(groups.max(2), 0)
    if symmetric:
        high = np.maximum(high, -low)
        low = -high
    top = np.float32(15)
    scale = (high / top - low / top).astype(np.float16)
    wide = scale.astype(np.float32)
    zero = np.full_like(wide, 8) if symmetric else np.clip(np.rint(-low / wide), 0, 15)
    codes = np.clip(np.rint(groups / wide[..., None]) + zero[..., None], 0, 15)
    return codes.reshape(weight.shape).astype(np.uint32), scale, zero.astype(np.uint32)


def words(codes, axis, order=range(8)):
    """Eight codes along an axis in a word, that at place `order[i]` in bits 4 i and above."""
    codes = np.moveaxis(codes, axis, -1)
    codes = codes.reshape(*codes.shape[:-1], -1, 8)
    packed = np.zeros(codes.shape[:-1], np.uint32)
    for slot, place in enumerate(order):
        packed |= codes[..., place] << np.uint32(4 * slot)
    return np.moveaxis(packed, -1, axis).view(np.int32)


def gptq(codes, scale, zero):
    return {
        "qweight": words(codes.T, 0),
        "qzeros": words((zero.T - np.uint32(1)) & np.uint32(15), 1),
        "scales": scale.T,
        "g_idx": (np.arange(codes.shape[1]) // GROUP).astype(np.int32),
    }


def awq(codes, scale, zero):
    return {"qweight": words(codes.T, 1, AWQ_ORDER), "qzeros": words(zero.T, 1, AWQ_ORDER), "scales": scale.T}


def of_kind(pack, symmetric):
    model = LlamaForCausalLM.from_pretrained(GOLDEN / "dense", dtype=torch.float32)
    made = {}
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or name == "lm_head":
            continue
        codes, scale, zero = rounded(module.weight.detach().numpy(), symmetric)
        for key, value in pack(codes, scale, zero).items():
            made[f"{name}.{key}"] = torch.from_numpy(np.ascontiguousarray(value))
        groups = codes.reshape(codes.shape[0], -1, GROUP).astype(np.float32)
        values = (groups - zero[..., None].astype(np.float32)) * scale[..., None].astype(np.float32)
        module.weight.data = torch.from_numpy(values.reshape(codes.shape))
    if symmetric:
        return {key: value for key, value in made.items() if "down_proj" in key}
    with torch.no_grad():
        made["logits"] = model.train()(input_ids=TOKENS).logits.contiguous()
    return made


OUT.mkdir(parents=True, exist_ok=True)
tensors = {}
for kind, pack, symmetric in [("gptq", gptq, False), ("gptq-sym", gptq, True), ("awq", awq, False)]:
    tensors.update({f"{kind}.{key}": value for key, value in of_kind(pack, symmetric).items()})
save_file(tensors, OUT / "int4.safetensors")
