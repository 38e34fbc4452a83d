"""The inputs of `cargo xtask peers speed`, once: a model of random weights, rows of ids, a fresh adapter.

usage: speed_inputs.py OUT TOKENIZER --preset NAME --rows N --sequence N [--prompt N]

OUT: receives model/ (bf16, as models are published), adapter/ (PEFT's) and rows.jsonl. The first two stay if there.
--prompt: tokens at the start of each row whose label is -100, which no loss counts.
TOKENIZER: a folder with a tokenizer, which the host expects beside a model. The rows are ids already.
Prints a line of JSON: today's date and the versions of Python and of the peers.
"""

import argparse
import datetime
import json
import platform
import shutil
from importlib.metadata import version
from pathlib import Path

import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

PRESETS = {
    "124m": dict(
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
        intermediate_size=2048,
        vocab_size=32000,
    ),
    "tiny": dict(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=192,
        vocab_size=512,
    ),
}
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PACKAGES = ["torch", "transformers", "peft", "bitsandbytes", "hqq"]
# Both sides begin every run from these numbers.
MODEL_SEED, ADAPTER_SEED, ROWS_SEED = 1, 2, 3
# Ids of the special tokens, which no row contains.
SPECIAL_TOKENS = 3


def model(folder, tokenizer, preset):
    """Weights as transformers initialises them, rounded to bf16."""
    torch.manual_seed(MODEL_SEED)
    config = LlamaConfig(
        **PRESETS[preset],
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    LlamaForCausalLM(config).bfloat16().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)


def rows(path, preset, count, sequence, prompt):
    """Ids drawn with probabilities proportional to 1 / rank, so that there is something to learn."""
    vocabulary = PRESETS[preset]["vocab_size"] - SPECIAL_TOKENS
    generator = torch.Generator().manual_seed(ROWS_SEED)
    chances = 1 / torch.arange(1, vocabulary + 1, dtype=torch.float64)
    ids = SPECIAL_TOKENS + torch.multinomial(chances, count * sequence, True, generator=generator)
    with path.open("w") as file:
        for row in ids.view(count, sequence).tolist():
            labels = {"labels": [-100] * prompt + row[prompt:]} if prompt else {}
            file.write(json.dumps({"input_ids": row} | labels) + "\n")


def adapter(folder, base):
    """PEFT's fresh adapter: A random, B zero. Rounded to bf16, so that a cast changes nothing."""
    torch.manual_seed(ADAPTER_SEED)
    config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.0,
        bias="none",
        target_modules=LINEARS,
        task_type="CAUSAL_LM",
    )
    get_peft_model(LlamaForCausalLM.from_pretrained(base), config).save_pretrained(folder)
    weights = folder / "adapter_model.safetensors"
    rounded = {name: values.bfloat16().float() for name, values in load_file(weights).items()}
    save_file(rounded, weights, metadata={"format": "pt"})


def once(path, make):
    """Calls `make` with a path beside `path` and renames it, where `path` is missing."""
    if path.exists():
        return
    partial = path.with_name(path.name + ".partial")
    if partial.is_dir():
        shutil.rmtree(partial)
    make(partial)
    partial.rename(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--preset", choices=list(PRESETS), required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--prompt", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    once(given.out / "model", lambda path: model(path, given.tokenizer, given.preset))
    once(given.out / "adapter", lambda path: adapter(path, given.out / "model"))
    rows(given.out / "rows.jsonl", given.preset, given.rows, given.sequence, given.prompt)
    versions = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    print(json.dumps({"date": datetime.date.today().isoformat(), "versions": versions}))


main()
