"""Makes an IA3 adapter for the tiny Llama with peft, and what the model computes and learns with it.

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
from transformers import LlamaForCausalLM

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

FROM = Path(sys.argv[1]) / "llama"
OUT = Path(sys.argv[2]) / "ia3"
ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
STEPS = 10

data = load_file(FROM / "data.safetensors")
tokens, train_tokens = data["eval_tokens"], data["train_tokens"]


def base():
    return LlamaForCausalLM.from_pretrained(FROM / "tiny-trained", dtype=torch.float32)


def stored(tensor):
    return tensor.detach().float().contiguous().clone()


def make_adapter():
    """Factors around one: k_proj and v_proj scale what they give, down_proj what it takes."""
    config = IA3Config(
        task_type="CAUSAL_LM",
        target_modules=["k_proj", "v_proj", "down_proj"],
        feedforward_modules=["down_proj"],
    )
    model = get_peft_model(base(), config)
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
    path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")


def adapted():
    return PeftModel.from_pretrained(base(), OUT / "adapter", is_trainable=True).train()


def trained(model):
    return {
        name.replace(".default", ""): param
        for name, param in model.named_parameters()
        if param.requires_grad
    }


shutil.rmtree(OUT, ignore_errors=True)
OUT.mkdir(parents=True)
make_adapter()
expected = {}
model = adapted()
result = model(input_ids=tokens, labels=tokens)
result.loss.backward()
expected["logits"], expected["loss"] = stored(result.logits), stored(result.loss).reshape(1)
for name, param in trained(model).items():
    expected[f"grad.{name}"] = stored(param.grad)
model = adapted()
optimizer = torch.optim.AdamW(trained(model).values(), **ADAMW)
losses, norms = [], []
for batch in train_tokens[:STEPS]:
    loss = model(input_ids=batch, labels=batch).loss
    optimizer.zero_grad()
    loss.backward()
    norms.append(torch.nn.utils.clip_grad_norm_(trained(model).values(), float("inf")))
    optimizer.step()
    losses.append(loss)
expected["curve.loss"], expected["curve.norm"] = stored(torch.stack(losses)), stored(torch.stack(norms))
for name, param in trained(model).items():
    expected[f"last.{name}"] = stored(param)
save_file(expected, OUT / "expected.safetensors")
