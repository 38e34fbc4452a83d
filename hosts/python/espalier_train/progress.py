"""Events of a run -> a line of progress that is written over, in a notebook or a terminal."""
import sys
import time

# Seconds between two drawings of the line.
_PAUSE = 0.1


class Progress:
    """What a run does, on standard error. `shown` None: where somebody watches."""

    def __init__(self, shown=None):
        self._shown = _is_watched() if shown is None else shown
        self._total = 0
        self._step = None
        self._held_out = ""
        self._drawn = 0.0
        self._width = 0

    def take(self, event):
        """Shows an event."""
        kind = event["event"]
        if kind == "started":
            self._total = event["total_steps"]
        elif kind == "evaluation":
            self._held_out = f"  held-out loss {_number(event['eval_loss'])}"
        elif kind == "warning":
            self._clear()
            self._write(f"warning: {event['text']}\n")
        elif kind == "progress":
            share = 100 * event["done"] // max(event["total"], 1)
            self._draw(f"{event['work']} {share} %", event["done"] == event["total"])
        elif kind == "step":
            self._step = event
            self._draw(self._of_step(), event["step"] == self._total)

    def end(self):
        """Ends the line, with the last step."""
        if self._step is not None:
            self._draw(self._of_step(), True)
        if self._width:
            self._write("\n")
            self._width = 0

    def _of_step(self):
        step = self._step
        loss = f"loss {_number(step['loss'])}{self._held_out}"
        return f"step {step['step']}/{self._total}  {loss}  {step['tokens_per_sec']:.0f} tokens/s"

    def _draw(self, line, must):
        now = time.monotonic()
        if must or now - self._drawn >= _PAUSE:
            self._drawn = now
            # What a longer line before it left is written over.
            self._write("\r" + line.ljust(self._width))
            self._width = len(line)

    def _clear(self):
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _write(self, text):
        if self._shown:
            sys.stderr.write(text)
            sys.stderr.flush()


def _number(value):
    return "not finite" if value is None else f"{value:.4f}"


def _is_watched():
    """Whether this runs in a notebook, or writes to a terminal."""
    kernel = sys.modules.get("IPython")
    shell = kernel.get_ipython() if kernel is not None else None
    in_notebook = shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
    return in_notebook or sys.stderr.isatty()
