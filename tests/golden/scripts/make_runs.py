"""Runs as version 0.1.0 (commit 475b928) left them, and the bits that its going on with them gave.

    python3 make_runs.py HOST OUT

HOST is the program built from that commit; OUT is made anew. Needs Python 3.11 and nothing else. What HOST says of
paths is relative to the folder it runs in, so a test can lay the same files elsewhere and go on there.
"""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

GOLDEN = pathlib.Path(__file__).resolve().parent.parent
TRAINED = GOLDEN / "llama" / "tiny-trained"
EXACT = ["step", "loss", "grad_norm", "learning_rate", "trained_tokens", "eval_loss", "eval_token_accuracy"]
# A conversation of several answers is trained on its last one alone, unless the config says otherwise.
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
SUBJECTS = ["the king", "a shepherd", "my brother", "the city", "an angel", "the river", "a servant", "his house"]
VERBS = ["went up to", "spoke unto", "looked upon", "departed from", "gave bread to", "was afraid of"]

LORA = "--plugins {} --set adapter.lora.rank=2 --set adapter.lora.alpha=4"
COMMON = (
    "--quiet --threads 2 --set data.batch_size=4 --set data.max_seq_len=64 --set run.max_steps=6 --set run.save_every=3 "
    "--set run.epochs=99 "
)
CHAT = "--model model --data chat.jsonl --set data.chat_template=template.jinja "
TEXT = "--model model --data text.jsonl --set model.compute=f32 "
RUNS = {
    # Rows with several answers, and dropout.
    "lora-nf4": COMMON + CHAT + LORA.format("nf4,lora")
    + " --set adapter.lora.dropout=0.1 --set optim.schedule=cosine --set data.eval_split=2 --set run.eval_every=3",
    "lora-hqq": COMMON + TEXT + LORA.format("hqq,lora") + " --set optim.learning_rate=1e-3",
    # Rows that lose most of their tokens.
    "full": COMMON + "--model small --data text.jsonl --set model.compute=f32 --set optim.weight_decay=0.1 "
    "--set data.max_seq_len=16 --set optim.learning_rate=1e-3",
    "fsdp": COMMON + TEXT + LORA.format("nf4,lora,fsdp") + " --ranks 2 --set data.micro_batch=2",
}
SWAP = (
    COMMON + TEXT + LORA.format("nf4,lora") + " --set run.max_steps=90 --set run.save_every=30 --set run.keep_last=9 "
    "--set data.batch_size=16"
)
COMPARE = (
    COMMON + CHAT + LORA.format("lora") + " --arms nf4,int8 --set compare.seeds=2 --set data.eval_split=4 "
    "--set run.eval_every=3"
)
LONGER = COMPARE + " --set run.max_steps=40 --set run.save_every=50 --set run.eval_every=20 --set data.batch_size=16"


def main():
    host, out = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(host, pathlib.Path(folder), out)
        bench.lay()
        for name, words in RUNS.items():
            bench.train(name, words)
            bench.keep(name, words, "train", pick="step-3")
        bench.finished("finished", RUNS["lora-nf4"], "lora-nf4-whole")
        bench.swapped("swapped", SWAP)
        bench.compared("compared", COMPARE)
        bench.interrupted("interrupted", LONGER)


