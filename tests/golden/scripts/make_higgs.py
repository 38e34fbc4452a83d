"""Packs a weight by transformers' HIGGS, 4 bits in pairs with a Hadamard matrix of 512, and decodes it.

usage: make_higgs.py GOLDEN OUT

GOLDEN: not read.
OUT: receives OUT/higgs.

Its own transforms and kernels are for CUDA: the transform is a product with the matrix here, and codes and scales are taken
where transformers hands them to the kernels that arrange them.
"""

import sys
from math import sqrt
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers.integrations import higgs

torch.set_num_threads(1)
OUT = Path(sys.argv[2]) / "higgs"
GROUP, SIZE = 256, 512


def hadamard_transform(x, scale=1.0):
    matrix = torch.ones(1, 1)
    while matrix.shape[0] < x.shape[-1]:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return x @ matrix * scale


packed = {}


def prepare_data_transposed(codes, scales, grid, **_):
    packed.update(codes=codes, scales=scales, grid=grid)
    return codes, scales, grid, grid, None


higgs.hadamard_transform = hadamard_transform
higgs.prepare_data_transposed = prepare_data_transposed

torch.manual_seed(7)
weight = torch.randn(2, 1024) * torch.tensor([[0.02], [0.3]])
# Some columns are large, as in real weights.
weight[:, 5::97] *= 6
higgs.quantize_with_higgs(weight, bits=4, p=2, group_size=GROUP, hadamard_size=SIZE)
values = packed["grid"][packed["codes"].long()].reshape(2, -1, GROUP) * packed["scales"][:, :, None]
decoded = hadamard_transform(values.reshape(2, -1, SIZE), 1 / sqrt(SIZE)).reshape(2, -1)
OUT.mkdir(parents=True, exist_ok=True)
tensors = dict(weight=weight, decoded=decoded, codes=packed["codes"], scales=packed["scales"])
save_file({name: value.contiguous() for name, value in tensors.items()}, OUT / "quantizer.safetensors")
print("relative error", ((decoded - weight).norm() / weight.norm()).item())
