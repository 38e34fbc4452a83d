"""Espalier from Python: trainings by the program `host`, in a process of its own.

    import espalier_train as espalier

    run = espalier.train(
        plugins=["nf4", "lora"], model="models/llama", data="train.jsonl", out="runs/first",
        set={"run.max_steps": 100}, on_step=lambda step: print(step["loss"]),
    )
    print(run.metrics[-1], run.adapter)

Nothing is computed here. A callback that returns False, or raises, stops the run, which saves a
checkpoint first. A program that fails raises the exception of its exit code.
"""
from .errors import (
    ConfigError,
    DataError,
    EspalierError,
    NotFiniteError,
    OutOfMemoryError,
    PluginError,
    RanksLostError,
    WeightsError,
)
from .process import program
from .run import Run, evaluate, generate, plan, train

__all__ = [
    "ConfigError",
    "DataError",
    "EspalierError",
    "NotFiniteError",
    "OutOfMemoryError",
    "PluginError",
    "RanksLostError",
    "Run",
    "WeightsError",
    "evaluate",
    "generate",
    "plan",
    "program",
    "train",
]
