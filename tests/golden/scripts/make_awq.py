"""AWQ in numpy, as published -> awq/layers.safetensors in the folder OUT. usage: make_awq.py GOLDEN OUT

Lin et al. 2023 (arXiv:2306.00978), as github.com/mit-han-lab/llm-awq has it: `auto_scale.py` (the scale of each channel is a power of
the mean magnitude of its input, of 20 powers the one with the least squared error of the outputs) for one weight, then `auto_clip.py`
(each group is clipped to the part of its largest magnitude with the least squared error of its part of the outputs), in float64. The
grids are int4's, which always hold 0, with scales rounded to float32. Weights and inputs are those of GOLDEN/gptq.

Made with Python 3.11.7, numpy 2.4.6, safetensors 0.8.0.
"""
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

GOLDEN, OUT = Path(sys.argv[1]), Path(sys.argv[2])
#         layer   bits group symmetric clip
CASES = [("wide", 4, 128, False, False), ("wide", 4, 32, False, True), ("wide", 3, 64, False, False), ("wide", 3, 32, True, True),
         ("wide", 2, 32, False, False), ("narrow", 4, 8, False, False), ("few", 3, 48, False, True)]
RATIOS, SHRUNK = 20, 10


def rounded(weight, bits, group, symmetric):
    """Codes, scales and zeros of a weight [N, M], by group."""
    top = np.float32(2**bits - 1)
    runs = weight.reshape(len(weight), -1, group)
    low, high = np.minimum(runs.min(2), 0), np.maximum(runs.max(2), 0)
    if symmetric:
        high = np.maximum(high, -low)
        low = -high
    scales = (high.astype(np.float32) / top - low.astype(np.float32) / top).astype(np.float64)
    scales[scales == 0] = 1
    zeros = np.full_like(scales, (top + 1) / 2) if symmetric else np.clip(np.rint(-low / scales), 0, top)
    codes = np.clip(np.rint(runs / scales[..., None]) + zeros[..., None], 0, top)
    return codes, scales, zeros


def value(codes, scales, zeros):
    return ((codes - zeros[..., None]) * scales[..., None]).reshape(len(codes), -1)


def scale_search(weight, inputs, bits, group, symmetric):
    outputs, mean = inputs @ weight.T, np.abs(inputs).mean(0)
    best, least = None, np.inf
    for ratio in range(RATIOS):
        scales = np.maximum(mean ** (ratio / RATIOS), 1e-4)
        scales = scales / np.sqrt(scales.max() * scales.min())
        found = value(*rounded(weight * scales, bits, group, symmetric)) / scales
        loss = np.square(outputs - inputs @ found.T).mean()
        if loss < least:
            best, least = scales, loss
    return best


def clip_search(weight, inputs, bits, group, symmetric):
    """The weight with clipped groups."""
    runs = weight.reshape(len(weight), -1, group)
    inputs = inputs.reshape(len(inputs), -1, group)
    outputs = np.einsum("tgc,ngc->tng", inputs, runs)
    largest = np.abs(runs).max(2)
    best, least = largest.copy(), np.full_like(largest, np.inf)
    for step in range(SHRUNK):
        most = largest * (1 - step / RATIOS)
        clipped = np.clip(runs, -most[..., None], most[..., None])
        found = value(*rounded(clipped.reshape(weight.shape), bits, group, symmetric)).reshape(runs.shape)
        loss = np.square(outputs - np.einsum("tgc,ngc->tng", inputs, found)).mean(0)
        is_better = loss < least
        least, best = np.where(is_better, loss, least), np.where(is_better, most, best)
    return np.clip(runs, -best[..., None], best[..., None]).reshape(weight.shape)


layers, tensors = load_file(GOLDEN / "gptq" / "layers.safetensors"), {}
for of, bits, group, symmetric, clip in CASES:
    weight, inputs = layers[f"{of}|weight"].astype(np.float64), layers[f"{of}|inputs"].astype(np.float64)
    factors = scale_search(weight, inputs, bits, group, symmetric)
    scaled, inputs = weight * factors, inputs / factors
    if clip:
        scaled = clip_search(scaled, inputs, bits, group, symmetric)
    codes, scales, zeros = rounded(scaled, bits, group, symmetric)
    case = f"{of}|{bits}|{group}|{'symmetric' if symmetric else 'asymmetric'}|{'clip' if clip else 'whole'}"
    tensors |= {f"{case}|codes": codes.reshape(weight.shape).astype(np.uint8), f"{case}|scales": scales.astype(np.float32),
                f"{case}|zeros": zeros.astype(np.float32), f"{case}|factors": (1 / factors).astype(np.float32)}
(OUT / "awq").mkdir(parents=True, exist_ok=True)
save_file(tensors, OUT / "awq" / "layers.safetensors")
