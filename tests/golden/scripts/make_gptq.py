"""GPTQ in numpy, as the paper has it -> gptq/layers.safetensors in the folder OUT. usage: make_gptq.py GOLDEN OUT

Frantar et al. 2022 (arXiv:2210.17323), algorithm 1 with the inverse of the damped matrix H and its upper Cholesky factor, in
float64; groups, the order of columns and static groups as github.com/IST-DASLab/gptq has them: with static groups the grids are
those of the original weight, else a group's grid is taken from its weights when its first column is reached. Scales are rounded
to float32 before they are used.

Made with Python 3.11.7, numpy 2.4.6, safetensors 0.8.0.
"""
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

OUT = Path(sys.argv[2])
TOKENS = 160
LAYERS = {"wide": (24, 128), "narrow": (5, 40), "few": (12, 96)}
#         layer   bits group act-order symmetric damping
CASES = [("wide", 4, 128, False, False, 0.01), ("wide", 4, 32, False, False, 0.01),
         ("wide", 4, 32, True, False, 0.01), ("wide", 3, 64, True, False, 0.01),
         ("wide", 2, 32, False, False, 0.05), ("wide", 4, 64, True, True, 0.01),
         ("narrow", 4, 8, False, False, 0.01), ("few", 4, 48, True, False, 0.1)]


def layer(rows, cols, seed):
    """A weight, and inputs that go together and are whole numbers, so that their sums are exact in float32."""
    rng = np.random.default_rng(seed)
    weight = (rng.standard_normal((rows, cols)) * 0.05).astype(np.float32)
    sizes = 1 + np.arange(cols) * 5 % 7
    inputs = (rng.standard_normal((TOKENS, cols)) + rng.standard_normal((TOKENS, 1))) * sizes
    return weight, np.clip(np.rint(4 * inputs), -127, 127).astype(np.int8)


def grid(columns, bits, symmetric):
    """Scale and zero of each row of a group."""
    top = np.float32(2**bits - 1)
    low, high = np.minimum(columns.min(1), 0), np.maximum(columns.max(1), 0)
    if symmetric:
        high = np.maximum(high, -low)
        low = -high
    low, high = low.astype(np.float32), high.astype(np.float32)
    scale = high / top - low / top
    zero = np.full_like(scale, (top + 1) / 2) if symmetric else np.clip(np.rint(-low / scale), 0, top)
    return scale, zero


def gptq(weight, gram, bits, group, act_order, symmetric, damping):
    rows, cols = weight.shape
    top = 2**bits - 1
    order = np.argsort(-np.diag(gram), kind="stable") if act_order else np.arange(cols)
    damped = gram + damping * np.diag(gram).mean() * np.eye(cols)
    inverse = np.linalg.inv(damped[np.ix_(order, order)])
    factor = np.linalg.cholesky(inverse).T
    left = weight[:, order].astype(np.float64)
    scales, zeros = np.zeros((rows, cols // group), np.float32), np.zeros((rows, cols // group), np.float32)
    if act_order:
        for index in range(cols // group):
            scales[:, index], zeros[:, index] = grid(weight[:, index * group:(index + 1) * group], bits, symmetric)
    codes = np.zeros((rows, cols), np.uint8)
    for at, column in enumerate(order):
        index = column // group
        if not act_order and column % group == 0:
            scales[:, index], zeros[:, index] = grid(left[:, at:at + group], bits, symmetric)
        scale, zero = scales[:, index], zeros[:, index]
        code = np.clip(np.rint(left[:, at].astype(np.float32) / scale) + zero, 0, top)
        codes[:, column] = code
        value = ((code - zero) * scale).astype(np.float64)
        error = (left[:, at] - value) / factor[at, at]
        left[:, at + 1:] -= np.outer(error, factor[at, at + 1:])
    return codes, scales, zeros


tensors = {}
for seed, (layer_name, shape) in enumerate(LAYERS.items()):
    tensors[f"{layer_name}|weight"], tensors[f"{layer_name}|inputs"] = layer(*shape, seed)
for of, bits, group, act_order, symmetric, damping in CASES:
    exact = tensors[f"{of}|inputs"].astype(np.float64)
    codes, scales, zeros = gptq(tensors[f"{of}|weight"], exact.T @ exact, bits, group, act_order, symmetric, damping)
    case = f"{of}|{bits}|{group}|{'ordered' if act_order else 'stored'}|{'symmetric' if symmetric else 'asymmetric'}|{damping}"
    tensors |= {f"{case}|codes": codes, f"{case}|scales": scales, f"{case}|zeros": zeros}
(OUT / "gptq").mkdir(parents=True, exist_ok=True)
save_file(tensors, OUT / "gptq" / "layers.safetensors")
