"""Makes a VeRA adapter for the tiny Llama with peft, and what the model computes and learns with it, on a dense
base, on NF4, and on the values of HQQ's weights. The projections are those that peft draws from the key.

usage: make_vera.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its model and data are the inputs.
OUT: receives OUT/vera: `adapter` with the projections and `adapter_unsaved` without them.
"""

import json
import shutil
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from peft import PeftModel, VeraConfig, get_peft_model
from safetensors.torch import load_file, save_file

import bases
from bases import computed, stored

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

FROM = Path(sys.argv[1]) / "llama"
OUT = Path(sys.argv[2]) / "vera"
ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
TARGETS = ["q_proj", "v_proj", "down_proj"]

data = load_file(FROM / "data.safetensors")
tokens, train_tokens = data["eval_tokens"], data["train_tokens"]


def base(kind):
    return bases.base(FROM / "tiny-trained", "hqq-decoded" if kind == "hqq" else kind)


def save(model, name):
    model.save_pretrained(OUT / name)
    (OUT / name / "README.md").unlink(missing_ok=True)
    path = OUT / name / "adapter_config.json"
    saved = json.loads(path.read_text())
    saved["base_model_name_or_path"] = "llama/tiny-trained"
    saved["target_modules"] = sorted(saved["target_modules"])
    path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")


def make_adapters():
    """Sites of three shapes, which take other parts of the projections; factors away from where they begin."""
    for name, save_projection in [("adapter", True), ("adapter_unsaved", False)]:
        config = VeraConfig(
            task_type="CAUSAL_LM",
            r=8,
            target_modules=TARGETS,
            projection_prng_key=5,
            save_projection=save_projection,
            d_initial=0.2,
        )
        model = get_peft_model(base("f32"), config)
        torch.manual_seed(7)
        with torch.no_grad():
            for key, param in model.named_parameters():
                if "vera_lambda" in key:
                    param.copy_(param + 0.3 * torch.randn_like(param))
        save(model, name)


def adapted(kind):
    return PeftModel.from_pretrained(base(kind), OUT / "adapter", is_trainable=True).train()


def trained(model):
    found = {
        name.replace(".default", ""): param
        for name, param in model.named_parameters()
        if param.requires_grad
    }
    assert len(found) == 12, list(found)
    return found


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
make_adapters()
for kind in bases.KINDS:
    expected = {}
    curve(kind, expected)
    model = adapted(kind)
    computed(model, tokens, trained(model), expected)
    if kind == "f32":
        merged = adapted(kind).merge_and_unload().state_dict()
        for weight in ("self_attn.v_proj", "mlp.down_proj"):
            name = f"model.layers.0.{weight}.weight"
            expected[f"merged.{name}"] = stored(merged[name])
    save_file(expected, OUT / f"expected_{kind}.safetensors")
