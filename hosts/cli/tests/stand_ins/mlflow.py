"""The part of mlflow that the package calls -> its calls, kept in `CALLS`."""
from types import SimpleNamespace

CALLS = []
# An exception that the next `log_metrics` raises.
fault = None
_active = None


def active_run():
    return _active


def start_run(run_name=None, run_id=None):
    global _active
    CALLS.append(("start_run", run_name, run_id))
    _active = SimpleNamespace(info=SimpleNamespace(run_id=run_id or "m1"))
    return _active


def log_params(params):
    assert len(params) <= 100, "more than MLflow takes"
    CALLS.append(("log_params", params))


def log_metrics(metrics, step):
    if fault is not None:
        raise fault
    CALLS.append(("log_metrics", step, metrics))


def end_run(status="FINISHED"):
    global _active
    CALLS.append(("end_run", status))
    _active = None
