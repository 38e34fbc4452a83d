"""Makes DoRA adapters for the tiny Llamas with peft, and what the models compute and learn with them.

usage: make_dora.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its models, data and first LoRA adapter are the inputs.
OUT: receives OUT/dora.
"""

import json
import shutil
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import numpy as np
import torch
import transformers
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import BitsAndBytesConfig, LlamaForCausalLM

import flat_dequantize  # noqa: F401  (repairs bitsandbytes' CPU decoding)

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

GOLDEN, OUT = Path(sys.argv[1]), Path(sys.argv[2]) / "dora"
LLAMA = GOLDEN / "llama"
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
DROPOUT, SEED = 0.25, 42

data = load_file(LLAMA / "data.safetensors")
tokens, train_tokens = data["eval_tokens"], data["train_tokens"]


def base(kind):
    options = {}
    if kind == "nf4":
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32,
        )
        options = dict(quantization_config=quantization, device_map="cpu")
    folder = GOLDEN / "packed/dense" if kind == "biased" else LLAMA / "tiny-trained"
    model = LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", **options
    )
    return packed_by_hqq(model) if kind == "hqq" else model


def packed_by_hqq(model):
    """All linears of layers in 4 bits, groups of 64 along axis 1."""
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
            parent, leaf = name.rsplit(".", 1)
            config = BaseQuantizeConfig(nbits=4, group_size=64, axis=1)
            layer = HQQLinear(module, config, compute_dtype=torch.float32, device="cpu")
            setattr(model.get_submodule(parent), leaf, layer)
    return model


def stored(tensor):
    return tensor.detach().float().contiguous().clone()


def trained(model):
    named = model.named_parameters()
    return {name: param for name, param in named if param.requires_grad}


def key(name):
    """The key on disk: PEFT drops the name of the adapter, and `.weight` of a magnitude."""
    name = name.replace(".default", "")
    return name.removesuffix(".weight") if "magnitude" in name else name


def fresh(kind, dropout=0.0):
    config = LoraConfig(
        r=8,
        lora_alpha=16,
        lora_dropout=dropout,
        bias="none",
        target_modules=TARGETS,
        task_type="CAUSAL_LM",
        use_dora=True,
    )
    torch.manual_seed(3)
    return get_peft_model(base(kind), config).train()


def save_adapter(model, folder, base_name):
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    saved = json.loads(path.read_text())
    saved["base_model_name_or_path"] = base_name
    saved["target_modules"] = sorted(saved["target_modules"])
    path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")


def first_adapter(kind, folder, base_name):
    """A first adapter that is zero nowhere; its magnitudes are up to some 10 % from the norms."""
    model = fresh(kind)
    lora = load_file(LLAMA / "lora_init_r8.safetensors") if kind != "biased" else {}
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, param in trained(model).items():
            noise = torch.randn(param.shape, generator=generator)
            if "magnitude" in name:
                param.mul_(1 + 0.05 * noise)
            elif key(name) in lora:
                param.copy_(lora[key(name)])
            elif "lora_B" in name:
                param.copy_(0.05 * noise)
    save_adapter(model, folder, base_name)


def adapted(kind, folder="adapter"):
    return PeftModel.from_pretrained(base(kind), OUT / folder, is_trainable=True).train()


def philox(key, counter):
    """Philox 4x32-10 (Salmon et al. 2011) of counters `[n, 4]`, as core/interface/src/random.rs."""
    word = np.uint64(0xFFFFFFFF)
    c = counter.astype(np.uint64)
    k = [np.uint64(part) for part in key]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[:, 0], np.uint64(0xCD9E8D57) * c[:, 2]
        high = [(p1 >> np.uint64(32)) ^ c[:, 1] ^ k[0], (p0 >> np.uint64(32)) ^ c[:, 3] ^ k[1]]
        c = np.stack([high[0], p1 & word, high[1], p0 & word], axis=1)
        k = [(k[0] + np.uint64(0x9E3779B9)) & word, (k[1] + np.uint64(0xBB67AE85)) & word]
    return c


