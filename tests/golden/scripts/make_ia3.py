"""Makes an IA3 adapter for the tiny Llama with peft, and what the model computes and learns with it, on a
dense base, on NF4, and on the values of HQQ's weights: peft has no IA3 for HQQ's layers.

usage: make_ia3.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its model and data are the inputs.
OUT: receives OUT/ia3.
"""

import json
import shutil
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from peft import IA3Config, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

import bases
from bases import computed, stored

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

FROM = Path(sys.argv[1]) / "llama"
OUT = Path(sys.argv[2]) / "ia3"
ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)

data = load_file(FROM / "data.safetensors")
tokens, train_tokens = data["eval_tokens"], data["train_tokens"]


def base(kind):
    return bases.base(FROM / "tiny-trained", "hqq-decoded" if kind == "hqq" else kind)


def make_adapter():
    """Factors around one: k_proj and v_proj scale what they give, down_proj what it takes."""
    config = IA3Config(
        task_type="CAUSAL_LM",
        target_modules=["k_proj", "v_proj", "down_proj"],
        feedforward_modules=["down_proj"],
    )
    model = get_peft_model(base("f32"), config)
    torch.manual_seed(7)
    with torch.no_grad():
        for name, param in model.named_parameters():
            if "ia3_l" in name:
                param.copy_(1 + 0.2 * torch.randn_like(param))
    model.save_pretrained(OUT / "adapter")
    (OUT / "adapter/README.md").unlink(missing_ok=True)
    path = OUT / "adapter/adapter_config.json"
    saved = json.loads(path.read_text())
    saved["base_model_name_or_path"] = "llama/tiny-trained"
    saved["target_modules"] = sorted(saved["target_modules"])
    path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")


def adapted(kind):
    return PeftModel.from_pretrained(base(kind), OUT / "adapter", is_trainable=True).train()


def trained(model):
    return {
        name.replace(".default", ""): param
        for name, param in model.named_parameters()
        if param.requires_grad
    }


def curve(kind, out):
    model = adapted(kind)
    optimizer = torch.optim.AdamW(trained(model).values(), **ADAMW)
    losses, norms = [], []
    for batch in train_tokens:
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained(model).values(), float("inf")))
        optimizer.step()
        losses.append(loss)
    out["curve.loss"], out["curve.norm"] = stored(torch.stack(losses)), stored(torch.stack(norms))
    for name, param in trained(model).items():
        out[f"last.{name}"] = stored(param)


shutil.rmtree(OUT, ignore_errors=True)
OUT.mkdir(parents=True)
make_adapter()
for kind in bases.KINDS:
    expected = {}
    curve(kind, expected)
    model = adapted(kind)
    computed(model, tokens, trained(model), expected)
    if kind == "f32":
        merged = adapted(kind).merge_and_unload().state_dict()
        for weight in ("self_attn.k_proj", "mlp.down_proj"):
            name = f"model.layers.0.{weight}.weight"
            expected[f"merged.{name}"] = stored(merged[name])
    save_file(expected, OUT / f"expected_{kind}.safetensors")
