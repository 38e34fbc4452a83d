"""What the peers reach on this machine's card, for `run N` of `cargo xtask gpu pack`.

usage: card_peer.py ceilings --extent N
       card_peer.py step --inputs DIR --batch N --uncounted N --rank N [--checkpointing]

`ceilings` times torch's copy within the card's memory and its bf16 product of N x N matrices. `step`
trains LoRA on all linears of the model that DIR/model/config.json describes, with random weights:
packed to NF4 with double quantization where bitsandbytes is importable or lies beside this file in
`peers/`, else dense in bf16. Adapters are bf16, which is faster than f32. Prints lines of
JSON; a missing package is named on the standard error.
"""

import argparse
import importlib.util
import json
import logging
import statistics
import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

BESIDE = Path(__file__).resolve().parent / "peers"
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
COPIED_BYTES = 4 << 30


def arguments():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    ceilings = commands.add_parser("ceilings")
    ceilings.add_argument("--extent", type=int, required=True)
    step = commands.add_parser("step")
    step.add_argument("--inputs", type=Path, required=True)
    step.add_argument("--batch", type=int, required=True)
    step.add_argument("--uncounted", type=int, required=True)
    step.add_argument("--rank", type=int, required=True)
    step.add_argument("--checkpointing", action="store_true")
    return parser.parse_args()


def need(*names):
    """Ends the program where a package is missing, and names all that are."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{sys.executable} has no {', '.join(missing)}")


def show(row):
    print(json.dumps(row), flush=True)


def median_secs(torch, device, call, count):
    """Seconds of a call, the median of five runs of `count` calls."""

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    call()
    wait()
    found = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        found.append((time.perf_counter() - begin) / count)
    return statistics.median(found)


def ceilings(given, torch, device):
    bytes = COPIED_BYTES if device == "cuda" else 1 << 20
    source = torch.zeros(bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    secs = median_secs(torch, device, lambda: target.copy_(source), 5)
    show({"copy": "torch", "bytes": bytes, "bytes_per_sec": 2 * bytes / secs})
    del source, target
    a, b = (torch.randn(given.extent, given.extent, device=device, dtype=torch.bfloat16) for _ in range(2))
    secs = median_secs(torch, device, lambda: torch.matmul(a, b), 10)
    show({"product": "torch", "extent": given.extent, "secs": secs, "flops_per_sec": 2 * given.extent**3 / secs})


def bitsandbytes():
    """The package, or None where it is not there or cannot be loaded, and why."""
    if importlib.util.find_spec("bitsandbytes") is None and BESIDE.is_dir():
        sys.path.insert(0, str(BESIDE))
    if importlib.util.find_spec("bitsandbytes") is None:
        return None, "bitsandbytes is not importable"
    try:
        import bitsandbytes as bnb
    except Exception as error:
        return None, f"bitsandbytes cannot be imported: {error}"
    return bnb, None


def packed(torch, bnb, model, device):
    """Replaces the layers' linears by ones of NF4 with the same weights."""
    for module in list(model.modules()):
        for name, linear in list(module.named_children()):
            if name not in LINEARS:
                continue
            made = bnb.nn.Linear4bit(
                linear.in_features,
                linear.out_features,
                bias=False,
                compute_dtype=torch.bfloat16,
                compress_statistics=True,
                quant_type="nf4",
                device="meta",
            )
            made.weight = bnb.nn.Params4bit(
                linear.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=True
            ).to(device)
            setattr(module, name, made)
            linear.weight = None
    # What transformers says of a model that it loaded packed; PEFT asks.
    model.is_loaded_in_4bit = True


def prepared(given, torch, device):
    """The model with its adapter, and what it is."""
    bnb, why = bitsandbytes()
    # They look for bitsandbytes when they are imported.
    import peft
    import transformers

    config = transformers.LlamaConfig.from_pretrained(given.inputs / "model", attn_implementation="sdpa")
    config.use_cache = False
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = transformers.LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.requires_grad_(False)
    if bnb is not None:
        try:
            packed(torch, bnb, model, device)
        except Exception as error:
            sys.exit(f"bitsandbytes {bnb.__version__} packs no weight on {device}: {error}")
    adapter = peft.LoraConfig(
        r=given.rank, lora_alpha=2 * given.rank, lora_dropout=0.0, target_modules=LINEARS, task_type="CAUSAL_LM"
    )
    model = peft.get_peft_model(model, adapter, autocast_adapter_dtype=False)
    model.train()
    if given.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    described = {
        "program": "peers",
        "base": "nf4, double quantization" if bnb is not None else "bf16",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peft": peft.__version__,
        "bitsandbytes": getattr(bnb, "__version__", None),
        "why_not_packed": why,
        "attention": "sdpa",
        "adapters": str(next(p.dtype for p in model.parameters() if p.requires_grad)),
    }
    return model, described


def step(given, torch, device):
    need("transformers", "peft")
    begin = time.perf_counter()
    model, row = prepared(given, torch, device)
    trained = [param for param in model.parameters() if param.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0.0, fused=True)
    lines = (given.inputs / "rows.jsonl").read_text().splitlines()
    rows = torch.tensor([json.loads(line)["input_ids"] for line in lines], device=device)
    is_card = device == "cuda"
    if is_card:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    row["load_secs"] = time.perf_counter() - begin
    losses, secs = [], []
    for batch in rows.split(given.batch):
        begin = time.perf_counter()
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if is_card:
            torch.cuda.synchronize()
        secs.append(time.perf_counter() - begin)
    median = statistics.median(secs[given.uncounted :])
    tokens = given.batch * rows.shape[1]
    show(
        row
        | {
            "tokens_per_step": tokens,
            "step_secs": secs,
            "median_step_secs": median,
            "tokens_per_sec": tokens / median,
            "peak_torch_bytes": torch.cuda.max_memory_allocated() if is_card else None,
            "losses": losses,
        }
    )


def main():
    given = arguments()
    need("torch")
    import torch

    torch.manual_seed(42)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    {"ceilings": ceilings, "step": step}[given.command](given, torch, device)


main()
