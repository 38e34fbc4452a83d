"""Adapters other than plain LoRA, of which `hira` is a third party's: what the host trains with them
loads in real PEFT, on a dense and on an NF4 base, with the host's held-out loss and logits; what PEFT
writes comes back bit for bit, and trains on as in PEFT."""

import json
import os
import shutil
import subprocess
import sys

import torch
from peft import HiraConfig, IA3Config, LoraConfig, PeftModel, VeraConfig, get_peft_model, get_peft_model_state_dict
from runs import GOLDEN, MODEL, OUT, base, data, expect_near, loss, metrics, train
from safetensors.torch import load_file

# Where `--plugins hira` finds its library, for the host and for the program that prints logits.
os.environ["HOST_PLUGIN_PATH"] = os.environ["ESPALIER_SAMPLES"]
LOGIT_TOLERANCE = 2e-5
CURVE_TOLERANCE = 1e-5
TOKENS = data()["eval_tokens"]
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
OPTIONS = {
    "dora": {"rank": 8, "alpha": 16},
    "dora-rslora": {"rank": 8, "alpha": 16, "rslora": "true", "targets": '["v_proj", "down_proj"]'},
    "dora-patterns": {"rank": 8, "rank_pattern": "{q_proj = 4}", "alpha_pattern": "{v_proj = 3}"},
    "lora-patterns": {"rank": 8, "rank_pattern": "{q_proj = 4}", "alpha_pattern": "{v_proj = 3}"},
    "lora-whole": {"rank": 8, "targets": '["q_proj"]', "modules_to_save": '["embed_tokens", "lm_head"]'},
    "lora-norms": {"rank": 8, "targets": '["q_proj"]', "modules_to_save": '["norm"]'},
    "dora-norms": {"rank": 8, "modules_to_save": '["post_attention_layernorm", "model.norm"]'},
    "ia3": {"targets": '"all-linear"'},
    "vera": {"rank": 16, "targets": '["q_proj", "v_proj", "down_proj"]'},
    "hira": {"rank": 8},
}
BY_PEFT = {
    "dora": LoraConfig(r=4, lora_alpha=8, use_dora=True, target_modules=TARGETS, task_type="CAUSAL_LM"),
    "dora-rslora": LoraConfig(
        r=8, lora_alpha=8, use_dora=True, use_rslora=True, target_modules=["up_proj"], task_type="CAUSAL_LM"
    ),
    "lora-patterns": LoraConfig(
        r=8, target_modules=TARGETS, rank_pattern={"0.mlp.*": 2}, alpha_pattern={"up_proj": 3}, task_type="CAUSAL_LM"
    ),
    "lora-whole": LoraConfig(r=4, target_modules=["up_proj"], modules_to_save=["lm_head"], task_type="CAUSAL_LM"),
    "lora-norms": LoraConfig(
        r=4, target_modules=["up_proj"], modules_to_save=["input_layernorm", "model.norm"], task_type="CAUSAL_LM"
    ),
    "ia3": IA3Config(
        target_modules=["k_proj", "up_proj"], feedforward_modules=["up_proj"], task_type="CAUSAL_LM"
    ),
    "vera": VeraConfig(r=4, target_modules=["k_proj", "down_proj"], projection_prng_key=3, task_type="CAUSAL_LM"),
    "hira": HiraConfig(r=4, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM"),
}
SETS = {"target_modules", "feedforward_modules"}
FREE = {"auto_mapping", "base_model_name_or_path", "inference_mode", "peft_version", "revision"}


def weights(adapter):
    return load_file(adapter / "adapter_model.safetensors")


def settings(adapter):
    return json.loads((adapter / "adapter_config.json").read_text())


def fail_unless_equal(what, ours, theirs):
    """PEFT warns about keys it misses and ignores keys it does not know; here both fail."""
    if set(ours) != set(theirs):
        sys.exit(f"{what}: keys differ: {sorted(set(ours) ^ set(theirs))}")
    for key, tensor in theirs.items():
        if ours[key].dtype != tensor.dtype or not torch.equal(ours[key], tensor):
            sys.exit(f"{what}: {key} differs")


def check_export(name, kind):
    """The host trains from its own beginning; PEFT loads the result."""
    plugin = name.split("-")[0]
    quantizer = [kind] if kind == "nf4" else []
    sets = {f"adapter.{plugin}.{key}": value for key, value in OPTIONS[name].items()}
    out = train(f"other-{name}-{kind}", ",".join([*quantizer, plugin]), 20, sets=sets)
    adapter = out / "adapter"
    model = PeftModel.from_pretrained(base(kind), adapter).train()
    what = f"{name}, {kind} base"
    fail_unless_equal(what, weights(adapter), get_peft_model_state_dict(model))
    _, held_out = metrics(out)
    expect_near(f"{what}: held-out loss", held_out, loss(model, TOKENS))
    file = OUT / "logits.safetensors"
    subprocess.run([os.environ["ESPALIER_LOGITS"], MODEL, adapter, file, *quantizer], check=True)
    ours = load_file(file)
    with torch.no_grad():
        theirs = model(input_ids=ours["tokens"]).logits
        with model.disable_adapter():
            bare = model(input_ids=ours["tokens"]).logits
    worst, moved = ((theirs - other).abs().max().item() for other in (ours["logits"], bare))
    print(f"{what}: {len(weights(adapter))} tensors, logits differ by at most {worst:.1e}; "
          f"the adapter moved them by up to {moved:.1e}")
    if not worst <= LOGIT_TOLERANCE or moved < 1000 * LOGIT_TOLERANCE:
        sys.exit(1)


def by_peft(name):
    """An adapter that PEFT makes and writes, moved from its beginning by noise."""
    torch.manual_seed(3)
    model = get_peft_model(base("f32"), BY_PEFT[name])
    with torch.no_grad():
        for param in model.parameters():
            if param.requires_grad:
                param.add_(0.02 * torch.randn_like(param))
    path = OUT / "peft" / f"other-{name}"
    shutil.rmtree(path, ignore_errors=True)
    model.save_pretrained(path)
    return path


def check_start(name, path):
    """PEFT's files, and no step: they come back, and no key of their settings differs."""
    out = train(f"other-start-{name}", name.split("-")[0], 0, arguments=["--adapter", path])
    fail_unless_equal(f"{name} from PEFT", weights(out / "adapter"), weights(path))
    before, after = settings(path), settings(out / "adapter")
    for key, value in after.items():
        was = sorted(before[key]) if key in SETS else before.get(key)
        came = sorted(value) if key in SETS else value
        if key not in FREE and came != was:
            sys.exit(f"{name} from PEFT: {key} was {was}, came back as {came}")
    print(f"{name} from PEFT: {len(weights(path))} tensors came back unchanged")


def check_curve(name, kind):
    """PEFT's first adapter, trained on as the golden steps of PEFT."""
    plugins = ",".join([*([kind] if kind == "nf4" else []), name])
    first = GOLDEN / name / "adapter"
    out = train(f"other-curve-{name}-{kind}", plugins, 20, arguments=["--adapter", first])
    losses, _ = metrics(out)
    curve = load_file(GOLDEN / name / f"expected_{kind}.safetensors")["curve.loss"].tolist()
    assert len(losses) == len(curve) == 20
    worst = max(abs(ours - theirs) for ours, theirs in zip(losses, curve))
    print(f"{name}, {kind} base, 20 steps from PEFT's adapter: losses differ by at most {worst:.1e}")
    if not worst <= CURVE_TOLERANCE:
        sys.exit(1)


for kind in ("f32", "nf4"):
    for name in OPTIONS:
        check_export(name, kind)
    for name in ("dora", "ia3", "vera", "hira"):
        check_curve(name, kind)
for name in BY_PEFT:
    check_start(name, by_peft(name))
