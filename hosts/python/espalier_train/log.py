"""Events of a run -> Weights & Biases and MLflow, while it trains."""
import importlib
import json
import math
import re
import warnings
from pathlib import Path

# Params that MLflow takes in one call, and characters of one.
_PARAMS = 100
_PARAM_CHARS = 500


class Logs:
    """The named loggers of a run in the folder `out`."""

    def __init__(self, names, out):
        names = [names] if isinstance(names, str) else list(names or [])
        unknown = [name for name in names if name not in _LOGGERS]
        if unknown:
            expected = ", ".join(sorted(_LOGGERS))
            raise ValueError(f"log: expected {expected}, found {unknown[0]!r}")
        self._out = Path(out)
        self._loggers = [_LOGGERS[name](_module(name)) for name in dict.fromkeys(names)]
        self._started = False
        self._described = False

    def take(self, event):
        """Logs an event.

        A logger that cannot start ends the run. One that fails later is left out with a warning:
        the metrics are in the run's folder.
        """
        kind = event["event"]
        if kind == "started" and not self._started:
            self._started = True
            for logger in self._loggers:
                logger.start(self._out.name, _recorded(self._out).get(logger.name))
        if kind not in ("step", "evaluation"):
            return
        if not self._described:
            self._described = True
            self._describe()
        numbers = _numbers(event)
        step = numbers.pop("step")
        self._each(lambda logger: logger.metrics(numbers, step))

    def end(self, state):
        """Ends the runs of the loggers; `state` is finished, stopped or failed."""
        if self._started:
            self._each(lambda logger: logger.end(state))

    def _describe(self):
        """Logs the config, which is on record by now, and records the loggers' runs."""
        record = json.loads((self._out / "run.json").read_text(encoding="utf-8"))
        config = _flat(record.get("config", {}))
        self._each(lambda logger: logger.params(config))
        ids = {logger.name: logger.id for logger in self._loggers if logger.id is not None}
        (self._out / _RECORD).write_text(json.dumps(ids) + "\n", encoding="utf-8")

    def _each(self, call):
        for logger in list(self._loggers):
            try:
                call(logger)
            except Exception as error:
                self._loggers.remove(logger)
                warnings.warn(f"{logger.name} ends here, the run goes on: {error!r}", stacklevel=2)


class _Wandb:
    """A run of Weights & Biases: that of the caller, else a new one or the one on record."""

    name = "wandb"

    def __init__(self, module):
        self._module = module
        self._own = False
        self._run = None
        self.id = None

    def start(self, name, earlier):
        self._run = self._module.run
        if self._run is None:
            self._own = True
            again = {} if earlier is None else {"id": earlier, "resume": "allow"}
            self._run = self._module.init(name=name, **again)
        self.id = self._run.id

    def params(self, config):
        self._run.config.update(config, allow_val_change=True)

    def metrics(self, numbers, step):
        self._run.log(numbers, step=step)

    def end(self, state):
        if self._own:
            self._run.finish(exit_code=1 if state == "failed" else 0)


class _Mlflow:
    """A run of MLflow: that of the caller, else a new one or the one on record."""

    name = "mlflow"

    def __init__(self, module):
        self._module = module
        self._own = False
        self._again = False
        self.id = None

    def start(self, name, earlier):
        run = self._module.active_run()
        if run is None:
            self._own = True
            self._again = earlier is not None
            again = {} if earlier is None else {"run_id": earlier}
            run = self._module.start_run(run_name=name, **again)
        self.id = run.info.run_id

    def params(self, config):
        # A param keeps its first value.
        if self._again:
            return
        # MLflow's names have no other characters; a pattern of weights can have some.
        named = {re.sub(r"[^\w./ -]", "_", key): str(value) for key, value in config.items()}
        items = [(key, value[:_PARAM_CHARS]) for key, value in named.items() if value]
        for first in range(0, len(items), _PARAMS):
            self._module.log_params(dict(items[first : first + _PARAMS]))

    def metrics(self, numbers, step):
        self._module.log_metrics(numbers, step=step)

    def end(self, state):
        if self._own:
            states = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
            self._module.end_run(status=states[state])


_LOGGERS = {"wandb": _Wandb, "mlflow": _Mlflow}
# The file of the loggers' runs, with which a resumed run goes on.
_RECORD = "logged.json"


def _module(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ModuleNotFoundError(
            f"log: expected the package {name}, found none; install it: pip install {name}",
            name=name,
        ) from None


def _recorded(out):
    path = out / _RECORD
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _numbers(event):
    """The numbers of a line of metrics; those of a list by their index."""
    found = {}
    for key, value in event.items():
        if isinstance(value, list):
            found.update({f"{key}.{index}": each for index, each in enumerate(value)})
        else:
            found[key] = value
    return {
        key: value
        for key, value in found.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }


def _flat(config, before=""):
    """The config by its keys: `optim.learning_rate`. Unset keys are left out."""
    found = {}
    for key, value in config.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{before}{key}."))
        elif value is not None:
            found[before + key] = value
    return found
