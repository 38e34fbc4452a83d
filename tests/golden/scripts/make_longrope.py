"""Makes the golden numbers of the rope type `longrope` with transformers and peft.

usage: make_longrope.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); models, rows and first adapters are the inputs.
OUT: receives OUT/families/longrope.

transformers picks the factors of a forward pass by its longest row. Here each row passes alone, so
that it has the factors of its own length. Rows of one kind give the same together, which is checked.
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
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)

FROM = Path(sys.argv[1])
OUT = Path(sys.argv[2]) / "families" / "longrope"
ADAMW = dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
# Rows of more tokens are long.
ORIGINAL = 16
# A factor for each of two pairs, of which the slow one matters within a few tokens.
PHI3 = {
    "rope_type": "longrope",
    "rope_theta": 20.0,
    "partial_rotary_factor": 0.5,
    "short_factor": [1.1, 1.7],
    "long_factor": [1.5, 6.0],
    "original_max_position_embeddings": ORIGINAL,
}
# Eight pairs; the factors of the embedding are written, not computed.
EIGHT = {
    "rope_type": "longrope",
    "rope_theta": 100.0,
    "short_factor": [1.0, 1.0, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0],
    "long_factor": [1.0, 1.1, 1.3, 1.8, 2.9, 4.0, 6.0, 8.0],
    "original_max_position_embeddings": ORIGINAL,
}
FOUR = {**EIGHT, "short_factor": [1.0, 1.1, 1.3, 1.6], "long_factor": [1.2, 2.0, 4.0, 7.0]}
# Directory of the weights, and the changed keys.
CASES = {
    "phi3": (
        "families/phi3",
        {"rope_parameters": PHI3, "original_max_position_embeddings": ORIGINAL},
    ),
    "llama": ("llama/tiny-trained", {"rope_parameters": {**EIGHT, "factor": 4.0}}),
    "starcoder2": ("families/starcoder2", {"rope_parameters": {**FOUR, "attention_factor": 0.8}}),
    "gemma3": ("families/gemma3", {}),
}
data = load_file(FROM / "families/data.safetensors")


def stored(tensor):
    return tensor.detach().float().contiguous().clone()


def write_configs():
    """The configs of all cases, and that of Phi 3 in the words of transformers 4."""
    for name, (place, changes) in CASES.items():
        config = json.loads((FROM / place / "config.json").read_text()) | changes
        if name == "gemma3":
            config["rope_parameters"]["full_attention"] = {**EIGHT, "rope_theta": 1000.0}
        (OUT / f"{name}.json").write_text(json.dumps(config, indent=2) + "\n")
        if name == "phi3":
            rope = config.pop("rope_parameters")
            for key in ("rope_theta", "partial_rotary_factor"):
                config[key] = rope.pop(key)
            del rope["rope_type"], rope["original_max_position_embeddings"]
            config["rope_scaling"] = {"type": "longrope", **rope}
            (OUT / "phi3_4.json").write_text(json.dumps(config, indent=2) + "\n")


def load(name, file=None):
    place, _ = CASES[name]
    written = json.loads((OUT / f"{file or name}.json").read_text())
    kind = type(AutoConfig.from_pretrained(FROM / place))
    model = AutoModelForCausalLM.from_pretrained(
        FROM / place,
        config=kind.from_dict(written),
        dtype=torch.float32,
        attn_implementation="eager",
    )
    return model.train()


def rows(model, which):
    """Rows without padding; a smaller vocabulary repeats its tokens."""
    tokens = data[f"{which}_tokens"] % model.config.vocab_size
    lengths = data[f"{which}_lengths"].tolist()
    return [row[:length] for row, length in zip(tokens, lengths, strict=True)]


def passed(model, batch):
    """The logits of each row, each alone, and their loss: the mean over all predicted tokens."""
    logits = [model(input_ids=row[None]).logits[0] for row in batch]
    each = zip(logits, batch, strict=True)
    losses = [cross_entropy(x[:-1].float(), row[1:], reduction="sum") for x, row in each]
    return logits, sum(losses) / sum(len(row) - 1 for row in batch)


def check_rows_of_one_kind(model):
    """Both long rows in one padded pass give what each gives alone, and so do two short ones."""
    long = [row for row in rows(model, "eval") if len(row) > ORIGINAL]
    short = [row for row in rows(model, "train") if 4 < len(row) <= ORIGINAL][:2]
    for batch in (long, short):
        assert len(batch) == 2
        tokens = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)
        lengths = torch.tensor([len(row) for row in batch])
        mask = torch.arange(tokens.shape[1]) < lengths[:, None]
        together = model(input_ids=tokens, attention_mask=mask.long()).logits[mask]
        alone = torch.cat(passed(model, batch)[0])
        assert torch.allclose(together, alone, atol=1e-5), (together - alone).abs().max()


def curve(model, trained, rate):
    optimizer = torch.optim.AdamW(trained, lr=rate, **ADAMW)
    losses, norms = [], []
    all_rows = rows(model, "train")
    for first in range(0, len(all_rows), 4):
        _, loss = passed(model, all_rows[first : first + 4])
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in trained]).item())
        optimizer.step()
    assert len(losses) == 20
    return torch.tensor(losses), torch.tensor(norms)


def adapted(model):
    config = LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, config, autocast_adapter_dtype=False).train()
    first = load_file(FROM / "families/phi3/lora_init.safetensors")
    trained = {n.replace(".default", ""): p for n, p in model.named_parameters() if p.requires_grad}
    assert trained.keys() == first.keys()
    with torch.no_grad():
        for key, param in trained.items():
            param.copy_(first[key])
    return model, list(trained.values())


def greedy(model, prompt, count):
    """The likeliest tokens, which transformers' cache and passes without one agree on."""
    made = model.generate(
        prompt[None],
        attention_mask=torch.ones_like(prompt)[None],
        max_new_tokens=count,
        do_sample=False,
        use_cache=True,
        pad_token_id=0,
    )[0]
    tokens = prompt
    for _ in range(count):
        two = model(input_ids=tokens[None], use_cache=False).logits[0, -1].topk(2)
        assert two.values[0] - two.values[1] > 1e-3, "too close to call"
        tokens = torch.cat([tokens, two.indices[:1]])
    assert torch.equal(made, tokens), (made, tokens)
    return tokens[len(prompt) :]


