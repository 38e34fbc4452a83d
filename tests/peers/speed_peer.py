"""One training by the peers, timed, for `cargo xtask peers speed`.

usage: speed_peer.py INPUTS --method METHOD --dtype DTYPE --steps N --batch N --threads N
                     [--adapters DTYPE] [--recompute] [--encode]

INPUTS: what speed_inputs.py made. Prints a line of JSON: losses, seconds of the steps, seconds of
loading, most memory in bytes.
--encode: encodes the model by hqq, writes it beside the model, times that and trains nothing. hqq
takes minutes, and a run that loads the result needs less memory.

flat_dequantize.py of the golden scripts is not used: it makes bitsandbytes decode on one thread, and
changes nothing where rows are whole blocks, which is checked here.
"""

import time

BEGIN = time.perf_counter()

import argparse
import json
import logging
import resource
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import torch
import transformers
from peft import PeftModel
from transformers import BitsAndBytesConfig, LlamaForCausalLM

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
BLOCK = 64
LEARNING_RATES = {"full": 1e-5, "lora": 2e-4, "nf4": 2e-4, "hqq": 2e-4}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--method", choices=list(LEARNING_RATES), required=True)
    parser.add_argument("--dtype", choices=list(DTYPES), required=True)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--adapters", choices=list(DTYPES), default="f32")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--encode", action="store_true")
    return parser.parse_args()


def dense(given, dtype):
    return LlamaForCausalLM.from_pretrained(
        given.inputs / "model", dtype=dtype, attn_implementation="sdpa"
    )


def nf4(given, dtype):
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    model = LlamaForCausalLM.from_pretrained(
        given.inputs / "model",
        dtype=dtype,
        attn_implementation="sdpa",
        quantization_config=config,
        device_map="cpu",
    )
    sizes = model.config.hidden_size, model.config.intermediate_size
    assert all(size % BLOCK == 0 for size in sizes), "bitsandbytes decodes such rows wrongly on a CPU"
    return model


def encoded_file(given):
    return given.inputs / f"hqq-{given.dtype}.pt"


def encode(given, dtype):
    """Every linear but the head by hqq. transformers refuses `HqqConfig` on a CPU."""
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    model = dense(given, dtype)
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            parent, leaf = name.rsplit(".", 1)
            config = BaseQuantizeConfig(nbits=4, group_size=BLOCK, axis=1)
            layer = HQQLinear(module, config, compute_dtype=dtype, device="cpu")
            setattr(model.get_submodule(parent), leaf, layer)
    return model


def hqq(given, dtype):
    from hqq.core.quantize import HQQBackend, HQQLinear

    HQQLinear.set_backend(HQQBackend.PYTORCH)
    model = torch.load(encoded_file(given), weights_only=False)
    assert model.dtype == dtype, f"{encoded_file(given)} is another model's; delete it"
    return model


def load(given):
    """The model ready to train, and whether it computes under autocast."""
    dtype = DTYPES[given.dtype]
    if given.method == "full":
        # Masters are f32. Weights and moments in bf16 would be another training.
        return dense(given, torch.float32), dtype == torch.bfloat16
    base = {"lora": dense, "nf4": nf4, "hqq": hqq}[given.method](given, dtype)
    base.requires_grad_(False)
    model = PeftModel.from_pretrained(
        base,
        given.inputs / "adapter",
        is_trainable=True,
        autocast_adapter_dtype=given.adapters == "f32",
    )
    wanted = dtype if given.adapters == "bf16" else torch.float32
    for param in trained(model):
        param.data = param.data.to(wanted)
    return model, dtype != wanted


def trained(model):
    return [param for param in model.parameters() if param.requires_grad]


def batches(given):
    lines = (given.inputs / "rows.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines[: given.steps * given.batch]]
    ids = [row["input_ids"] for row in rows]
    labels = [row.get("labels", row["input_ids"]) for row in rows]
    return torch.tensor([ids, labels]).view(2, given.steps, given.batch, -1).unbind(1)


def train(given, model, autocast):
    """Losses and seconds of the steps."""
    model.config.use_cache = False
    # In eval mode bitsandbytes runs other products.
    model.train()
    if given.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if given.method != "full":
            model.enable_input_require_grads()
    optimizer = torch.optim.AdamW(
        trained(model),
        lr=LEARNING_RATES[given.method],
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0.0,
        fused=True,
    )
    losses, secs = [], []
    for ids, labels in batches(given):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        secs.append(time.perf_counter() - begin)
    return losses, secs


def main():
    given = arguments()
    torch.set_num_threads(given.threads)
    begin = time.perf_counter()
    if given.encode:
        model = encode(given, DTYPES[given.dtype])
    else:
        model, autocast = load(given)
    done = time.perf_counter()
    result = {"load_secs": done - begin, "start_secs": done - BEGIN}
    if given.encode:
        partial = encoded_file(given).with_suffix(".partial")
        torch.save(model, partial)
        partial.rename(encoded_file(given))
    else:
        losses, secs = train(given, model, autocast)
        result |= {"losses": losses, "step_secs": secs}
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps(result | {"peak_bytes": 1024 * peak_kib}))


main()
