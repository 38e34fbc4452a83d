"""Makes the tiny Llamas, `tiny` and `tiny-trained`, from a text of one verse a line.

usage: make_models.py OUT VERSES EXTRA

VERSES: the King James Version, one verse a line without references (Debian's bible-kjv-text).
EXTRA: one more public-domain text for the tokenizer (the committed one read the Declaration of
Independence and the Constitution of the United States).
The committed models are the reference: make_llama.py starts from them. This script is the record
of how they came to be, and makes equivalent ones.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"]
CONFIG = LlamaConfig(
    hidden_act="silu",
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    attention_bias=False,
    mlp_bias=False,
    initializer_range=0.02,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=2,
    hidden_size=64,
    intermediate_size=176,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=512,
    max_position_embeddings=512,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)


def train_tokenizer(verses, extra):
    """GPT-2 style byte-level BPE with 512 entries."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,
    )
    tokenizer.train_from_iterator([*verses, extra], trainer)
    begin = SPECIAL[0]
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{begin} $A",
                pair=f"{begin} $A {begin}:1 $B:1",
                special_tokens=[(begin, tokenizer.token_to_id(begin))],
            ),
        ]
    )
    return tokenizer


def save(model, tokenizer, path):
    model.save_pretrained(path)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        pad_token=SPECIAL[2],
    ).save_pretrained(path)


def main():
    out, verses, extra = (Path(argument) for argument in sys.argv[1:4])
    verses = verses.read_text().splitlines()
    tokenizer = train_tokenizer(verses, extra.read_text(encoding="latin-1"))
    torch.manual_seed(1234)
    save(LlamaForCausalLM(CONFIG).float(), tokenizer, out / "tiny")

    torch.manual_seed(1234)
    model = LlamaForCausalLM(CONFIG).float().train()
    ids = []
    for verse in verses[:12000]:
        ids += [0, *tokenizer.encode(verse, add_special_tokens=False).ids]
    ids = torch.tensor(ids)
    generator = torch.Generator().manual_seed(7)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01
    )
    steps = 1000
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 50) * (1 - 0.9 * step / steps)
        starts = torch.randint(0, len(ids) - 129, (16,), generator=generator)
        batch = torch.stack([ids[start : start + 128] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 200 == 0:
            print(step, loss.item(), flush=True)
    save(model, tokenizer, out / "tiny-trained")


main()
