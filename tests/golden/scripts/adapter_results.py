"""What an adapter of peft computes and learns on the tiny Llama: dense, in NF4, and with the values of HQQ's weights."""

import json

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

import bases
from bases import computed, stored

ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)


def base(llama, kind):
    return bases.base(llama / "tiny-trained", "hqq-decoded" if kind == "hqq" else kind)


def save_adapter(model, folder):
    """Saves it, with the same bytes each time and without the place of its base."""
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    saved = json.loads(path.read_text())
    saved["base_model_name_or_path"] = "llama/tiny-trained"
    for key in ("target_modules", "feedforward_modules"):
        if key in saved:
            saved[key] = sorted(saved[key])
    path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")


def trained(model):
    return {
        name.replace(".default", ""): param
        for name, param in model.named_parameters()
        if param.requires_grad
    }


def curve(model, rows, out):
    """Steps of AdamW on `rows`, and the trained params after them."""
    optimizer = torch.optim.AdamW(trained(model).values(), **ADAMW)
    losses, norms = [], []
    for batch in rows:
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained(model).values(), float("inf")))
        optimizer.step()
        losses.append(loss)
    out["curve.loss"], out["curve.norm"] = stored(torch.stack(losses)), stored(torch.stack(norms))
    for name, param in trained(model).items():
        out[f"last.{name}"] = stored(param)


def save_results(llama, folder, merged_sites):
    """Writes `expected_KIND` beside the adapter in `folder`/adapter; merged weights of the first layer's sites for f32."""
    data = load_file(llama / "data.safetensors")

    def adapted(kind):
        return PeftModel.from_pretrained(base(llama, kind), folder / "adapter", is_trainable=True).train()

    for kind in bases.KINDS:
        expected = {}
        curve(adapted(kind), data["train_tokens"], expected)
        model = adapted(kind)
        computed(model, data["eval_tokens"], trained(model), expected)
        if kind == "f32":
            merged = adapted(kind).merge_and_unload().state_dict()
            for site in merged_sites:
                name = f"model.layers.0.{site}.weight"
                expected[f"merged.{name}"] = stored(merged[name])
        save_file(expected, folder / f"expected_{kind}.safetensors")
