"""Makes the golden numbers of training in bf16 with transformers, peft, bitsandbytes and hqq.

usage: make_bf16.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its model, data and first adapter are the inputs.
OUT: receives OUT/bf16: for each base the peers' bf16 numbers, and summary.json: the cases, and how far
the numbers are from the peers' f32 numbers and from their bf16 numbers without AVX-512.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import BitsAndBytesConfig, LlamaForCausalLM

from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

import bitsandbytes as bnb
import flat_dequantize  # noqa: F401  (repairs bitsandbytes' CPU decoding)

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)

FROM = Path(sys.argv[1]) / "llama"
OUT = Path(sys.argv[2]) / "bf16"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
FEED_FORWARD = ["gate_proj", "up_proj", "down_proj"]
ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
# A case: layers, factors of weights, linears with an adapter. `whole` is the model as it is. The
# others round few values between the tokens and the logits. `attention` has no feed-forward block.
# In `head` no block adds anything. `feed_forward` has no attention, and gates so large that silu(g)
# is g or 0, which its rounding leaves alone; `down_proj` takes most of the factor back. `values`
# has queries of zero, so that softmax's weights before their division are 1.
CASES = {
    "whole": (2, {}, ATTENTION + FEED_FORWARD),
    "attention": (1, {"down_proj": 0}, ATTENTION),
    "feed_forward": (1, {"o_proj": 0, "gate_proj": 16384, "down_proj": 1 / 1024}, FEED_FORWARD),
    "values": (1, {"down_proj": 0, "q_proj": 0}, ["v_proj", "o_proj"]),
    "head": (1, {"o_proj": 0, "down_proj": 0}, ["lm_head"]),
}
BASES = {
    "dense": list(CASES),
    "nf4": ["whole", "attention", "feed_forward"],
    "hqq": ["whole", "attention", "feed_forward"],
}
# PyTorch's and oneDNN's kernels without AVX-512: the same values rounded, sums in another order.
OTHER_PROCESSOR = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}

data = load_file(FROM / "data.safetensors")
tokens, train_tokens = data["eval_tokens"], data["train_tokens"]


def first_adapter():
    """`lora_init_r8` and an adapter of the head, rounded to bf16: casting them changes nothing."""
    first = load_file(FROM / "lora_init_r8.safetensors")
    generator = torch.Generator().manual_seed(7)
    head = "base_model.model.lm_head.lora_"
    first[f"{head}A.weight"] = (2 * torch.rand(8, 64, generator=generator) - 1) / 8
    first[f"{head}B.weight"] = 0.02 * torch.randn(512, 8, generator=generator)
    return {name: values.bfloat16() for name, values in first.items()}


def checkpoint(case, folder):
    """Writes the case's model: tiny-trained in bf16, as models are published."""
    layers, factors, _ = CASES[case]
    weights = {
        name: values.bfloat16()
        for name, values in load_file(FROM / "tiny-trained/model.safetensors").items()
        if layers == 2 or ".layers.1." not in name
    }
    for name in weights:
        weights[name] *= next((factor for part, factor in factors.items() if part in name), 1)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((FROM / "tiny-trained/config.json").read_text())
    config.update(num_hidden_layers=layers, dtype="bfloat16")
    (folder / "config.json").write_text(json.dumps(config))


def base(kind, folder, compute, attention):
    """The base computing in `compute`. Codes are those of the bf16 weights in either."""
    if kind == "nf4":
        model = LlamaForCausalLM.from_pretrained(
            folder,
            dtype=torch.bfloat16,
            attn_implementation=attention,
            quantization_config=BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=compute,
            ),
            device_map="cpu",
        )
        for module in model.modules():
            if isinstance(module, bnb.nn.Linear4bit):
                module.weight.quant_state.dtype = compute
                continue
            for param in module.parameters(recurse=False):
                param.data = param.data.to(compute)
        return model
    model = LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, attn_implementation=attention
    ).to(compute)
    if kind == "hqq":
        for name, module in list(model.named_modules()):
            if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
                parent, leaf = name.rsplit(".", 1)
                config = BaseQuantizeConfig(nbits=4, group_size=64, axis=1)
                layer = HQQLinear(module, config, compute_dtype=compute, device="cpu")
                setattr(model.get_submodule(parent), leaf, layer)
    return model


def with_adapter(model, case, first):
    for param in model.parameters():
        param.requires_grad_(False)
    config = LoraConfig(
        r=8,
        lora_alpha=16,
        lora_dropout=0.0,
        bias="none",
        target_modules=CASES[case][2],
        task_type="CAUSAL_LM",
    )
    # PEFT's default makes a bf16 model's adapter f32.
    model = get_peft_model(model, config).train()
    trained = {
        name.replace(".default", ""): param
        for name, param in model.named_parameters()
        if param.requires_grad
    }
    with torch.no_grad():
        for name, param in trained.items():
            assert param.dtype == torch.float32, name
            param.copy_(first[name])
    return model, trained


