"""What `host split` writes loads in transformers and PEFT: the base and the adapter have the logits of the model
they come from (PiSSA, dense), and after training by the host its held-out loss and logits."""

import os
import shutil
import subprocess
import sys

import torch
from peft import PeftModel, get_peft_model_state_dict
from runs import MODEL, OUT, HOST, base, data, expect_near, loss, metrics, train
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

LOGIT_TOLERANCE = 2e-5
TOKENS = data()["eval_tokens"]
STARTS = {
    "pissa": ["lora", "adapter.lora.init=pissa"],
    "pissa-nf4": ["nf4,lora", "adapter.lora.init=pissa", "adapter.lora.init_niter=0"],
    "loftq-nf4": ["nf4,lora", "adapter.lora.init=loftq", "adapter.lora.loftq_iter=3"],
    "loftq-nf4-plain": ["nf4,lora", "adapter.lora.init=loftq", "quantizer.nf4.double_quant=false"],
}


def split(name):
    """Runs `host split`; returns the base and the adapter."""
    out = OUT / f"split-{name}"
    shutil.rmtree(out, ignore_errors=True)
    plugins, *sets = STARTS[name]
    command = [HOST, "split", "--model", MODEL, "--plugins", plugins, "--out", out, "--quiet"]
    for assignment in sets:
        command += ["--set", assignment]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return out / "base", out / "adapter"


def loaded(path, adapter):
    """PEFT's model. In train mode: in eval mode bitsandbytes runs a bf16 product on some processors."""
    model = LlamaForCausalLM.from_pretrained(path, dtype=torch.float32, device_map="cpu")
    model = PeftModel.from_pretrained(model, adapter).train()
    ours, theirs = load_file(adapter / "adapter_model.safetensors"), get_peft_model_state_dict(model)
    # PEFT warns about keys it misses and ignores keys it does not know; here both fail.
    if set(ours) != set(theirs) or not all(torch.equal(ours[key], theirs[key]) for key in ours):
        sys.exit(f"{adapter}: PEFT has other tensors")
    return model


def distance(path, adapter, model):
    """The largest difference between the host's logits and PEFT's."""
    file = OUT / "logits.safetensors"
    subprocess.run([os.environ["ESPALIER_LOGITS"], path, adapter, file], check=True)
    ours = load_file(file)
    with torch.no_grad():
        return (model(input_ids=ours["tokens"]).logits - ours["logits"]).abs().max().item()


for name in STARTS:
    path, adapter = split(name)
    begun = distance(path, adapter, loaded(path, adapter))
    out = train(f"split-{name}-run", "", 20, arguments=["--model", path, "--adapter", adapter])
    model = loaded(path, out / "adapter")
    trained = distance(path, out / "adapter", model)
    print(f"{name}: logits differ by at most {begun:.1e} at the beginning, {trained:.1e} after 20 steps")
    if not max(begun, trained) <= LOGIT_TOLERANCE:
        sys.exit(1)
    expect_near(f"{name}: held-out loss", metrics(out)[1], loss(model, TOKENS))

path, adapter = OUT / "split-pissa/base", OUT / "split-pissa/adapter"
with torch.no_grad():
    original = base("f32")(input_ids=TOKENS).logits
    found = loaded(path, adapter)(input_ids=TOKENS).logits
worst = (original - found).abs().max().item()
print(f"pissa: PEFT's logits of base and adapter differ from the model's by at most {worst:.1e}")
if not worst <= LOGIT_TOLERANCE:
    sys.exit(1)
