"""Makes the golden numbers of the families beside Llama with transformers and peft.

usage: make_families.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its models, rows and first adapters are the inputs.
OUT: receives OUT/families with everything that is computed from them.

Attention is eager: softmax over an explicit mask, the window's definition in transformers. Rows are
padded on the right, as transformers takes them; logits are stored for the real tokens only.
"""

import json
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import flat_dequantize  # noqa: F401  (repairs bitsandbytes' CPU decoding)
import torch
import transformers
from bitsandbytes import functional
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)

FROM = Path(sys.argv[1]) / "families"
OUT = Path(sys.argv[2]) / "families"
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
UNGATED = ["q_proj", "k_proj", "v_proj", "o_proj", "c_fc", "c_proj"]
FUSED = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
# Those that are also trained with LoRA over a base of 4 bits.
PACKED = ("gemma2", "phi3", "gemma3", "starcoder2")
ADAMW = dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
STEPS = 20

data = load_file(FROM / "data.safetensors")


def stored(tensor):
    return tensor.detach().float().contiguous().clone()


def load(name):
    return AutoModelForCausalLM.from_pretrained(
        FROM / name, dtype=torch.float32, attn_implementation="eager"
    ).train()


def padded(model, tokens, lengths):
    """A batch as transformers takes it, the padding neither seen nor trained.

    A smaller vocabulary repeats its tokens.
    """
    tokens = tokens % model.config.vocab_size
    mask = torch.arange(tokens.shape[1]) < lengths[:, None]
    labels = torch.where(mask, tokens, -100)
    return dict(input_ids=tokens, attention_mask=mask.long(), labels=labels)


def eval_batch(model):
    return padded(model, data["eval_tokens"], data["eval_lengths"])


def train_batches(model):
    tokens, lengths = data["train_tokens"], data["train_lengths"]
    return [padded(model, *pair) for pair in zip(tokens.split(4), lengths.split(4), strict=True)]


def forward(model, out, prefix=""):
    """Logits of the real tokens, one row after the other, the loss, and its gradients."""
    batch = eval_batch(model)
    result = model(**batch)
    real = batch["attention_mask"].bool()
    out[f"{prefix}logits"] = stored(result.logits[real])
    out[f"{prefix}loss"] = stored(result.loss).reshape(1)
    result.loss.backward()


def curve(model, trained, rate):
    optimizer = torch.optim.AdamW(trained, lr=rate, **ADAMW)
    losses, norms = [], []
    for batch in train_batches(model):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in trained]).item())
        optimizer.step()
    assert len(losses) == STEPS
    return torch.tensor(losses), torch.tensor(norms)


def full(name, out):
    """Small gradients and those of the last layer's attention whole; of all the norm."""
    model = load(name)
    forward(model, out)
    for key, param in model.named_parameters():
        out[f"grad_norm.{key}"] = stored(param.grad.double().norm()).reshape(1)
        if param.dim() == 1 or ("layers.1.self_attn" in key and "o_proj" not in key):
            out[f"grad.{key}"] = stored(param.grad)
    model = load(name)
    out["curve"], out["norms"] = curve(model, list(model.parameters()), 1e-3)


def adapted(model, name):
    """The model with the golden first adapter, and the adapter's params."""
    targets = {"phi3": FUSED, "starcoder2": UNGATED}.get(name, TARGETS)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM")
    model = get_peft_model(model, config, autocast_adapter_dtype=False).train()
    first = load_file(FROM / name / "lora_init.safetensors")
    trained = {n.replace(".default", ""): p for n, p in model.named_parameters() if p.requires_grad}
    assert trained.keys() == first.keys()
    with torch.no_grad():
        for key, param in trained.items():
            param.copy_(first[key])
    return model, trained


def lora(name, out):
    model, trained = adapted(load(name), name)
    forward(model, out, "lora.")
    for key, param in trained.items():
        out[f"lora.grad.{key}"] = stored(param.grad)
    out["lora.curve"], out["lora.norms"] = curve(model, list(trained.values()), 2e-3)
    final = {key: stored(param) for key, param in trained.items()}
    save_file(final, OUT / name / "lora_final.safetensors")


def packed_lora(name, out):
    """LoRA over NF4: linears but the head have the values that bitsandbytes packs and unpacks."""
    model = load(name)
    with torch.no_grad():
        for key, module in model.named_modules():
            if isinstance(module, torch.nn.Linear) and key != "lm_head":
                packed, state = functional.quantize_4bit(module.weight.data, quant_type="nf4")
                module.weight.copy_(functional.dequantize_4bit(packed, state))
    model, trained = adapted(model, name)
    out["nf4.curve"], out["nf4.norms"] = curve(model, list(trained.values()), 2e-3)


def check_older_config(name):
    """The config in transformers 4's words is the same to transformers 5."""
    old = json.loads((FROM / name / "config_4.json").read_text())
    kind = type(AutoConfig.from_pretrained(FROM / name))
    new = json.loads((FROM / name / "config.json").read_text())
    old, new = kind.from_dict(old).to_dict(), kind.from_dict(new).to_dict()
    ignored = {"transformers_version", "dtype", "torch_dtype", "type"}
    different = [k for k in new if k not in ignored and old.get(k) != new[k]]
    assert not different, (name, different)


def main():
    for name in ("mistral", "qwen2", "qwen3", "granite", *PACKED):
        (OUT / name).mkdir(parents=True, exist_ok=True)
        check_older_config(name)
        out = {}
        full(name, out)
        lora(name, out)
        if name in PACKED:
            packed_lora(name, out)
        save_file(out, OUT / name / "expected.safetensors")


main()
