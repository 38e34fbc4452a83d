"""Makes the golden codes, scales and decoded values of NF4, FP4 and int8 with bitsandbytes.

usage: make_bnb.py OUT      OUT receives OUT/bnb
"""

import json
import sys
from pathlib import Path

import bitsandbytes as bnb
import bitsandbytes.functional as bnb_functional
import torch
from safetensors.torch import save_file

import flat_dequantize  # noqa: F401  (repairs bitsandbytes' CPU decoding)

torch.set_num_threads(1)
OUT = Path(sys.argv[1]) / "bnb"
generator = torch.Generator().manual_seed(20240607)
NF4 = bnb_functional.get_4bit_type("nf4", "cpu")
FP4 = bnb_functional.get_4bit_type("fp4", "cpu")


def normal(*shape, std=0.02):
    return torch.randn(*shape, generator=generator) * std


def ties(code):
    """Midpoints between neighbouring codes, and the floats just above and just below them."""
    ordered = code.sort().values
    middle = (ordered[1:] + ordered[:-1]) / 2
    row = torch.zeros(64)
    row[0], row[1] = 1.0, -1.0
    row[2 : 2 + len(middle)] = middle
    row[20 : 20 + len(middle)] = torch.nextafter(middle, torch.full_like(middle, 2.0))
    row[40 : 40 + len(middle)] = torch.nextafter(middle, torch.full_like(middle, -2.0))
    return torch.stack([row, row * 0.5, row * 0.37])


def weights():
    """The cases; the order of the random draws is part of them."""
    cases = {
        "normal_64x96": normal(64, 96),
        "normal_256x128": normal(256, 128),  # 512 blocks of 64: two nested blocks
        "odd_5x37": normal(5, 37),
        "ragged_7x50": normal(7, 50),
        "vec_1000": normal(1000),
    }
    zeros = normal(8, 128)
    zeros[2], zeros[5], zeros[7, 64:] = 0, 0, 0
    cases["zero_blocks_8x128"] = zeros
    outliers = normal(16, 64)
    outliers[torch.arange(16), torch.randint(0, 64, (16,), generator=generator)] *= 150
    outliers[3, 0] = 1e4
    outliers[4] = normal(64) * 1e-30
    outliers[5] = normal(64) * 1e-36
    cases["outliers_16x64"] = outliers
    cases["all_zero_4x64"] = torch.zeros(4, 64)
    cases["ties_nf4_3x64"], cases["ties_fp4_3x64"] = ties(NF4), ties(FP4)
    cases["bf16_32x64"] = normal(32, 64).bfloat16()
    cases["f16_32x64"] = normal(32, 64).half()
    return cases


def decoded(out, key, codes, state):
    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        state.dtype = dtype
        out[f"{key}deq_{name}"] = bnb_functional.dequantize_4bit(codes, state).contiguous()


def four_bit(cases):
    out = {
        "code.nf4": NF4,
        "code.fp4": FP4,
        "code.dynamic_signed": bnb_functional.create_dynamic_map(True),
        "code.dynamic_unsigned": bnb_functional.create_dynamic_map(False),
    }
    listed = {}
    for name, weight in cases.items():
        out[f"{name}.W"] = weight.contiguous()
        for kind in ("nf4", "fp4"):
            for block in (64, 128) + ((32, 256) if name == "normal_64x96" else ()):
                key = f"{name}.{kind}.b{block}"
                options = dict(blocksize=block, quant_type=kind)
                codes, state = bnb_functional.quantize_4bit(
                    weight, compress_statistics=False, **options
                )
                out[f"{key}.packed"] = codes.contiguous()
                out[f"{key}.absmax"] = state.absmax.contiguous()
                decoded(out, f"{key}.", codes, state)
                again, nested = bnb_functional.quantize_4bit(
                    weight, compress_statistics=True, **options
                )
                assert torch.equal(codes, again)
                assert torch.equal(nested.state2.code, out["code.dynamic_signed"])
                assert nested.state2.blocksize == 256
                out[f"{key}.dq.absmax_u8"] = nested.absmax.contiguous()
                out[f"{key}.dq.offset"] = nested.offset.reshape(1)
                out[f"{key}.dq.nested_absmax"] = nested.state2.absmax.contiguous()
                restored = bnb_functional.dequantize_blockwise(nested.absmax, nested.state2)
                out[f"{key}.dq.absmax_f32"] = (restored + nested.offset).contiguous()
                decoded(out, f"{key}.dq.", again, nested)
                listed[key] = {
                    "shape": list(weight.shape),
                    "dtype": str(weight.dtype),
                    "blocksize": block,
                    "quant_type": kind,
                    "packed_shape": list(codes.shape),
                    "n_blocks": state.absmax.numel(),
                }
    save_file(out, OUT / "fourbit.safetensors")
    (OUT / "fourbit.json").write_text(json.dumps({"cases": listed}, indent=1))


def linear(cases, kind):
    """bitsandbytes' own checkpoint of one layer, with a forward and a backward pass."""
    layer = bnb.nn.Linear4bit(
        128,
        256,
        bias=True,
        quant_type=kind,
        compress_statistics=True,
        compute_dtype=torch.float32,
    )
    layer.weight = bnb.nn.Params4bit(
        cases["normal_256x128"].clone(),
        requires_grad=False,
        quant_type=kind,
        compress_statistics=True,
    )
    layer.bias.data = normal(256)
    layer = layer.to("cpu")
    x = normal(3, 5, 128, std=1.0).requires_grad_(True)
    y = layer(x)
    grad_y = normal(3, 5, 256, std=1.0)
    y.backward(grad_y)
    out = {key: value.contiguous() for key, value in layer.state_dict().items()}
    out |= {"test.x": x.detach(), "test.y": y.detach()}
    out |= {"test.grad_y": grad_y, "test.grad_x": x.grad}
    save_file(out, OUT / f"linear4bit_{kind}_state_dict.safetensors")


def int8_blockwise(cases):
    out = {}
    for name in ("normal_64x96", "odd_5x37", "zero_blocks_8x128", "outliers_16x64"):
        out[f"{name}.A"] = cases[name]
        for signed in (True, False):
            values = (cases[name] if signed else cases[name].abs()).contiguous()
            code = bnb_functional.create_dynamic_map(signed)
            for block in (64, 256, 4096):
                key = f"{name}.{'signed' if signed else 'unsigned_abs'}.b{block}"
                codes, state = bnb_functional.quantize_blockwise(
                    values, code=code, blocksize=block
                )
                out[f"{key}.q"] = codes.contiguous()
                out[f"{key}.absmax"] = state.absmax.contiguous()
                out[f"{key}.deq"] = bnb_functional.dequantize_blockwise(codes, state).contiguous()
    out["code.signed"] = bnb_functional.create_dynamic_map(True)
    out["code.unsigned"] = bnb_functional.create_dynamic_map(False)
    save_file(out, OUT / "int8_blockwise.safetensors")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    cases = weights()
    four_bit(cases)
    for kind in ("nf4", "fp4"):
        linear(cases, kind)
    int8_blockwise(cases)


main()
