"""bitsandbytes' CPU quantizers -> tests/golden/bnb. Run in the folder that is to hold `bnb/`.

Made with Python 3.11.7, torch 2.13.0 (CPU, one thread, AVX-512), bitsandbytes 0.50.2, safetensors 0.8.0.

bitsandbytes 0.50.2's AVX-512 `dequantize_4bit` restarts its block index in every row, which is wrong
where a row is not a multiple of the block size. FLAT calls the same C kernel as one row of all elements,
which is what its CUDA and PyTorch paths compute; the raw output is kept as `*_asis` for the record.
"""
import ctypes
import json
import logging
import os
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import bitsandbytes as bnb
import bitsandbytes.backends.cpu.ops as cpu_ops
import bitsandbytes.functional as F
import torch
from compressed import save_compressed
from safetensors.torch import save_file

FLAT = True


class FlatRows:
    def __init__(self, lib):
        self.lib = lib

    def __getattr__(self, name):
        f = getattr(self.lib, name)
        if name.startswith(("cdequantize_blockwise_cpu_nf4", "cdequantize_blockwise_cpu_fp4")):
            flat = lambda a, am, o, bs, m, k: f(a, am, o, bs, ctypes.c_longlong(1), ctypes.c_longlong(m.value * k.value))
            return lambda *args: flat(*args) if FLAT else f(*args)
        return f


cpu_ops.lib = FlatRows(cpu_ops.lib)
torch.set_num_threads(1)
os.makedirs("bnb", exist_ok=True)
generator = torch.Generator().manual_seed(20240607)


def normal(*shape, std=0.02):
    return torch.randn(*shape, generator=generator) * std


# Weights: ordinary, odd and ragged counts, zero blocks, outliers, numbers at and beside the midpoints.
nf4, fp4 = F.get_4bit_type("nf4", "cpu"), F.get_4bit_type("fp4", "cpu")
W = {}
W["normal_64x96"] = normal(64, 96)
W["normal_256x128"] = normal(256, 128)  # 512 blocks of 64: two nested blocks
W["odd_5x37"] = normal(5, 37)
W["ragged_7x50"] = normal(7, 50)
W["vec_1000"] = normal(1000)
w = normal(8, 128)
w[2] = 0
w[5] = 0
w[7, 64:] = 0
W["zero_blocks_8x128"] = w
w = normal(16, 64)
w[torch.arange(16), torch.randint(0, 64, (16,), generator=generator)] *= 150
w[3, 0] = 1e4
w[4] = normal(64) * 1e-30
w[5] = normal(64) * 1e-36
W["outliers_16x64"] = w
W["all_zero_4x64"] = torch.zeros(4, 64)


def ties(code):
    rising = code.sort().values
    middle = (rising[1:] + rising[:-1]) / 2
    v = torch.zeros(64)
    v[0], v[1] = 1.0, -1.0
    v[2 : 2 + len(middle)] = middle
    v[20 : 20 + len(middle)] = torch.nextafter(middle, torch.full_like(middle, 2.0))
    v[40 : 40 + len(middle)] = torch.nextafter(middle, torch.full_like(middle, -2.0))
    return v


W["ties_nf4_3x64"] = torch.stack([ties(nf4), ties(nf4) * 0.5, ties(nf4) * 0.37])
W["ties_fp4_3x64"] = torch.stack([ties(fp4), ties(fp4) * 0.5, ties(fp4) * 0.37])
W["bf16_32x64"] = normal(32, 64).bfloat16()
W["f16_32x64"] = normal(32, 64).half()

