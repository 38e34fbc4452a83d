"""Trainings, plans, evaluations and answers."""
import json
import math
from pathlib import Path

from . import process
from .log import Logs
from .progress import Progress


class Run:
    """A run's folder.

    `metrics` are the steps and `evaluations` the evaluations, as in its `metrics.jsonl`; `stopped`
    says whether a callback ended it. `adapter`, `model` and `report` are paths, None where the run
    has none.
    """

    def __init__(self, out, stopped=False):
        self.out = Path(out)
        self.stopped = stopped

    def _lines(self):
        path = self.out / "metrics.jsonl"
        if not path.is_file():
            return []
        lines = path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    @property
    def metrics(self):
        return [line for line in self._lines() if "loss" in line]

    @property
    def evaluations(self):
        return [line for line in self._lines() if "eval_loss" in line]

    @property
    def adapter(self):
        return self._there("adapter")

    @property
    def model(self):
        return self._there("model")

    @property
    def report(self):
        return self._there("report.html")

    def _there(self, name):
        path = self.out / name
        return path if path.exists() else None

    def __repr__(self):
        return f"Run({str(self.out)!r}, stopped={self.stopped})"


def train(config=None, *, out, on_step=None, on_event=None, log=None, progress=None, **settings):
    """Trains, and returns the :class:`Run`.

    `config` is a TOML file or a list of them. Other arguments are the flags of `host train`
    (`plugins`, `model`, `data`, `adapter`, `backend`, `ranks`, ...), and `set` a dict of config keys:
    `{"optim.learning_rate": 1e-4}`. `resume=True` goes on with the run in `out`.

    `on_step` gets the metrics of each step, `on_event` every event of `--events`. One that returns
    False stops the run with a checkpoint.

    `log` names what the metrics are logged to while it trains, `"wandb"` and `"mlflow"`. The run
    has the name of its folder, and the config as params. A run of theirs that is active already is
    used, and not ended; `resume` goes on with the one of before.

    `progress` shows a line of what the run does, and its warnings, on standard error; left out, in
    notebooks and terminals.
    """
    logs = Logs(log, out)
    watched = Progress(progress)
    resume = settings.pop("resume", False)
    line = ["train", *process.words(config, out=out, quiet=True, **settings)]
    if resume:
        line.append("--resume" if resume is True else f"--resume={resume}")

    def call(event):
        goes_on = True
        logs.take(event)
        watched.take(event)
        if on_event is not None:
            goes_on = on_event(event) is not False
        if on_step is not None and event["event"] == "step":
            goes_on = on_step(event) is not False and goes_on
        return goes_on

    try:
        stopped = process.events(line, call)
    except BaseException:
        logs.end("failed")
        raise
    finally:
        watched.end()
    logs.end("stopped" if stopped else "finished")
    return Run(out, stopped)


def plan(config=None, **settings):
    """What a run would take, as `host plan --json` has it."""
    return json.loads(process.output(["plan", "--json", *process.words(config, **settings)]))


def evaluate(config=None, **settings):
    """Loss, perplexity and accuracy on rows, as `host eval --json` has them.

    `run="runs/first"` names a training run.
    """
    words = process.words(config, quiet=True, **settings)
    found = json.loads(process.output(["eval", "--json", *words]))
    # JSON has no number that is not finite.
    return {key: math.nan if value is None else value for key, value in found.items()}


def generate(prompt, config=None, **settings):
    """The text that follows a prompt.

    `run="runs/first"` names a training run; `max_tokens`, `temperature` and others are the flags of
    `host generate`.
    """
    words = process.words(config, prompt=prompt, quiet=True, **settings)
    return process.output(["generate", *words]).removesuffix("\n")
