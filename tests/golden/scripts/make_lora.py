"""Makes LoRA adapters for the tiny Llama with peft: one with ranks and alphas of single sites, one that
LoRA+ trains, one of rsLoRA, and two with modules that are trained whole; and what the model learns with
them.

usage: make_lora.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its model and data are the inputs.
OUT: receives OUT/lora.
"""

import json
import shutil
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import load_file, save_file

import bases
from bases import computed, stored

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

LLAMA, OUT = Path(sys.argv[1]) / "llama", Path(sys.argv[2]) / "lora"
ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-8)
DECAY = 0.01
# Of the files of several bases.
SMALL = dict(r=2, lora_alpha=4)
CONFIGS = {
    "patterns": dict(
        target_modules=["q_proj", "v_proj", "down_proj"],
        # Two match `layers.1.self_attn.q_proj`, of which the first holds.
        rank_pattern={"layers.1.self_attn.*": 2, "q_proj": 4},
        alpha_pattern={"0.mlp.down_proj": 4, "v_proj": 3},
    ),
    "plus": dict(**SMALL, target_modules=["q_proj", "down_proj", "embed_tokens"]),
    "rs": dict(**SMALL, target_modules=["q_proj", "down_proj"], use_rslora=True),
    "norms": dict(**SMALL, target_modules=["q_proj"], modules_to_save=["input_layernorm", "model.norm"]),
    "whole": dict(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"]),
}

# Those that are compared on packed bases, too.
ON_PACKED = ("plus", "rs", "norms")

data = load_file(LLAMA / "data.safetensors")
tokens, train_tokens = data["eval_tokens"], data["train_tokens"]


def base(kind="f32"):
    return bases.base(LLAMA / "tiny-trained", kind)


def trained(model):
    named = model.named_parameters()
    return {name: param for name, param in named if param.requires_grad}


def key(name):
    return name.replace(".modules_to_save", "").replace(".default", "")


def make_adapter(name):
    """A first adapter that is zero nowhere."""
    sizes = dict(r=8, lora_alpha=16)
    config = LoraConfig(bias="none", task_type="CAUSAL_LM", **(sizes | CONFIGS[name]))
    torch.manual_seed(3)
    model = get_peft_model(base(), config)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for param_name, param in trained(model).items():
            noise = 0.05 * torch.randn(param.shape, generator=generator)
            param.copy_(param + noise if "modules_to_save" in param_name else noise)
    folder = OUT / name / "adapter"
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    saved = json.loads(path.read_text())
    saved["base_model_name_or_path"] = "llama/tiny-trained"
    saved["target_modules"] = sorted(saved["target_modules"])
    path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")


def adapted(name, kind="f32"):
    return PeftModel.from_pretrained(base(kind), OUT / name / "adapter", is_trainable=True).train()


def curve(name, kind, out):
    model = adapted(name, kind)
    params = trained(model)
    if name == "plus":
        plus = dict(loraplus_lr_ratio=4, loraplus_weight_decay=DECAY, loraplus_lr_embedding=1e-4)
        optimizer = create_loraplus_optimizer(model, torch.optim.AdamW, **plus, **ADAMW)
        assert [group["lr"] for group in optimizer.param_groups] == [2e-3, 1e-4, 8e-3, 8e-3]
    else:
        optimizer = torch.optim.AdamW(params.values(), weight_decay=DECAY, **ADAMW)
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


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    for name in CONFIGS:
        make_adapter(name)
        for kind in bases.KINDS if name in ON_PACKED else ("f32",):
            out = {}
            if name == "patterns":
                merged = adapted(name).merge_and_unload().state_dict()
                for weight in ("model.layers.1.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight"):
                    out[f"merged.{weight}"] = stored(merged[weight])
            if name in ON_PACKED:
                model = adapted(name, kind)
                params = {key(name): param for name, param in trained(model).items()}
                computed(model, tokens, params, out)
            curve(name, kind, out)
            save_file(out, OUT / name / f"expected_{kind}.safetensors")


main()
