"""Adapters of each kind, trained by the host on the quickstart's questions: forty greedy answers of the host are those of
transformers with PEFT, on a dense and on an NF4 base."""

import json
import shutil
import subprocess
import sys

import torch
from peft import PeftModel
from runs import GOLDEN, HOST, OUT, base
from transformers import AutoTokenizer, LlamaForCausalLM

QUICKSTART = GOLDEN.parents[1] / "configs/quickstart"
MODEL = QUICKSTART / "model"
ANSWERS, TOKENS, STEPS = 40, 24, 20
# Logits of f32 programs that add in another order are up to 2e-5 apart: tokens nearer than this are a tie.
TIE = 4e-5
KINDS = {
    "lora": ["adapter.lora.rank=8"],
    "lora-rslora": ["adapter.lora.rank=8", "adapter.lora.rslora=true"],
    "lora-plus": ["adapter.lora.rank=8", "adapter.lora.learning_rate_ratio=4"],
    "lora-patterns": ["adapter.lora.rank=8", "adapter.lora.rank_pattern={q_proj = 4}"],
    "lora-norms": ["adapter.lora.rank=8", 'adapter.lora.modules_to_save=["norm"]'],
    "dora": ["adapter.dora.rank=8"],
    "ia3": ["adapter.ia3.targets=\"all-linear\""],
}
SPLITS = {"pissa": "lora", "pissa-nf4": "nf4,lora", "loftq-nf4": "nf4,lora"}


def prompts():
    """The first held-out questions, as a file of the host's."""
    lines = (QUICKSTART / "data/held-out-questions.jsonl").read_text().splitlines()[:ANSWERS]
    texts = [json.loads(line)["prompt"] for line in lines]
    path = OUT / "generations/prompts.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return texts, path


def run(*arguments):
    done = subprocess.run([HOST, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"host {arguments[0]} failed with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def settings(sets):
    return [word for assignment in sets for word in ("--set", assignment)]


def trained(name, plugins, sets, model):
    """The adapter of a short run; a large rate lets answers move."""
    out = OUT / "generations" / name
    shutil.rmtree(out, ignore_errors=True)
    rows = QUICKSTART / "data/questions.jsonl"
    common = [f"run.max_steps={STEPS}", "model.compute=\"f32\"", "data.max_seq_len=128", "data.batch_size=16",
              "data.micro_batch=16", "optim.learning_rate=5e-3"]
    named = ["--plugins", plugins] if plugins else []
    run("train", "--model", *model, "--data", rows, "--out", out, *named, *settings([*common, *sets]))
    return out / "adapter"


def check(name, plugins, model, adapter, peer):
    """Compares the answers of the host with those of `peer`, a PEFT model in train mode, as `base` says why."""
    lines = run("generate", "--model", model, "--adapter", adapter, "--prompts", PROMPTS, "--max-tokens", str(TOKENS),
                "--quiet", *(["--plugins", plugins] if plugins else []), *settings(['model.compute="f32"']))
    ours = [json.loads(line)["answer"] for line in lines.splitlines()]
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    equal, ties = 0, 0
    for text, answer in zip(TEXTS, ours, strict=True):
        ids = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            made = peer.generate(**ids, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0, output_logits=True,
                                 return_dict_in_generate=True)
        theirs = tokenizer.decode(made.sequences[0, ids["input_ids"].shape[1]:], skip_special_tokens=True)
        likeliest = torch.stack(made.logits).squeeze(1).topk(2).values
        nearest = (likeliest[:, 0] - likeliest[:, 1]).min().item()
        equal += answer == theirs
        ties += answer != theirs and nearest <= TIE
        if answer != theirs and nearest > TIE:
            print(f"{name}: {text!r}: host {answer!r}, peer {theirs!r}, whose tokens are {nearest:.1e} apart")
    print(f"{name}: {equal} of {ANSWERS} answers equal, {ties} ties")
    if equal + ties != ANSWERS or ties > 1:
        sys.exit(1)


TEXTS, PROMPTS = prompts()
for kind in ("f32", "nf4"):
    for name, sets in KINDS.items():
        plugins = ",".join([*(["nf4"] if kind == "nf4" else []), name.split("-")[0]])
        adapter = trained(f"{name}-{kind}", plugins, sets, [MODEL])
        peer = PeftModel.from_pretrained(base(kind, MODEL), adapter).train()
        check(f"{name}, {kind} base", plugins, MODEL, adapter, peer)

for name, plugins in SPLITS.items():
    out = OUT / "generations" / f"split-{name}"
    shutil.rmtree(out, ignore_errors=True)
    begun = ["adapter.lora.rank=8", f"adapter.lora.init={name.split('-')[0]}"]
    run("split", "--model", MODEL, "--plugins", plugins, "--out", out, "--quiet", *settings(begun))
    adapter = trained(name, "", [], [out / "base", "--adapter", out / "adapter"])
    peer = LlamaForCausalLM.from_pretrained(out / "base", dtype=torch.float32, device_map="cpu")
    check(name, "", out / "base", adapter, PeftModel.from_pretrained(peer, adapter).train())
