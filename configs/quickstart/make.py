"""Turns the two public-domain texts into the quickstart's rows, tokenizer, config and weights.

Called by make.sh; needs `tokenizers` and `numpy`.
"""

import json
import lzma
import re
import struct
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).parent
MODEL = HERE / "model"
DATA = HERE / "data"
TEXT = HERE / "text"

VOCAB = 2048
MAX_TOKENS = 256  # a row with its begin and end tokens
BEGIN, END, PAD = "<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"
# Llama 3's split pattern, as published in its tokenizer.json.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LAST_CHAPTER = 33  # of Pride and Prejudice: the first volume and some of the second
HELD_OUT_CHAPTERS = (9, 18, 27)
PRETRAIN_HELD_OUT_EVERY = 50  # rows of the King James Version


def king_james_chapters(path):
    """Chapters of (reference, verse), from `bible`'s one-verse-a-line output."""
    chapters, last = [], None
    for line in path.read_text(encoding="latin-1").splitlines():
        found = re.match(r"^(?:bible\(KJV\) \[[^\]]*\]> )?\s*([1-3]?[A-Za-z]+\d*):(\d+) (.*)$", line)
        if not found:
            continue
        chapter, verse, text = found.groups()
        if last == (chapter, verse):
            continue  # the program greets with the first verse
        if not chapters or last[0] != chapter:
            chapters.append([])
        chapters[-1].append((f"{chapter}:{verse}", text.strip()))
        last = (chapter, verse)
    return chapters


def r_character_vectors(path):
    """The character vectors of an R lazy-load database: zlib streams of R's XDR serialisation."""
    raw, at = path.read_bytes(), 0
    while at < len(raw):
        stream = zlib.decompressobj()  # each follows four bytes of length
        body = stream.decompress(raw[at + 4 :])
        at = len(raw) - len(stream.unused_data)
        start = body.index(b"\0\0\0\x10") + 4  # STRSXP without attributes
        (count,) = struct.unpack(">I", body[start : start + 4])
        start, lines = start + 4, []
        for _ in range(count):
            assert body[start + 3] == 9, "a CHARSXP"
            (length,) = struct.unpack(">i", body[start + 4 : start + 8])
            lines.append(body[start + 8 : start + 8 + max(length, 0)].decode("utf-8"))
            start += 8 + max(length, 0)
        yield lines


def novel_chapters(lines):
    """Chapters of paragraphs of a novel; wrapped lines are joined."""
    chapters, paragraph = [], []
    for line in [*lines, ""]:
        if re.fullmatch(r"Chapter \d+", line.strip()):
            chapters.append([])
        elif line.strip():
            paragraph.append(line.strip())
            continue
        if paragraph and chapters:
            chapters[-1].append(re.sub(r"\s+", " ", " ".join(paragraph)))
        paragraph = []
    return chapters


def sentences(paragraph):
    return re.split(r"(?<=[.!?;]) (?=\S)|(?<=[.!?][\"']) (?=\S)", paragraph)


def rows(chapter, tokenizer):
    """Consecutive pieces of a chapter, joined to rows of at most MAX_TOKENS tokens."""

    def size(text):
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    row = ""
    for piece in chapter:
        parts = [piece] if size(piece) <= MAX_TOKENS - 2 else sentences(piece)
        for part_idx, part in enumerate(parts):
            joined = row + ("\n" if part_idx == 0 else " ") + part if row else part
            if size(joined) > MAX_TOKENS - 2 and row:
                yield row
                joined = part
            row = joined
    if row:
        yield row


def train_tokenizer(chapters):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE(ignore_merges=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[BEGIN, END, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(("\n".join(chapter) for chapter in chapters), trainer)
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{BEGIN} $A",
                pair=f"{BEGIN} $A {BEGIN}:1 $B:1",
                special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))],
            ),
        ]
    )
    return tokenizer


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_rows(path, texts):
    texts = list(texts)
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    print(f"{path}: {len(texts)} rows, {path.stat().st_size} bytes")


