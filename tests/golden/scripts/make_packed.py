"""Makes a tiny Llama, its packed checkpoints by bitsandbytes, and adapters merged into it by PEFT.

usage: make_packed.py OUT

OUT: receives OUT/packed.
"""

import shutil
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

import flat_dequantize  # noqa: F401  (repairs bitsandbytes' CPU decoding)

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

OUT = Path(sys.argv[1]) / "packed"
VARIANTS = {
    "nf4": dict(),
    "nf4-plain": dict(bnb_4bit_use_double_quant=False),
    "nf4-bf16": dict(bnb_4bit_quant_storage=torch.bfloat16),
    "nf4-f16": dict(bnb_4bit_quant_storage=torch.float16),
    "nf4-f32": dict(bnb_4bit_quant_storage=torch.float32, bnb_4bit_use_double_quant=False),
    "fp4": dict(bnb_4bit_quant_type="fp4"),
}
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "lora": dict(r=4, lora_alpha=12, target_modules=LINEARS),
    "rslora": dict(r=4, lora_alpha=6, use_rslora=True, target_modules=["v_proj", "down_proj"]),
    "tables": dict(r=3, lora_alpha=6, target_modules=["q_proj", "embed_tokens", "lm_head"]),
    "table": dict(r=3, lora_alpha=6, target_modules=["embed_tokens"]),
}


def dense(tied):
    """Weights large enough that every one of them matters to the logits."""
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=1,
        attention_bias=True,
        initializer_range=0.1,
    )
    model = LlamaForCausalLM(config).float()
    with torch.no_grad():
        for name, param in model.named_parameters():
            if name.endswith("bias"):
                param.normal_(std=0.1)
    return model


def save(model, name):
    """Weights and config, without what every model of transformers has beside them."""
    model.save_pretrained(OUT / name)
    (OUT / name / "generation_config.json").unlink()


def logits(model):
    with torch.no_grad():
        return model.train()(input_ids=TOKENS).logits.contiguous()


shutil.rmtree(OUT, ignore_errors=True)
OUT.mkdir(parents=True)
TOKENS = torch.randint(2, 64, (2, 16), generator=torch.Generator().manual_seed(5))
made = {"tokens": TOKENS}
for name, tied in (("dense", False), ("tied", True)):
    model = dense(tied)
    save(model, name)
    made[name] = logits(model)
for name, options in VARIANTS.items():
    settings = dict(bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    config = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32, **{**settings, **options}
    )
    model = LlamaForCausalLM.from_pretrained(
        OUT / "dense", dtype=torch.float32, device_map="cpu", quantization_config=config
    )
    save(model, name)
    made[name] = logits(model)
merged = {}
for base, names in (("dense", ("lora", "rslora", "tables")), ("tied", ("tables", "table"))):
    for name in names:
        torch.manual_seed(7)
        config = LoraConfig(bias="none", task_type="CAUSAL_LM", lora_dropout=0.0, **ADAPTERS[name])
        model = get_peft_model(LlamaForCausalLM.from_pretrained(OUT / base, dtype=torch.float32), config)
        with torch.no_grad():
            for key, param in model.named_parameters():
                if "lora_" in key:
                    param.normal_(std=0.1)
        folder = OUT / f"{base}-{name}"
        model.save_pretrained(folder, save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)
        path = folder / "adapter_config.json"
        path.write_text(path.read_text().replace(str(OUT / base), f"packed/{base}"))
        made[f"{base}-{name}"] = logits(model)
        if base == "dense":
            before = dense(False).state_dict()
            for key, value in model.merge_and_unload().state_dict().items():
                if not torch.equal(value, before[key]):
                    merged[f"{name}.{key}"] = value.contiguous().clone()
save_file(made, OUT / "logits.safetensors")
save_file(merged, OUT / "merged.safetensors")
