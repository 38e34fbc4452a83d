"""Makes PiSSA's and LoftQ's beginnings of the tiny Llama, and what the model computes and learns from them.

usage: make_split.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its model and data are the inputs.
OUT: receives OUT/split.

PEFT has PiSSA on dense models alone: its dense residual is packed here by bitsandbytes or hqq. LoftQ on NF4 is
PEFT's own function, on the CPU; on HQQ it is the same loop here, and its factors are divided by alpha/r. Factors
are unique but for signs, which cancel in the products of which some columns and rows are kept.
"""

import inspect
import shutil
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from peft import LoraConfig, get_peft_model
from peft.utils import loftq_utils
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

import flat_dequantize  # noqa: F401  (repairs bitsandbytes' CPU decoding)

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

LLAMA, OUT = Path(sys.argv[1]) / "llama", Path(sys.argv[2]) / "split"
ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
TARGETS, RANK = ["q_proj", "v_proj"], 8
# Case: alpha, quantizer.
CASES = {
    "pissa_f32": (16, None),
    "pissa_nf4": (16, "nf4-double"),
    "pissa_hqq": (16, "hqq"),
    "loftq_nf4": (8, "nf4"),
    "loftq_hqq": (16, "hqq"),
}
ROUNDS = 2
# Columns and rows of a product.
KEPT = 2

data = load_file(LLAMA / "data.safetensors")
tokens, train_tokens = data["eval_tokens"], data["train_tokens"]


def base():
    return LlamaForCausalLM.from_pretrained(LLAMA / "tiny-trained", dtype=torch.float32)


def stored(tensor):
    return tensor.detach().float().contiguous().clone()


def packed(weight, quantizer):
    """The decoded values of a packed weight."""
    if quantizer is None:
        return weight
    if quantizer == "hqq":
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        linear.weight.data = weight.clone()
        config = BaseQuantizeConfig(nbits=4, group_size=64, axis=1)
        return HQQLinear(linear, config, compute_dtype=torch.float32, device="cpu").dequantize()
    double = quantizer == "nf4-double"
    codes, state = quantize_4bit(weight, quant_type="nf4", compress_statistics=double)
    return dequantize_4bit(codes, state)


def pefts_loftq(weight):
    """PEFT's function, which asks for a CUDA device, on the CPU."""
    source = inspect.getsource(loftq_utils.loftq_init)
    assert source.count('else "cuda"') == 1
    names = dict(vars(loftq_utils))
    exec(source.replace('else "cuda"', 'else "cpu"'), names)
    return names["loftq_init"](weight, num_bits=4, reduced_rank=RANK, num_iter=ROUNDS)


def loftq(weight, quantizer, scaling):
    """The same for any quantizer, with factors divided by the scaling."""
    update = torch.zeros_like(weight)
    for _ in range(ROUNDS):
        decoded = packed(weight - update, quantizer)
        left, values, right = torch.linalg.svd(weight - decoded, full_matrices=False)
        roots = torch.sqrt(values[:RANK] / scaling)
        down, up = roots[:, None] * right[:RANK], left[:, :RANK] * roots
        update = scaling * up @ down
    return decoded, down, up


def begun(case):
    """A dense model with the decoded base and an adapter at its beginning."""
    alpha, quantizer = CASES[case]
    scaling = alpha / RANK
    config = dict(r=RANK, lora_alpha=alpha, target_modules=TARGETS, task_type="CAUSAL_LM")
    init = "pissa" if case.startswith("pissa") else True
    model = get_peft_model(base(), LoraConfig(init_lora_weights=init, **config)).train()
    error, alone, total = 0.0, 0.0, 0.0
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or ".lora_" in name or "lm_head" in name:
            continue
        original = base().get_submodule(name.removeprefix("base_model.model.").removesuffix(".base_layer"))
        original, weight = original.weight.data, module.weight
        if not name.endswith(".base_layer"):
            weight.data = packed(weight.data, quantizer)
            continue
        layer = model.get_submodule(name.removesuffix(".base_layer"))
        down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        if init == "pissa":
            weight.data = packed(weight.data, quantizer)
        elif quantizer == "nf4":
            weight.data, down.data, up.data = pefts_loftq(original)
        else:
            weight.data, down.data, up.data = loftq(original, quantizer, scaling)
        error += (original - weight - scaling * up @ down).square().sum().item()
        alone += (original - packed(original, quantizer)).square().sum().item()
        total += original.square().sum().item()
    errors = torch.tensor([error / total, alone / total], dtype=torch.float64).sqrt()
    return model, scaling, errors


def products(model, scaling, out, prefix, gradients=False):
    for name, module in model.named_modules():
        if not hasattr(module, "lora_A"):
            continue
        down, up = module.lora_A["default"].weight, module.lora_B["default"].weight
        if not gradients:
            product = scaling * up @ down
        elif "layers.0." in name:
            product = up.grad @ down + up @ down.grad
        else:
            continue
        kept = torch.cat([product[:, :KEPT].flatten(), product[:KEPT].flatten()])
        out[f"{prefix}{name.removeprefix('base_model.model.')}"] = stored(kept)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    for case in CASES:
        model, scaling, errors = begun(case)
        for name, param in model.named_parameters():
            param.requires_grad_("lora_" in name)
        params = [param for param in model.parameters() if param.requires_grad]
        out = {"errors": errors}
        products(model, scaling, out, "begin.")
        result = model(input_ids=tokens, labels=tokens)
        out["logits"], out["loss"] = stored(result.logits[0, -1:]), stored(result.loss).reshape(1)
        result.loss.backward()
        products(model, scaling, out, "grad.", gradients=True)
        optimizer = torch.optim.AdamW(params, **ADAMW)
        losses, norms = [], []
        for batch in train_tokens:
            loss = model(input_ids=batch, labels=batch).loss
            optimizer.zero_grad()
            loss.backward()
            norms.append(torch.nn.utils.get_total_norm([param.grad for param in params]))
            optimizer.step()
            losses.append(loss)
        out["curve.loss"], out["curve.norm"] = stored(torch.stack(losses)), stored(torch.stack(norms))
        products(model, scaling, out, "last.")
        save_file(out, OUT / f"expected_{case}.safetensors")
        print(case, [f"{error:.6f}" for error in errors], f"loss {out['loss'].item():.6f}")


main()
