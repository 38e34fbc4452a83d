"""Packs weights as GGUF's q8_0 and q4_K and decodes them with the package gguf.

usage: make_gguf.py GOLDEN OUT

GOLDEN: not read.
OUT: receives OUT/gguf.

The package packs q8_0. It decodes q4_K and does not pack it: those blocks have random codes, scales and minima of all 64 values,
and factors of several sizes, 0 and a subnormal number among them.
"""

import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

OUT = Path(sys.argv[2]) / "gguf"
rng = np.random.default_rng(11)

weight = (rng.standard_normal((4, 256)) * np.array([[0.02], [1], [30], [0]])).astype(np.float32)
q8_0 = quantize(weight, Kind.Q8_0)

blocks = rng.integers(0, 256, (6, 144), dtype=np.uint8)
factors = np.array([[0.01, 0.03], [1, 0.5], [3e-6, 100], [0, 0.25], [-0.5, 2e-7], [60, 0]], np.float16)
blocks[:, :4] = factors.view(np.uint8)
q4_k = blocks.reshape(3, -1)

OUT.mkdir(parents=True, exist_ok=True)
tensors = dict(
    weight=weight,
    q8_0=q8_0,
    q8_0_decoded=dequantize(q8_0, Kind.Q8_0),
    q4_k=q4_k,
    q4_k_decoded=dequantize(q4_k, Kind.Q4_K),
)
save_file(tensors, OUT / "blocks.safetensors")
print({name: (value.shape, str(value.dtype)) for name, value in tensors.items()})
