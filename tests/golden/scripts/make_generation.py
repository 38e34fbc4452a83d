"""Makes the golden answers of greedy generation with transformers, peft and bitsandbytes.

usage: make_generation.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its models, data and trained adapters are the inputs.
OUT: receives OUT/llama/generation.safetensors: TAG.prompt.I, TAG.tokens.I (what follows, the end
token included) and TAG.gaps.I (the likeliest logit less the second, of each token).
"""

import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import BitsAndBytesConfig, LlamaForCausalLM

import flat_dequantize  # noqa: F401  (repairs bitsandbytes' CPU decoding)

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)

FROM = Path(sys.argv[1]) / "llama"
OUT = Path(sys.argv[2]) / "llama"
NEW_TOKENS = 72
LEAST_TOKENS = 64  # shorter answers are passed over
LEAST_GAP = 1e-4  # a closer choice is rounding's, not the model's
PROMPTS = 4
PAD = 2
TAGS = {
    "tiny": ("tiny", None, None),
    "trained": ("tiny-trained", None, None),
    "nf4": ("tiny-trained", "nf4", None),
    "lora_f32": ("tiny-trained", None, "adapter_trained_f32"),
    "lora_nf4": ("tiny-trained", "nf4", "adapter_trained_nf4"),
}


def load(name, quantizer, adapter):
    options = {}
    if quantizer:
        options["device_map"] = "cpu"
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=quantizer,
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32,
        )
    model = LlamaForCausalLM.from_pretrained(FROM / name, dtype=torch.float32, **options)
    if adapter:
        model = PeftModel.from_pretrained(model, FROM / adapter, autocast_adapter_dtype=False)
    # In eval mode bitsandbytes runs a bf16 product on some CPUs; there is no dropout.
    return model.train() if quantizer else model.eval()


def candidates():
    """Prompts of uneven lengths, the longest ones longer than a block of 64."""
    rows = load_file(FROM / "data.safetensors")["train_tokens"].reshape(-1, 32)
    for index in range(400):
        length = [3, 19, 33, 150, 7, 64, 1, 290][index % 8]
        yield rows[index : index + 12].reshape(-1)[:length]


def greedy(model, prompts):
    """The answers to prompts that are padded on the left, and the gap at each token."""
    width = max(len(prompt) for prompt in prompts)
    ids = torch.full((len(prompts), width), PAD)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :], mask[row, width - len(prompt) :] = prompt, 1
    made = model.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        pad_token_id=PAD,
        return_dict_in_generate=True,
        output_logits=True,
    )
    answers = []
    for row in range(len(prompts)):
        tokens = made.sequences[row, width:]
        ends = (tokens == model.config.eos_token_id).nonzero()
        tokens = tokens[: ends[0, 0] + 1] if len(ends) else tokens
        top = [step[row].topk(2).values for step in made.logits[: len(tokens)]]
        gaps = torch.stack([values[0] - values[1] for values in top])
        answers.append((tokens.clone(), gaps))
    return answers


def make(tag, out):
    model, kept = load(*TAGS[tag]), []
    for prompt in candidates():
        if len(kept) == PROMPTS:
            break
        if any(len(prompt) == len(other) for other, _, _ in kept):
            continue
        [(tokens, gaps)] = greedy(model, [prompt])
        if len(tokens) >= LEAST_TOKENS and gaps.min() > LEAST_GAP:
            kept.append((prompt, tokens, gaps))
    assert len(kept) == PROMPTS, f"{tag}: {len(kept)} prompts fit"
    together = greedy(model, [prompt for prompt, _, _ in kept])
    for index, ((prompt, tokens, gaps), (again, _)) in enumerate(zip(kept, together)):
        assert torch.equal(tokens, again), f"{tag}: prompt {index} depends on the batch"
        out[f"{tag}.prompt.{index}"] = prompt.clone()
        out[f"{tag}.tokens.{index}"] = tokens
        out[f"{tag}.gaps.{index}"] = gaps.float()
        print(f"{tag} {index}: {len(prompt)} + {len(tokens)}, gap {gaps.min():.1e}, {len(set(tokens.tolist()))} different")


OUT.mkdir(parents=True, exist_ok=True)
out = {}
with torch.no_grad():
    for tag in TAGS:
        make(tag, out)
save_file(out, OUT / "generation.safetensors")