def phi3(out):
    model = load("phi3")
    check_rows_of_one_kind(model)
    logits, loss = passed(model, rows(model, "eval"))
    older, _ = passed(load("phi3", "phi3_4"), rows(model, "eval"))
    assert all(torch.equal(a, b) for a, b in zip(logits, older, strict=True))
    out["phi3.logits"], out["phi3.loss"] = stored(torch.cat(logits)), stored(loss).reshape(1)
    loss.backward()
    for key, param in model.named_parameters():
        out[f"phi3.grad_norm.{key}"] = stored(param.grad.double().norm()).reshape(1)
        if "layers.1.self_attn.qkv" in key or param.dim() == 1:
            out[f"phi3.grad.{key}"] = stored(param.grad)
    rotary = model.model.rotary_emb
    out["phi3.short_inv_freq"] = stored(rotary.original_inv_freq)
    out["phi3.long_inv_freq"] = stored(rotary.long_inv_freq)
    out["phi3.attention_factor"] = torch.tensor([rotary.attention_scaling], dtype=torch.float64)
    model = load("phi3")
    out["phi3.curve"], out["phi3.norms"] = curve(model, list(model.parameters()), 1e-3)
    model, trained = adapted(load("phi3"))
    out["phi3.lora.curve"], out["phi3.lora.norms"] = curve(model, trained, 2e-3)
    model = load("phi3").eval()
    # The first answer grows past the original length, the second begins beyond it.
    for index, length in enumerate((6, 20)):
        prompt = rows(model, "eval")[0][:length]
        out[f"phi3.prompt.{index}"] = prompt.clone()
        with torch.no_grad():
            out[f"phi3.answer.{index}"] = greedy(model, prompt, 24)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    write_configs()
    out = {}
    phi3(out)
    for name in ("llama", "starcoder2", "gemma3"):
        model = load(name)
        logits, loss = passed(model, rows(model, "eval"))
        out[f"{name}.last_logits"] = stored(torch.stack([row[-1] for row in logits]))
        out[f"{name}.loss"] = stored(loss).reshape(1)
    save_file(out, OUT / "expected.safetensors")


main()
