"""One answer by transformers, timed, for `cargo xtask peers generate`.

usage: generate_peer.py INPUTS --method METHOD --dtype DTYPE --threads N --tokens N --prompt TEXT

INPUTS: what speed_inputs.py made. Greedy; the answer has N tokens. Prints a line of JSON: tokens and seconds from the
first token of the answer to its last, bytes of the weights that a token reads, and bytes a second that torch reads.
"""

import argparse
import json
import logging
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import torch
import transformers
from transformers import AutoTokenizer, BitsAndBytesConfig, LlamaForCausalLM, StoppingCriteria

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
# Numbers that are summed to measure how fast memory is read: 1 GB of f32.
READ = 1 << 28


class Clock(StoppingCriteria):
    """Notes when each token of the answer is there."""

    def __init__(self):
        self.times = []

    def __call__(self, ids, scores, **_):
        self.times.append(time.perf_counter())
        return torch.zeros(ids.shape[0], dtype=torch.bool)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--method", choices=["nf4", "dense"], required=True)
    parser.add_argument("--dtype", choices=list(DTYPES), required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--prompt", required=True)
    return parser.parse_args()


def load(given):
    dtype = DTYPES[given.dtype]
    packed = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    options = {"quantization_config": packed, "device_map": "cpu"} if given.method == "nf4" else {}
    return LlamaForCausalLM.from_pretrained(
        given.inputs / "model", dtype=dtype, attn_implementation="sdpa", **options
    ).eval()


def weight_bytes(model):
    """Bytes of all weights but the token table, of which a token reads one row."""
    bytes = 0
    for name, param in model.named_parameters():
        if "embed_tokens" in name:
            continue
        bytes += param.numel() * param.element_size()
        state = getattr(param, "quant_state", None)
        if state is not None:
            scales = [state.absmax] + ([state.state2.absmax] if state.nested else [])
            bytes += sum(scale.numel() * scale.element_size() for scale in scales)
    return bytes


def read_bytes_per_sec():
    numbers = torch.ones(READ)
    numbers.sum()
    best = 0.0
    for _ in range(3):
        begin = time.perf_counter()
        numbers.sum()
        best = max(best, 4 * READ / (time.perf_counter() - begin))
    return best


def main():
    given = arguments()
    torch.set_num_threads(given.threads)
    read = read_bytes_per_sec()
    model = load(given)
    tokenizer = AutoTokenizer.from_pretrained(given.inputs / "model")
    prompt = tokenizer(given.prompt, return_tensors="pt")
    clock = Clock()
    with torch.inference_mode():
        model.generate(
            **prompt,
            do_sample=False,
            min_new_tokens=given.tokens,
            max_new_tokens=given.tokens,
            stopping_criteria=[clock],
        )
    printed = {
        "tokens": len(clock.times) - 1,
        "secs": clock.times[-1] - clock.times[0],
        "weight_bytes": weight_bytes(model),
        "read_bytes_per_sec": read,
    }
    print(json.dumps(printed))


main()
