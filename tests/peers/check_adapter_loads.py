"""The host's adapter loads in real PEFT, and the peers' held-out loss and logits are the host's."""

import os
import subprocess
import sys

from peft import PeftModel
from runs import MODEL, OUT, base, data, expect_near, loss, metrics, train
from safetensors.torch import load_file

LOGIT_TOLERANCE = 2e-5
TOKENS = data()["eval_tokens"]


def load(kind, out):
    """PEFT warns about keys it misses and ignores keys it does not know; here both fail."""
    model = PeftModel.from_pretrained(base(kind), out / "adapter")
    model.train()
    expected = {
        name.replace(".default", "")
        for name in model.state_dict()
        if "lora_" in name or "modules_to_save" in name
    }
    found = set(load_file(out / "adapter/adapter_model.safetensors"))
    if expected != found:
        sys.exit(f"keys differ: PEFT has {sorted(expected - found)}, we {sorted(found - expected)}")
    for name, tensor in load_file(out / "adapter/adapter_model.safetensors").items():
        if str(tensor.dtype) != "torch.float32":
            sys.exit(f"{name} is {tensor.dtype}, expected f32")
    return model


for kind, plugins in (("f32", "lora"), ("nf4", "nf4,lora")):
    for variant, sets in (("", {}), ("-rslora", {"adapter.lora.rslora": "true"})):
        settings = {"adapter.lora.rank": 8, "adapter.lora.alpha": 16, **sets}
        out = train(f"adapter-{kind}{variant}", plugins, 20, sets=settings)
        _, held_out = metrics(out)
        theirs = loss(load(kind, out), TOKENS)
        expect_near(f"held-out loss, {kind} base{variant}", held_out, theirs)

import torch

logits = OUT / "logits.safetensors"
adapter = OUT / "adapter-f32/adapter"
subprocess.run([os.environ["ESPALIER_LOGITS"], MODEL, adapter, logits], check=True)
ours = load_file(logits)
with torch.no_grad():
    theirs = load("f32", OUT / "adapter-f32")(input_ids=ours["tokens"]).logits
worst = (ours["logits"] - theirs).abs().max().item()
print(f"logits: largest difference {worst:.1e}")
if worst > LOGIT_TOLERANCE:
    sys.exit(1)
