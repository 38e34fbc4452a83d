"""Makes a HiRA adapter for the tiny Llama with peft, and what the model computes and learns with it.

usage: make_hira.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its model, data and decoded NF4 weights are the inputs.
OUT: receives OUT/hira.
"""

import json
import shutil
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from peft import HiraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

FROM = Path(sys.argv[1]) / "llama"
OUT = Path(sys.argv[2]) / "hira"
TARGETS = ["q_proj", "v_proj", "up_proj", "down_proj"]
ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)

data = load_file(FROM / "data.safetensors")
tokens, train_tokens = data["eval_tokens"], data["train_tokens"]


def base(kind):
    """The dense model; `nf4` has the decoded weights of one that is packed."""
    model = LlamaForCausalLM.from_pretrained(FROM / "tiny-trained", dtype=torch.float32)
    if kind == "nf4":
        model.load_state_dict(load_file(FROM / "base_dequant_nf4.safetensors"), strict=False)
    return model


def stored(tensor):
    return tensor.detach().float().contiguous().clone()


def make_adapter():
    config = HiraConfig(task_type="CAUSAL_LM", r=4, target_modules=TARGETS)
    model = get_peft_model(base("f32"), config)
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for name, param in model.named_parameters():
            if "hira_" in name:
                param.copy_(0.3 * torch.randn(param.shape, generator=generator))
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


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    make_adapter()
    for kind in ("f32", "nf4"):
        out = {}
        model = adapted(kind)
        result = model(input_ids=tokens, labels=tokens)
        result.loss.backward()
        out["logits"], out["loss"] = stored(result.logits[:, ::24]), stored(result.loss).reshape(1)
        for name, param in trained(model).items():
            out[f"grad.{name}"] = stored(param.grad)
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
            out[f"last.{name}"] = stored(param)
        if kind == "f32":
            name = "model.layers.0.mlp.down_proj.weight"
            out[f"merged.{name}"] = stored(adapted(kind).merge_and_unload().state_dict()[name])
        save_file(out, OUT / f"expected_{kind}.safetensors")


main()
