"""Writes tensorboard/: event files as TensorBoard's own writer makes them, and how it reads them.

Usage: tensorboard_events.py GOLDEN      (needs the package tensorboard; made with 2.21.0)

A run of three steps with an evaluation after two, then the same run gone on with after step 2:
`uninterrupted`, `cut` (what is left of it) and `resumed` (the file that joins it).
"""

import sys
import tempfile
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter


def scalars(step, wall_time, **values):
    values = [Summary.Value(tag=tag.replace("__", "/"), simple_value=v) for tag, v in values.items()]
    return Event(step=step, wall_time=wall_time, summary=Summary(value=values))


def write(path, events):
    with open(path, "wb") as file:
        writer = RecordWriter(file)
        for event in events:
            writer.write(event.SerializeToString())


def version(wall_time):
    return Event(wall_time=wall_time, file_version="brain.Event:2")


folder = Path(sys.argv[1]) / "tensorboard"
folder.mkdir(exist_ok=True)
begun = [
    version(1000.5),
    scalars(0, 1000.75, eval__loss=5.75),
    scalars(1, 1001.0, train__loss=5.5, train__learning_rate=0.0),
    scalars(2, 1002.0, train__loss=5.25, train__learning_rate=3e-4),
    scalars(2, 1002.5, eval__loss=5.125),
]
write(folder / "uninterrupted", begun + [scalars(3, 1003.0, train__loss=5.0, train__learning_rate=2e-4)])
write(folder / "cut", begun)
start = Event(step=3, wall_time=2000.0, session_log=SessionLog(status=SessionLog.START))
last = scalars(3, 2001.0, train__loss=5.0, train__learning_rate=2e-4)
write(folder / "resumed", [version(2000.0), start, last])


def read(*names):
    """(step, value) of train/loss, as TensorBoard reads these files one after the other."""
    with tempfile.TemporaryDirectory() as logs:
        for index, name in enumerate(names):
            target = Path(logs) / f"events.out.tfevents.{index:010}.espalier"
            target.write_bytes((folder / name).read_bytes())
        accumulator = EventAccumulator(logs)
        accumulator.Reload()
        return [(event.step, event.value) for event in accumulator.Scalars("train/loss")]


whole = [(1, 5.5), (2, 5.25), (3, 5.0)]
assert read("uninterrupted") == whole
assert read("cut", "resumed") == whole
# One that has read what was cut off forgets it.
assert read("uninterrupted", "resumed") == whole
