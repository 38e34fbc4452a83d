"""Makes the golden numbers of the tiny Llamas with transformers and peft.

usage: make_llama.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its models, data and first adapter are the inputs.
OUT: receives OUT/llama with everything that is computed from them.
"""

import json
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

import bitsandbytes as bnb
import flat_dequantize  # noqa: F401  (repairs bitsandbytes' CPU decoding)
from compressed import save_compressed

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)

FROM = Path(sys.argv[1]) / "llama"
OUT = Path(sys.argv[2]) / "llama"
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
VARIANTS = {
    "llama3_orig8192": dict(
        rope_parameters=dict(
            rope_type="llama3",
            rope_theta=500000.0,
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=8192,
        ),
        max_position_embeddings=131072,
    ),
    "llama3_orig64": dict(
        rope_parameters=dict(
            rope_type="llama3",
            rope_theta=10000.0,
            factor=4.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
        max_position_embeddings=256,
    ),
    "linear2": dict(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)),
    "theta500k": dict(rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
    "tied": dict(tie_word_embeddings=True),
}

data = load_file(FROM / "data.safetensors")
tokens, train_tokens = data["eval_tokens"], data["train_tokens"]
summary = {}


def stored(tensor):
    return tensor.detach().float().contiguous().clone()


def load(name, attention="sdpa", **options):
    return LlamaForCausalLM.from_pretrained(
        FROM / name, dtype=torch.float32, attn_implementation=attention, **options
    )


def forward(name):
    """Logits, losses, hidden states, rope tables, attention, greedy tokens of a dense model."""
    model, out = load(name).eval(), {}
    with torch.no_grad():
        result = model(input_ids=tokens, labels=tokens, output_hidden_states=True)
        out["logits"], out["loss"] = stored(result.logits), stored(result.loss).reshape(1)
        for index, hidden in enumerate(result.hidden_states):
            out[f"hidden.{index}"] = stored(hidden)
        masked = model(input_ids=tokens, labels=data["eval_labels_masked"])
        out["loss_masked"] = stored(masked.loss).reshape(1)
        padded = model(
            input_ids=data["padded_tokens"],
            attention_mask=data["padded_attention_mask"],
            labels=data["padded_labels"],
        )
        out["padded.logits"] = stored(padded.logits)
        out["padded.loss"] = stored(padded.loss).reshape(1)
        cos, sin = model.model.rotary_emb(result.logits, torch.arange(48)[None])
        out["rope.cos"], out["rope.sin"] = stored(cos), stored(sin)
        out["rope.inv_freq"] = stored(model.model.rotary_emb.inv_freq)
        eager = load(name, "eager").eval()(input_ids=tokens, output_attentions=True)
        out["eager.logits"] = stored(eager.logits)
        out["eager.attn.0"] = stored(eager.attentions[0])
        out["gen_greedy"] = model.generate(
            tokens[:1, :8], max_new_tokens=24, do_sample=False, pad_token_id=2
        ).contiguous()
        half = load(name).to(torch.bfloat16).eval()
        out["bf16.logits"] = stored(half(input_ids=tokens).logits)
    save_file(out, OUT / f"forward_{name}.safetensors")
    summary[name] = {
        "loss": out["loss"].item(),
        "loss_masked": out["loss_masked"].item(),
        "padded_loss": out["padded.loss"].item(),
        "max_abs_sdpa_vs_eager": (out["logits"] - out["eager.logits"]).abs().max().item(),
        "logit_std": out["logits"].std().item(),
    }


def full_fine_tune(name):
    """Gradients of every parameter for one batch, and the loss of 20 AdamW steps."""
    model = load(name).train()
    model(input_ids=tokens, labels=tokens).loss.backward()
    gradients = {key: stored(param.grad) for key, param in model.named_parameters()}
    save_compressed(gradients, OUT / f"full_grads_{name}.safetensors.gz")
    model = load(name).train()
    optimizer = torch.optim.AdamW(model.parameters(), **{**ADAMW, "lr": 1e-3})
    curve = []
    for batch in train_tokens:
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
    summary[f"full_finetune_curve_{name}"] = {
        "lr": 1e-3,
        "betas": [0.9, 0.999],
        "eps": 1e-8,
        "wd": 0.01,
        "loss": curve,
    }


def variant(name, override):
    """The weights of tiny-trained under another config."""
    config = LlamaConfig.from_pretrained(FROM / "tiny-trained")
    for key, value in override.items():
        setattr(config, key, value)
    model = LlamaForCausalLM(config)
    weights = load_file(FROM / "tiny-trained/model.safetensors")
    if config.tie_word_embeddings:
        del weights["lm_head.weight"]
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    model.eval()
    with torch.no_grad():
        result = model(input_ids=tokens, labels=tokens)
    out = {
        "logits": stored(result.logits),
        "loss": stored(result.loss).reshape(1),
        "inv_freq": stored(model.model.rotary_emb.inv_freq),
    }
    save_file(out, OUT / f"variant_{name}.safetensors")
    text = json.dumps(config.to_dict(), indent=1, default=str)
    (OUT / f"variant_{name}.config.json").write_text(text)
    summary[f"variant_{name}"] = {"loss": result.loss.item(), "override": override}


def base(kind):
    if kind == "f32":
        return load("tiny-trained")
    if kind == "hqq":
        return hqq_base()
    return load(
        "tiny-trained",
        quantization_config=BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32,
        ),
        device_map="cpu",
    )