def write_verses(path, bible, seen, held_out):
    """One line a verse: was it in pretraining, its reference, its text."""

    def by_chapter(rows):
        joined = [""] * len(bible)
        for chapter_idx, row in rows:
            joined[chapter_idx] += row + "\n"
        return joined

    lines = []
    for chapter, seen_text, held_text in zip(bible, by_chapter(seen), by_chapter(held_out)):
        for reference, text in chapter:
            is_new = text in held_text and text not in seen_text
            lines.append(f"{'held-out' if is_new else 'train'}\t{reference}\t{text}\n")
    path.write_bytes(lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))
    held = sum(line.startswith("held-out") for line in lines)
    print(f"{path}: {len(lines)} verses, {held} of them held out, {path.stat().st_size} bytes")


def corpus(work):
    for folder in (MODEL, DATA, TEXT):
        folder.mkdir(exist_ok=True)
    bible = king_james_chapters(work / "kjv.txt")
    assert len(bible) == 1189 and sum(map(len, bible)) == 31102, (len(bible), sum(map(len, bible)))
    tokenizer = train_tokenizer([text for _, text in chapter] for chapter in bible)
    tokenizer.save(str(MODEL / "tokenizer.json"))
    write_json(
        MODEL / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BEGIN,
            "eos_token": END,
            "pad_token": PAD,
            "model_max_length": 512,
            "clean_up_tokenization_spaces": False,
        },
    )
    write_json(
        MODEL / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCAB,
            "hidden_size": 256,
            "intermediate_size": 704,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 32,
            "hidden_act": "silu",
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "initializer_range": 0.02,
            "bos_token_id": tokenizer.token_to_id(BEGIN),
            "eos_token_id": tokenizer.token_to_id(END),
            "pad_token_id": tokenizer.token_to_id(PAD),
            "torch_dtype": "bfloat16",
        },
    )
    bible_rows = [
        (chapter_idx, row)
        for chapter_idx, chapter in enumerate(bible)
        for row in rows([text for _, text in chapter], tokenizer)
    ]
    held = range(PRETRAIN_HELD_OUT_EVERY - 1, len(bible_rows), PRETRAIN_HELD_OUT_EVERY)
    held_out = [bible_rows[i] for i in held]
    seen = [row for i, row in enumerate(bible_rows) if i not in held]
    write_rows(work / "pretrain-held-out.jsonl", (row for _, row in held_out))
    write_rows(work / "pretrain.jsonl", (row for _, row in seen))
    write_verses(TEXT / "king-james.txt.xz", bible, seen, held_out)

    database = work / "deb/r-cran-janeaustenr/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
    novel = next(n for n in r_character_vectors(database) if n[0] == "PRIDE AND PREJUDICE")
    chapters = novel_chapters(novel)
    assert len(chapters) == 61, len(chapters)
    numbered = list(enumerate(chapters, start=1))[:LAST_CHAPTER]
    train = [c for number, c in numbered if number not in HELD_OUT_CHAPTERS]
    held_out = [c for number, c in numbered if number in HELD_OUT_CHAPTERS]
    write_rows(DATA / "train.jsonl", (row for c in train for row in rows(c, tokenizer)))
    write_rows(DATA / "held-out.jsonl", (row for c in held_out for row in rows(c, tokenizer)))


def weights(trained):
    """Rounds an f32 checkpoint to bf16 (nearest, ties to even)."""
    import numpy

    raw = (trained / "model.safetensors").read_bytes()
    (header_bytes,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + header_bytes])
    header.pop("__metadata__", None)
    body = raw[8 + header_bytes :]
    out, packed, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(header):
        tensor = header[name]
        start, end = tensor["data_offsets"]
        if tensor["dtype"] == "F32":
            bits = numpy.frombuffer(body[start:end], dtype="<u4").astype(numpy.uint64)
            assert ((bits & 0x7F800000) != 0x7F800000).all(), f"{name} is not finite"
            rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
        else:
            assert tensor["dtype"] == "BF16", f"{name} is {tensor['dtype']}, expected F32 or BF16"
            rounded = body[start:end]
        out[name] = {
            "dtype": "BF16",
            "shape": tensor["shape"],
            "data_offsets": [at, at + len(rounded)],
        }
        packed.append(rounded)
        at += len(rounded)
    text = json.dumps(out, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = MODEL / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(packed))
    print(f"{path}: {len(packed)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    {"corpus": corpus, "weights": weights}[sys.argv[1]](Path(sys.argv[2]))
