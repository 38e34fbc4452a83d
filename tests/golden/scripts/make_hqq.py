"""hqq's CPU quantizer -> tests/golden/hqq/quantizer.safetensors.gz. Run in the folder that is to hold `hqq/`.

Made with Python 3.11.7, torch 2.13.0 (CPU, one thread), hqq 0.2.8.post1, safetensors 0.8.0.
"""
import os

import torch
from compressed import save_compressed
from hqq_cases import STORED, W, key, quantize

from hqq.core.quantize import Quantizer

torch.set_num_threads(1)
out = {name: W[name] for name in STORED}


def case(name, bits, size=64, axis=1, optimize=True, decoded=False):
    packed, meta = quantize(Quantizer, W[name], bits, size, axis, optimize)
    at = key(name, bits, size, axis, optimize, "0.2.8")
    out[f"{at}|codes"] = packed.contiguous()
    out[f"{at}|scale"], out[f"{at}|zero"] = meta["scale"].contiguous(), meta["zero"].contiguous()
    if decoded:
        meta["compute_dtype"] = torch.float32
        out[f"{at}|decoded"] = Quantizer.dequantize(packed, meta).contiguous()


for axis in (0, 1):
    for name in ("normal_64x192", "heavy_32x128", "degenerate_64x64"):
        for bits in (8, 4, 3, 2):
            for optimize in (True, False):
                case(name, bits, axis=axis, optimize=optimize, decoded=optimize and name == "heavy_32x128")
    for bits in (6, 5, 1):
        case("heavy_32x128", bits, axis=axis, decoded=bits == 1)
    for size in (8, 32, 128, 1024):
        case("normal_64x192", 3, size, axis)
    for bits in (8, 4, 3, 2, 1):
        case("wide_16x88", bits, 88, axis)
        if axis == 0 or bits > 2:
            case("crossing_32x40", bits, axis=axis)
    case("few_8x48", 4, axis=axis)
    for bits in (3, 2):
        case("counted_384x512", bits, axis=axis)

os.makedirs("hqq", exist_ok=True)
save_compressed(out, "hqq/quantizer.safetensors.gz")
