"""The tiny trained Llama as a base of adapters: dense, in NF4 and in HQQ, in f32."""

import torch
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from transformers import BitsAndBytesConfig, LlamaForCausalLM

import flat_dequantize  # noqa: F401  (repairs bitsandbytes' CPU decoding)

KINDS = ("f32", "nf4", "hqq")


def base(folder, kind):
    """The model in `folder`; `hqq-decoded` is dense, with the values of HQQ's weights."""
    options = {}
    if kind == "nf4":
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32,
        )
        options = dict(quantization_config=quantization, device_map="cpu")
    model = LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", **options
    )
    return packed_by_hqq(model, kind == "hqq-decoded") if kind.startswith("hqq") else model


def packed_by_hqq(model, decode):
    """All linears of layers in 4 bits, groups of 64 along axis 1."""
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
            parent, leaf = name.rsplit(".", 1)
            config = BaseQuantizeConfig(nbits=4, group_size=64, axis=1)
            # A layer of hqq takes the weight away from the module that it is made from.
            dense = torch.nn.Linear(module.in_features, module.out_features, bias=False)
            layer = HQQLinear(module, config, compute_dtype=torch.float32, device="cpu")
            if decode:
                dense.weight = torch.nn.Parameter(layer.dequantize().clone())
                layer = dense
            setattr(model.get_submodule(parent), leaf, layer)
    return model


def computed(model, rows, trained, out):
    """Loss, gradients and every 24th token's logits of `rows`."""
    result = model(input_ids=rows, labels=rows)
    result.loss.backward()
    out["logits"], out["loss"] = stored(result.logits[:, ::24]), stored(result.loss).reshape(1)
    for name, param in trained.items():
        out[f"grad.{name}"] = stored(param.grad)


def stored(tensor):
    return tensor.detach().float().contiguous().clone()
