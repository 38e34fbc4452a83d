"""The program, its command line, and its events."""
import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

from . import errors

# Lines of the program's messages that are kept for an exception.
_MOST_LINES = 20


def program():
    """The path of the program: ESPALIER_HOST, that of this package, or `espalier` on PATH."""
    named = os.environ.get("ESPALIER_HOST")
    packed = Path(__file__).parent / "bin" / "host"
    found = named or (str(packed) if packed.is_file() else shutil.which("espalier"))
    if not found:
        raise FileNotFoundError(
            "expected the program `host` in this package, or `espalier` on PATH; "
            "name it by the variable ESPALIER_HOST"
        )
    return found


def toml(value):
    """A value in TOML: texts, numbers, lists and tables of them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, os.PathLike)):
        return json.dumps(os.fspath(value), ensure_ascii=False)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(each) for each in value) + "]"
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {toml(each)}" for key, each in value.items())
        return "{ " + ", ".join(pairs) + " }"
    raise TypeError(f"expected a text, a number, a list or a table, found {value!r}")


def words(config=None, set=None, **flags):
    """Flags of the command line: `max_tokens=3` is `--max-tokens 3`, None is left out."""
    line = []
    configs = [] if config is None else config if isinstance(config, (list, tuple)) else [config]
    for each in configs:
        line += ["--config", os.fspath(each)]
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            line.append(flag)
        elif name == "plugins" and isinstance(value, (list, tuple)):
            line += [flag, ",".join(value)]
        elif isinstance(value, (list, tuple)):
            line.append(flag)
            line += [os.fspath(each) if isinstance(each, os.PathLike) else str(each) for each in value]
        else:
            line += [flag, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    for key, value in (set or {}).items():
        line += ["--set", f"{key}={toml(value)}"]
    return line


def output(line):
    """The standard output of a command.

    Raises the exception of its exit code.
    """
    done = subprocess.run([program(), *line], capture_output=True, text=True)
    if done.returncode != 0:
        raise errors.of(done.returncode, _last(done.stderr.splitlines()))
    return done.stdout


def events(line, on_event):
    """Runs a command, and calls `on_event` for each of its events.

    Returns whether it was stopped: `on_event` returned False, or Ctrl-C was pressed. An exception
    of `on_event` stops it, too, and is raised once it has ended.
    """
    reading, writing = os.pipe()
    started = subprocess.Popen(
        [program(), line[0], "--events", str(writing), *line[1:]],
        pass_fds=[writing],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C of a terminal or notebook reaches this process alone, which passes it on.
        start_new_session=True,
    )
    os.close(writing)
    said = []
    messages = threading.Thread(target=_keep, args=(started.stderr, said), daemon=True)
    messages.start()
    raised = None
    stops = False
    with os.fdopen(reading, encoding="utf-8") as lines:
        while True:
            try:
                text = lines.readline()
                if not text:
                    break
                if raised is None and on_event(json.loads(text)) is False and not stops:
                    stops = True
                    started.send_signal(signal.SIGTERM)
            except BaseException as error:
                if raised is not None:
                    started.kill()
                    raise
                raised = error
                if not stops:
                    started.send_signal(signal.SIGTERM)
    code = started.wait()
    messages.join()
    if raised is not None and not isinstance(raised, KeyboardInterrupt):
        raise raised
    stops = stops or raised is not None
    if code == 0 or stops and code == 128 + signal.SIGTERM:
        return code != 0
    raise errors.of(code, _last(said))


def _keep(stream, said):
    for text in stream:
        said.append(text.rstrip("\n"))
        del said[:-_MOST_LINES]


def _last(said):
    """The lines that say what failed, else the last one."""
    failed = [text for text in said if text.startswith("error")]
    return "\n".join(failed or said[-1:] or ["it ended without a message"])
