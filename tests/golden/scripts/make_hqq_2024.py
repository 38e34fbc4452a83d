"""hqq of March 2024 -> tests/golden/hqq/quantizer_2024.safetensors.gz. Run in the folder that is to hold `hqq/`.

usage: make_hqq_2024.py SOURCE     the unpacked hqq-0.1.7.tar.gz (pip download --no-deps --no-binary :all: hqq==0.1.7)

Made with Python 3.11.7, torch 2.13.0 (CPU, one thread), safetensors 0.8.0. Not part of `cargo xtask golden`, whose
Python has the hqq of today. hqq 0.1.7's layer wants a CUDA device; its quantizer does not, so that the quantization of
zeros and scales is called here as `HQQLinear.quantize` calls it.
"""
import os
import sys

sys.path.insert(0, sys.argv[1])
import torch
from compressed import save_compressed
from hqq_cases import W, key, quantize

from hqq.core.quantize import BaseQuantizeConfig, Quantizer

torch.set_num_threads(1)
out = {}


def case(name, bits, size=64, axis=1, quant_scale=False, optimize=True):
    config = BaseQuantizeConfig(bits, size, quant_zero=True, quant_scale=quant_scale, axis=axis)
    packed, meta = quantize(Quantizer, W[name], bits, size, axis, optimize)
    at = key(name, bits, size, axis, optimize, "8bit" if quant_scale else "zero-8bit")
    out[f"{at}|codes"] = packed.contiguous()
    for what in ("zero", "scale"):
        params = config[f"{what}_quant_params"]
        if params is None:
            out[f"{at}|{what}"] = meta[what].contiguous()
            continue
        codes, inner = Quantizer.quantize(meta[what], device="cpu", view_as_float=False, **params)
        inner["compute_dtype"] = torch.float32
        meta[what] = Quantizer.dequantize(codes, inner)
        out[f"{at}|{what}"] = codes.contiguous()
        out[f"{at}|{what}_scale"], out[f"{at}|{what}_zero"] = inner["scale"].contiguous(), inner["zero"].contiguous()
    if name == "heavy_32x128":
        # Not by Quantizer.dequantize, which takes padding of 3 bits for groups (mended later).
        codes = Quantizer.unpack[meta["packing"]](packed, dtype=torch.float32)
        codes = codes[: size if axis == 0 else W[name].numel() // size]
        out[f"{at}|decoded"] = ((codes - meta["zero"]) * meta["scale"]).reshape(W[name].shape).contiguous()


for axis in (0, 1):
    for name in ("normal_64x192", "heavy_32x128", "degenerate_64x64"):
        for bits in (8, 4, 3, 2, 1):
            case(name, bits, axis=axis)
    case("heavy_32x128", 3, 32, axis, quant_scale=True)
    case("normal_64x192", 2, 16, axis, quant_scale=True)
    case("wide_16x88", 3, 88, axis)
    case("wide_16x88", 8, 88, axis, optimize=False)
    case("counted_384x512", 2, axis=axis, quant_scale=True)

os.makedirs("hqq", exist_ok=True)
save_compressed(out, "hqq/quantizer_2024.safetensors.gz")
