"""Turns the quickstart's two texts into short questions with one-word answers.

    python3 configs/quickstart/questions.py [--out DIR]     (default: data/, what is committed)

Needs Python's standard library and what lies beside this file: `text/king-james.txt.xz`, whose lines
say whether the base model was pretrained on a verse, and the chapters of *Pride and Prejudice* in
`data/`. Each question is about one clause. Clauses of the held-out verses and chapters are asked about
in `held-out-questions.jsonl`, all others in `questions.jsonl`; a held-out clause that occurs anywhere
in the other texts is left out. The choice follows from hashes, so the same bytes come out everywhere.
"""

import argparse
import collections
import hashlib
import json
import lzma
import re
from pathlib import Path

HERE = Path(__file__).parent
LETTERS = (25, 110)  # the shortest and the longest clause
NEW_TESTAMENT = (
    "Mat Mark Luke John Acts Rom 1Cor 2Cor Gal Eph Phi Col 1Th 2Th 1Tim 2Tim Titus Phmn Heb Jas "
    "1Pet 2Pet 1Jn 2Jn 3Jn Jude Rev"
).split()

Clause = collections.namedtuple("Clause", "text source held_out")
Kind = collections.namedtuple("Kind", "name question answer train held_out")


def forms(text):
    """`hand:hands eye:eyes` -> which answer each form of a word stands for."""
    table = {}
    for entry in text.split():
        answer, _, others = entry.partition(":")
        table |= {form: answer for form in [answer, *filter(None, others.split(","))]}
    return table


NAMES = forms(
    "Israel Jesus David Moses Jerusalem Judah Egypt Jacob Abraham Solomon Paul Aaron Joseph Babylon "
    "Saul Peter John Pharaoh"
)
RELATIVES = forms(
    "father:fathers mother:mothers son:sons daughter:daughters brother:brothers,brethren "
    "sister:sisters wife:wives child:children"
)
BODY = forms(
    "hand:hands eye:eyes heart:hearts head:heads foot:feet mouth:mouths face:faces blood "
    "flesh voice soul"
)
NUMBERS = forms("two three four five six seven ten twelve forty")
HIM, HER = {"he", "him", "his", "himself"}, {"she", "her", "hers", "herself"}


def the_one(table):
    """The answer whose forms occur in a clause, where no other answer's do."""

    def answer(clause):
        found = {table[word] for word in re.findall(r"[A-Za-z]+", clause.text) if word in table}
        return found.pop() if len(found) == 1 else None

    return answer


def him_or_her(clause):
    words = set(re.findall(r"[a-z]+", clause.text.lower()))
    if bool(words & HIM) == bool(words & HER):
        return None
    return "him" if words & HIM else "her"


# The last two numbers: how often one answer may occur in training and in the held-out questions.
KINDS = [
    Kind("name", "Which name is in it?", the_one(NAMES), 100, 6),
    Kind("relative", "Which relative is in it?", the_one(RELATIVES), 140, 8),
    Kind("body", "Which part of the body is in it?", the_one(BODY), 100, 6),
    Kind("number", "Which number is in it?", the_one(NUMBERS), 100, 10),
    Kind("person", "Does it speak of him or of her?", him_or_her, 300, 30),
    Kind(
        "source",
        "Is it from the old testament, the new, or neither?",
        lambda clause: clause.source,
        250,
        20,
    ),
]


def pieces(text):
    after_clauses = r"(?<=[.:;?!])(?<!Mr\.)(?<!Mrs\.)(?<!Dr\.) "
    return [piece.strip() for piece in re.split(after_clauses, text)]


def bible():
    """(verse, source, is held out) for every verse."""
    with lzma.open(HERE / "text/king-james.txt.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            part, reference, text = line.rstrip("\n").split("\t")
            book = re.match(r"\d?[A-Za-z]+", reference).group()
            yield text, "new" if book in NEW_TESTAMENT else "old", part == "held-out"


def novel():
    """(row of paragraphs, source, is held out) for the chapters in `data/`."""
    for name, held_out in (("train.jsonl", False), ("held-out.jsonl", True)):
        for line in (HERE / "data" / name).read_text(encoding="utf-8").splitlines():
            yield json.loads(line)["text"], "neither", held_out


def clauses():
    """Every clause once, in an order that its hash decides."""
    texts = [*bible(), *novel()]
    seen = "\n".join(text for text, _, held_out in texts if not held_out)
    found = {}
    for text, source, held_out in texts:
        for piece in (piece for paragraph in text.split("\n") for piece in pieces(paragraph)):
            plain = piece.isascii() and not re.search(r"[\"_()]", piece)
            if not plain or not LETTERS[0] <= len(piece) <= LETTERS[1]:
                continue
            if held_out and piece.rstrip(".:;?!,") in seen:
                continue
            found.setdefault(piece, Clause(piece, source, held_out))
    return sorted(found.values(), key=lambda clause: digest(clause.text))


def digest(text):
    return hashlib.sha256(text.encode()).digest()


def questions(kind, texts, held_out):
    """Questions of one kind, each answer at most as often as the kind allows."""
    most, counts = kind.held_out if held_out else kind.train, collections.Counter()
    for clause in texts:
        answer = kind.answer(clause) if clause.held_out == held_out else None
        if answer is None or counts[answer] == most:
            continue
        counts[answer] += 1
        prompt = f"{clause.text}\n{kind.question}\nAnswer:"
        yield {"prompt": prompt, "completion": f" {answer}", "kind": kind.name}
    total = sum(counts.values())
    print(
        f"{kind.name}: {total} {'held-out' if held_out else 'trained'} questions, {len(counts)} "
        f"answers, the most frequent {counts.most_common(1)[0][1] / total:.0%}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "data")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    texts = clauses()
    for name, held_out in (("questions.jsonl", False), ("held-out-questions.jsonl", True)):
        rows = [row for kind in KINDS for row in questions(kind, texts, held_out)]
        rows.sort(key=lambda row: digest(row["prompt"]))
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        (out / name).write_text("".join(lines), encoding="utf-8")
        print(f"{out / name}: {len(rows)} rows")


if __name__ == "__main__":
    main()