def run(kind, case, compute, first, attention="sdpa"):
    """Logits, loss and gradients of the eval batch; of the whole model also 20 AdamW steps."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint(case, Path(folder))
        model, trained = with_adapter(base(kind, folder, compute, attention), case, first)

    def forward(batch):
        with torch.autocast("cpu", torch.bfloat16, enabled=compute == torch.bfloat16):
            return model(input_ids=batch, labels=batch)

    result = forward(tokens)
    result.loss.backward()
    assert result.logits.dtype == compute
    out = {"logits": result.logits.detach().contiguous(), "loss": result.loss.detach().reshape(1)}
    for name, param in trained.items():
        gradient = param.grad.to(compute)
        # Autocast's gradient is that of the cast weight: bf16.
        assert torch.equal(gradient.float(), param.grad), name
        out[f"grad.{name}"] = gradient
    if case == "whole":
        optimizer = torch.optim.AdamW(trained.values(), **ADAMW)
        losses, norms = [], []
        for batch in train_tokens:
            loss = forward(batch).loss
            optimizer.zero_grad()
            loss.backward()
            losses.append(loss.detach())
            norms.append(torch.nn.utils.get_total_norm([p.grad for p in trained.values()]))
            optimizer.step()
        out["curve.loss"], out["curve.norm"] = torch.stack(losses), torch.stack(norms)
        for name, param in trained.items():
            out[f"last.{name}"] = param.detach().clone()
    return out


def relative(found, expected):
    """`|found - expected| / |expected|` in the Euclidean norm."""
    found, expected = found.double(), expected.double()
    return ((found - expected).norm() / expected.norm()).item()


def together(out, prefix):
    return torch.cat([out[name].flatten().double() for name in sorted(out) if name.startswith(prefix)])


def distance(found, expected):
    """How far two runs are apart."""
    far = {
        "logits": relative(found["logits"], expected["logits"]),
        "loss": abs(found["loss"] - expected["loss"]).item(),
        "gradients": relative(together(found, "grad."), together(expected, "grad.")),
        "gradient": {
            name.removeprefix("grad."): relative(found[name], expected[name])
            for name in sorted(expected)
            if name.startswith("grad.")
        },
    }
    if "curve.loss" in expected:
        losses, norms = (found[f"curve.{key}"] - expected[f"curve.{key}"] for key in ("loss", "norm"))
        far["curve_loss"] = losses.abs().max().item()
        far["curve_norm"] = (norms / expected["curve.norm"]).abs().max().item()
        far["adapter"] = relative(together(found, "last."), together(expected, "last."))
    return far


def bf16_runs(first):
    return {
        kind: {case: run(kind, case, torch.bfloat16, first) for case in cases}
        for kind, cases in BASES.items()
    }


def save(runs):
    for kind, cases in runs.items():
        tensors = {f"{case}.{name}": values for case, out in cases.items() for name, values in out.items()}
        save_file(tensors, OUT / f"{kind}.safetensors")


def by_another_processor():
    """The bf16 runs of this script in a process of its own, by PyTorch without AVX-512."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, sys.argv[1], folder, "bf16 only"]
        subprocess.run(command, check=True, env={**os.environ, **OTHER_PROCESSOR})
        loaded = {kind: load_file(Path(folder) / f"bf16/{kind}.safetensors") for kind in BASES}
    return {
        kind: {
            case: {
                name.removeprefix(f"{case}."): values
                for name, values in loaded[kind].items()
                if name.startswith(f"{case}.")
            }
            for case in cases
        }
        for kind, cases in BASES.items()
    }


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    first = first_adapter()
    runs = bf16_runs(first)
    save(runs)
    if len(sys.argv) > 3:
        return
    save_file(first, OUT / "first_adapter.safetensors")
    others = by_another_processor()
    distances = {kind: {} for kind in runs}
    for kind, cases in runs.items():
        for case, out in cases.items():
            exact = run(kind, case, torch.float32, first)
            distances[kind][case] = {
                "f32": distance(out, exact),
                "eager_f32": distance(run(kind, case, torch.bfloat16, first, "eager"), exact),
                "avx2": distance(others[kind][case], out),
            }
    cases = {
        case: {"layers": layers, "factors": factors, "targets": targets}
        for case, (layers, factors, targets) in CASES.items()
    }
    summary = {"cases": cases, "adamw": ADAMW, "distances": distances}
    (OUT / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


main()