def hqq_base():
    """All linears of layers in 4 bits, groups of 64 along axis 1."""
    model = load("tiny-trained")
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
            parent, leaf = name.rsplit(".", 1)
            config = BaseQuantizeConfig(nbits=4, group_size=64, axis=1)
            layer = HQQLinear(module, config, compute_dtype=torch.float32, device="cpu")
            setattr(model.get_submodule(parent), leaf, layer)
    return model


def quantized_base():
    """Decoded weights and the forward pass of the NF4 base.

    In train mode: in eval mode bitsandbytes runs a bf16 product on some CPUs.
    """
    model = base("nf4").train()
    decoded = {
        f"{name}.weight": stored(
            bnb.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
        )
        for name, module in model.named_modules()
        if isinstance(module, bnb.nn.Linear4bit)
    }
    save_file(decoded, OUT / "base_dequant_nf4.safetensors")
    base_forward("nf4", model)
    base_forward("hqq", base("hqq").train())


def base_forward(kind, model):
    with torch.no_grad():
        result = model(input_ids=tokens, labels=tokens)
    out = {"logits": stored(result.logits), "loss": stored(result.loss).reshape(1)}
    save_file(out, OUT / f"base_forward_{kind}.safetensors")
    summary[f"base_forward_{kind}"] = result.loss.item()


def with_adapter(kind, **options):
    """A base with the committed first adapter, which is not zero anywhere."""
    model = base(kind)
    for param in model.parameters():
        param.requires_grad_(False)
    config = LoraConfig(
        r=8,
        lora_alpha=16,
        lora_dropout=0.0,
        bias="none",
        target_modules=TARGETS,
        task_type="CAUSAL_LM",
        **options,
    )
    model = get_peft_model(model, config, autocast_adapter_dtype=False).train()
    first = load_file(FROM / "lora_init_r8.safetensors")
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for name, param in trained.items():
            param.copy_(first[name.replace(".default", "")])
    return model, trained


def adapter(tag, kind, **options):
    """Gradients for one batch, 20 AdamW steps, and PEFT's own directories."""
    model, trained = with_adapter(kind, **options)
    result = model(input_ids=tokens, labels=tokens)
    result.loss.backward()
    key = {name: name.replace(".default", "") for name in trained}
    out = {f"grad.{key[name]}": stored(param.grad) for name, param in trained.items()}
    out["logits"], out["loss"] = stored(result.logits), stored(result.loss).reshape(1)
    save_file(out, OUT / f"grads_{tag}.safetensors")
    if tag == "lora_f32":
        model.save_pretrained(OUT / "adapter_init")
    optimizer = torch.optim.AdamW(trained.values(), **ADAMW)
    curve, norms = [], []
    for batch in train_tokens:
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        curve.append(loss.item())
        gradients = [param.grad for param in trained.values()]
        norms.append(torch.nn.utils.get_total_norm(gradients).item())
        optimizer.step()
    summary[f"curve_{tag}"] = {
        **ADAMW,
        "loss": curve,
        "grad_norm": norms,
        "clip": None,
        "schedule": "constant",
    }
    final = {key[name]: stored(param) for name, param in trained.items()}
    save_file(final, OUT / f"final_params_{tag}.safetensors")
    if tag in ("lora_f32", "lora_nf4"):
        model.save_pretrained(OUT / f"adapter_trained_{kind}")


def clipped_cosine():
    model, trained = with_adapter("f32")
    optimizer = torch.optim.AdamW(trained.values(), **ADAMW)
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, 4, 20)
    curve, rates, norms = [], [], []
    for batch in train_tokens:
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained.values(), 0.25).item())
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
        curve.append(loss.item())
    summary["curve_lora_f32_clip0.25_cosine_warmup4"] = {
        "loss": curve,
        "lr": rates,
        "grad_norm_before_clip": norms,
        "max_grad_norm": 0.25,
        **ADAMW,
    }


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for name in ("tiny", "tiny-trained"):
        forward(name)
    full_fine_tune("tiny-trained")
    for name, override in VARIANTS.items():
        variant(name, override)
    quantized_base()
    adapter("lora_f32", "f32")
    adapter("lora_nf4", "nf4")
    adapter("lora_hqq", "hqq")
    adapter("rslora_f32", "f32", use_rslora=True)
    clipped_cosine()
    (OUT / "summary.json").write_text(json.dumps(summary, indent=1))


main()