class OurDropout(torch.nn.Module):
    """The dropout of this program in step 0: element (t, d) draws word d % 4 of counter
    (d / 4, position, sequence, site)."""

    def __init__(self, site):
        super().__init__()
        self.site = site

    def forward(self, x):
        key = philox([SEED, 0], np.array([[2, 0, 0, 0]]))[0][:2]
        rows, length, width = x.shape
        sequence, position, block = np.meshgrid(
            range(rows), range(length), range(width // 4), indexing="ij"
        )
        site = np.full(block.size, self.site)
        counter = np.stack([block.ravel(), position.ravel(), sequence.ravel(), site], axis=1)
        words = philox(key, counter).reshape(rows, length, width)
        kept = torch.tensor((words >> np.uint64(8)).astype(np.float64) / 2**24 >= DROPOUT)
        return x * kept / (1 - DROPOUT)


def computed(prefix, model, every, out):
    """Every so many tokens' logits, loss and gradients of the eval batch."""
    result = model(input_ids=tokens, labels=tokens)
    result.loss.backward()
    out[f"{prefix}logits"] = stored(result.logits[:, ::every])
    out[f"{prefix}loss"] = stored(result.loss).reshape(1)
    for name, param in trained(model).items():
        out[f"{prefix}grad.{key(name)}"] = stored(param.grad)


def with_dropout(out):
    """A step with dropout, with the masks of this program; and evaluation, which drops nothing."""
    model = adapted("f32")
    layers = [m for m in model.modules() if getattr(m, "lora_magnitude_vector", None)]
    assert len(layers) == 14
    for site, layer in enumerate(layers):
        layer.lora_dropout["default"] = OurDropout(site)
    computed("dropout.", model, 1, out)
    del out["dropout.logits"]


def curve(kind, out):
    model = adapted(kind)
    params = trained(model)
    optimizer = torch.optim.AdamW(params.values(), **ADAMW)
    losses, norms = [], []
    for batch in train_tokens:
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.get_total_norm([param.grad for param in params.values()]))
        optimizer.step()
        losses.append(loss)
    out["curve.loss"], out["curve.norm"] = stored(torch.stack(losses)), stored(torch.stack(norms))
    for name, param in params.items():
        out[f"last.{key(name)}"] = stored(param)


def in_bf16(out):
    """Logits of the dense model in bf16 under autocast, PEFT's own way for a bf16 model."""
    model = adapted("f32")
    for name, param in model.named_parameters():
        if not param.requires_grad:
            param.data = param.data.bfloat16()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        out["bf16.logits"] = stored(model(input_ids=tokens).logits)


def merged(folder, kind):
    """The weights of the first layer after `merge_and_unload`."""
    model = adapted(kind, folder).merge_and_unload()
    kept = {}
    for name, param in model.state_dict().items():
        if ".layers.0." in name and "norm" not in name:
            kept[f"merged.{name}"] = stored(param)
    return kept


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    first_adapter("f32", OUT / "adapter", "llama/tiny-trained")
    first_adapter("biased", OUT / "biased", "packed/dense")
    for kind in ("f32", "nf4", "hqq"):
        out = {}
        for name, param in trained(fresh(kind)).items():
            if "magnitude" in name:
                out[f"init.{key(name)}"] = stored(param)
        # Those of f32 are compared with the logits of bf16, whose noise needs many.
        computed("", adapted(kind), 1 if kind == "f32" else 24, out)
        curve(kind, out)
        if kind == "f32":
            with_dropout(out)
            in_bf16(out)
            out.update(merged("adapter", "f32"))
        save_file(out, OUT / f"expected_{kind}.safetensors")
    out = merged("biased", "biased")
    rows = load_file(GOLDEN / "packed/logits.safetensors")["tokens"]
    with torch.no_grad():
        out["logits"] = stored(adapted("biased", "biased")(input_ids=rows).logits)
    save_file(out, OUT / "expected_biased.safetensors")


main()
