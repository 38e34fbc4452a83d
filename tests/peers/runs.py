"""What the checks share: rows, runs of the host, the peers' loss on the same rows."""

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from safetensors.torch import load_file
from transformers import BitsAndBytesConfig, LlamaForCausalLM

import flat_dequantize  # noqa: F401  (repairs bitsandbytes' CPU decoding)

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

HOST, GOLDEN, OUT = (Path(argument).absolute() for argument in sys.argv[1:4])
MODEL = GOLDEN / "llama/tiny-trained"
# Two f32 programs that add in another order: seen inside the peers, 1.1e-5 in logits of 5.
LOSS_TOLERANCE = 2e-6


def write_rows(path, batches):
    """One pre-tokenized row a sequence, in order; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for row in batches.reshape(-1, batches.shape[-1]).tolist():
            file.write(json.dumps({"input_ids": row}) + "\n")
    return path


def data():
    return load_file(GOLDEN / "llama/data.safetensors")


def train(name, plugins, steps, sets=(), arguments=()):
    """Runs `host train` on the golden batches in f32; returns the output directory."""
    out = OUT / name
    shutil.rmtree(out, ignore_errors=True)
    tensors = data()
    rows = write_rows(OUT / "rows/train.jsonl", tensors["train_tokens"])
    held_out = write_rows(OUT / "rows/held-out.jsonl", tensors["eval_tokens"])
    settings = {
        "run.max_steps": steps,
        "run.eval_every": max(steps, 1),
        "run.epochs": 1,
        "model.compute": '"f32"',
        "data.eval_files": json.dumps([str(held_out)]),
        "data.batch_size": 4,
        "data.micro_batch": 4,
        "data.shuffle": "false",
        "optim.learning_rate": 2e-3,
        "optim.weight_decay": 0.01,
        "optim.clip_norm": 0.0,
        **dict(sets),
    }
    command = [HOST, "train", "--model", MODEL, "--data", rows, "--out", out, *arguments]
    if plugins:
        command += ["--plugins", plugins]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"host failed with {done.returncode}: {done.stderr[-2000:]}")
    return out


def metrics(out):
    """(losses of the steps, last held-out loss) of a run."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    held_out = [line["eval_loss"] for line in lines if "eval_loss" in line]
    return losses, held_out[-1]


def base(kind, path=MODEL):
    """The peers' model: `f32` or `nf4` (block 64, double quantization), in train mode.

    In eval mode bitsandbytes runs a bf16 product on some processors.
    """
    options = {}
    if kind == "nf4":
        options["device_map"] = "cpu"
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32,
        )
    return LlamaForCausalLM.from_pretrained(path, dtype=torch.float32, **options).train()


def loss(model, tokens):
    with torch.no_grad():
        return model(input_ids=tokens, labels=tokens).loss.item()


def expect_near(what, ours, theirs, tolerance=LOSS_TOLERANCE):
    difference = abs(ours - theirs)
    verdict = "ok" if difference <= tolerance else "DIFFERS"
    print(f"{what}: host {ours:.7f}, peer {theirs:.7f}, difference {difference:.1e} {verdict}")
    if difference > tolerance:
        sys.exit(1)