class Bench:
    def __init__(self, host, folder, out):
        self.host, self.folder, self.out = host, folder, out

    def command(self, name, words, more=""):
        return [str(self.host), name, *words.split(), *more.split()]

    def run(self, name, words, more=""):
        command = self.command(name, words, more)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, env=self.environment())
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    def environment(self):
        return {**os.environ, "XDG_DATA_HOME": str(self.folder / "user")}

    def lay(self):
        """The rows, the template and a small model, which tests lay out again, and the model that they have."""
        shutil.copytree(TRAINED, self.folder / "model")
        chat, text = [], []
        for number in range(24):
            subject, verb, thing = SUBJECTS[number % 8], VERBS[number % 6], SUBJECTS[(3 * number + 1) % 8]
            turns = []
            for turn in range(1 + number % 3):
                turns.append({"role": "user", "content": f"And what of {subject}, {turn}?"})
                turns.append({"role": "assistant", "content": f"Behold, {subject} {verb} {thing}."})
            chat.append({"messages": turns})
            text.append({"text": f"And it came to pass that {subject} {verb} {thing}, and there were {number} of them."})
        for name, rows in [("chat", chat), ("text", text)]:
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (self.folder / f"{name}.jsonl").write_text(lines)
        (self.folder / "template.jinja").write_text(TEMPLATE)
        config = json.loads((TRAINED / "config.json").read_text())
        config.update(hidden_size=16, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2,
                      num_key_value_heads=1, head_dim=8)
        bare = self.folder / "bare"
        shutil.copytree(TRAINED, bare, ignore=shutil.ignore_patterns("*.safetensors"))
        (bare / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        self.run("train", "--quiet --model bare --data text.jsonl --out made --set model.init=random --set run.max_steps=0")
        shutil.copytree(self.folder / "made" / "model", self.folder / "small")
        for name in ["chat.jsonl", "text.jsonl", "template.jinja"]:
            shutil.copy(self.folder / name, self.out)
        (self.out / "small").mkdir()
        for name in ["config.json", "model.safetensors"]:
            shutil.copy(self.folder / "small" / name, self.out / "small")

    def train(self, name, words):
        self.run("train", words, f"--out {name}-whole")

    def keep(self, name, words, command, pick):
        """Keeps the run `name` as it was after the checkpoint `pick`, and what going on from there gives."""
        left, again = self.folder / name, self.folder / f"{name}-again"
        shutil.copytree(self.folder / f"{name}-whole", left)
        for other in (left / "checkpoints").iterdir():
            if other.name != pick:
                shutil.rmtree(other)
        for saved in ["adapter", "model"]:
            shutil.rmtree(left / saved, ignore_errors=True)
        (left / "report.json").unlink()
        shutil.copytree(left, again)
        self.run(command, words, f"--out {again.name} --resume")
        whole = self.folder / f"{name}-whole"
        if run_of(whole) != run_of(again):
            sys.exit(f"{name}: going on gave other bits than never having stopped")
        self.write(name, left, words, command, {"run": run_of(again)})

    def finished(self, name, words, whole):
        run = self.folder / whole
        prompt = "And it came to pass"
        shutil.rmtree(run / "checkpoints")
        said = self.generated(whole, prompt)
        expected = {"run": run_of(run), "prompt": prompt, "generated": said}
        self.write(name, run, words, "train", expected)

    def generated(self, run, prompt):
        command = [*self.command("generate", f"--run {run} --max-tokens 24 --temperature 0 --threads 2"), "--prompt", prompt]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, env=self.environment(), check=True)
        return done.stdout

    def swapped(self, name, words):
        whole = self.folder / f"{name}-whole"
        command = self.command("train", words, f"--out {whole.name}")
        with subprocess.Popen(command, cwd=self.folder, env=self.environment()) as running:
            wait(lambda: steps(whole) >= 3)
            self.run("swap", f"--run {whole.name} quantizer=hqq")
        if running.returncode != 0:
            sys.exit(f"{name}: exit code {running.returncode}")
        step = json.loads((whole / "run.json").read_text())["swaps"][0]["step"]
        if step >= 60:
            sys.exit(f"{name}: swapped only before step {step + 1}")
        self.keep(name, words, "train", pick="step-60")

    def compared(self, name, words):
        self.run("compare", words, f"--out {name}")
        out = self.folder / name
        for run in out.glob("arms/*/seed-*"):
            shutil.rmtree(run / "checkpoints")
            (run / "report.json").unlink()
        self.write(name, out, words, "compare", {"runs": runs_of(out)})

    def interrupted(self, name, words):
        left, again = self.folder / name, self.folder / f"{name}-again"
        command = self.command("compare", words, f"--out {name}")
        with subprocess.Popen(command, cwd=self.folder, env=self.environment(), stderr=subprocess.DEVNULL) as running:
            wait(lambda: steps(left / "arms/int8/seed-42") >= 3)
            running.send_signal(signal.SIGINT)
        if running.returncode != 130:
            sys.exit(f"{name}: exit code {running.returncode}")
        shutil.copytree(left, again)
        self.run("compare", words, f"--out {again.name} --resume")
        self.run("compare", words, f"--out {name}-whole")
        if runs_of(again) != runs_of(self.folder / f"{name}-whole"):
            sys.exit(f"{name}: going on gave other bits than never having stopped")
        self.write(name, left, words, "compare", {"runs": runs_of(again)})

    def write(self, name, left, words, command, expected):
        target = self.out / name
        dropped = shutil.ignore_patterns("report.html", "tensorboard", "*.lock", "lock")
        shutil.copytree(left, target / "out", ignore=dropped)
        record = next((left / "arms").glob("*/seed-42/run.json")) if command == "compare" else left / "run.json"
        machine = json.loads(record.read_text())
        head = {"command": command, "words": words.split(), "instruction_set": machine["instruction_set"]}
        (target / "expected.json").write_text(in_lines(head | expected) + "\n")


def in_lines(expected):
    """JSON with a line for each line of metrics."""
    text = json.dumps(expected)
    return text.replace('{"step"', '\n{"step"').replace('"files"', '\n"files"')


def run_of(run):
    """What of a run is equal to the bit however it came about."""
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())
    metrics = [{key: line[key] for key in EXACT if key in line} for line in lines if "swap" not in line]
    saved = next(path for path in [run / "adapter", run / "model"] if path.is_dir())
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(saved.iterdir())}
    return {"metrics": metrics, "files": files}


def runs_of(out):
    runs = sorted(out.glob("arms/*/seed-*"))
    return {str(run.relative_to(out)): run_of(run) for run in runs}


def steps(run):
    try:
        return (run / "metrics.jsonl").read_text().count('"grad_norm"')
    except FileNotFoundError:
        return 0


def wait(ready):
    end = time.monotonic() + 120
    while not ready():
        if time.monotonic() > end:
            sys.exit("waited for two minutes")
        time.sleep(0.005)


main()