# fourbit: codes, absmax and decoded values, plain and double-quantized.
signed, unsigned = F.create_dynamic_map(True), F.create_dynamic_map(False)
out = {"code.nf4": nf4, "code.fp4": fp4, "code.dynamic_signed": signed, "code.dynamic_unsigned": unsigned}
meta = {"cases": {}}
for name, w in W.items():
    out[f"{name}.W"] = w.contiguous()
    # The largest case is decoded in f32 alone: the file stays small.
    decoded = ((torch.float32, "f32"), (torch.bfloat16, "bf16"))[: 1 if name == "normal_256x128" else 2]
    for kind in ("nf4", "fp4"):
        # The largest case has blocks of 64 alone, of which two nested blocks are.
        blocks = {"normal_256x128": (64,), "normal_64x96": (64, 128, 32, 256)}.get(name, (64, 128))
        for block in blocks:
            key = f"{name}.{kind}.b{block}"
            packed, state = F.quantize_4bit(w, blocksize=block, quant_type=kind, compress_statistics=False)
            out[key + ".packed"], out[key + ".absmax"] = packed.contiguous(), state.absmax.contiguous()
            for dtype, label in decoded:
                state.dtype = dtype
                out[f"{key}.deq_{label}"] = F.dequantize_4bit(packed, state).contiguous()
                FLAT = False
                raw = F.dequantize_4bit(packed, state).contiguous()
                FLAT = True
                if label == "f32" and not torch.equal(raw, out[f"{key}.deq_{label}"]):
                    out[f"{key}.deq_{label}_asis"] = raw
            packed2, nested = F.quantize_4bit(w, blocksize=block, quant_type=kind, compress_statistics=True)
            assert torch.equal(packed, packed2)
            assert torch.equal(nested.state2.code, signed) and nested.state2.blocksize == 256
            out[key + ".dq.absmax_u8"] = nested.absmax.contiguous()
            out[key + ".dq.offset"] = nested.offset.reshape(1)
            out[key + ".dq.nested_absmax"] = nested.state2.absmax.contiguous()
            out[key + ".dq.absmax_f32"] = (F.dequantize_blockwise(nested.absmax, nested.state2) + nested.offset).contiguous()
            for dtype, label in decoded:
                nested.dtype = dtype
                out[f"{key}.dq.deq_{label}"] = F.dequantize_4bit(packed2, nested).contiguous()
            meta["cases"][key] = dict(
                shape=list(w.shape), dtype=str(w.dtype), blocksize=block, quant_type=kind,
                packed_shape=list(packed.shape), n_blocks=state.absmax.numel(),
            )
save_compressed(out, "bnb/fourbit.safetensors.gz")
json.dump(meta, open("bnb/fourbit.json", "w"), indent=1)

# linear4bit: one weight as a checkpoint stores it, with a forward and a backward of its layer.
for kind in ("nf4", "fp4"):
    options = dict(quant_type=kind, compress_statistics=True)
    linear = bnb.nn.Linear4bit(128, 256, bias=True, compute_dtype=torch.float32, **options)
    linear.weight = bnb.nn.Params4bit(W["normal_256x128"].clone(), requires_grad=False, **options)
    linear.bias.data = normal(256)
    linear = linear.to("cpu")
    x = normal(3, 5, 128, std=1.0).requires_grad_(True)
    y = linear(x)
    grad_y = normal(3, 5, 256, std=1.0)
    y.backward(grad_y)
    saved = {k: v.contiguous() for k, v in linear.state_dict().items()}
    test = {"test.x": x.detach(), "test.y": y.detach(), "test.grad_y": grad_y, "test.grad_x": x.grad}
    save_file(saved | test, f"bnb/linear4bit_{kind}_state_dict.safetensors")

# int8_blockwise: the dynamic maps over |A| (unsigned) and A (signed).
out = {}
for name in ("normal_64x96", "odd_5x37", "zero_blocks_8x128", "outliers_16x64"):
    out[name + ".A"] = W[name]
    for label, code, a in (("signed", signed, W[name]), ("unsigned_abs", unsigned, W[name].abs())):
        for block in (64, 256, 4096):
            q, state = F.quantize_blockwise(a.contiguous(), code=code, blocksize=block)
            key = f"{name}.{label}.b{block}"
            out[key + ".q"], out[key + ".absmax"] = q.contiguous(), state.absmax.contiguous()
            out[key + ".deq"] = F.dequantize_blockwise(q, state).contiguous()
out["code.signed"], out["code.unsigned"] = signed, unsigned
save_compressed(out, "bnb/int8_blockwise.safetensors.gz")

# blocks: the other block sizes, on a weight whose last block is ragged from 1024 on.
generator = torch.Generator().manual_seed(20261121)
w = normal(90, 128)
out = {"W": w}
for block in (32, 512, 1024, 2048, 4096):
    for kind in ("nf4", "fp4"):
        packed, state = F.quantize_4bit(w, blocksize=block, quant_type=kind, compress_statistics=False)
        out[f"{kind}.b{block}.packed"], out[f"{kind}.b{block}.absmax"] = packed, state.absmax
for block in (128, 512, 1024, 2048):
    out[f"int8.b{block}.packed"], state = F.quantize_blockwise(w, code=signed, blocksize=block)
    out[f"int8.b{block}.absmax"] = state.absmax
save_file(out, "bnb/blocks.safetensors")
