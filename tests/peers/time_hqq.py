"""How long hqq and the plugin `hqq` take to encode the same weights, in turns in one run, and how many codes differ.

usage: time_hqq.py WORKER OUT [--rounds N] [--rows N] [--cols N,N]      exit status 1 where hqq takes less than 20 times as long
WORKER: the example `hqq_encode` of the package espalier-tests
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from hqq.core.quantize import Quantizer

LEAST = 20


def ask(worker, **request):
    worker.stdin.write(json.dumps(request) + "\n")
    worker.stdin.flush()
    return json.loads(worker.stdout.readline())


def theirs(weight, bits, axis):
    start = time.perf_counter()
    packed, meta = Quantizer.quantize(weight, nbits=bits, round_zero=bits == 4, axis=axis, device="cpu")
    return time.perf_counter() - start, packed, meta


def differing(out, weight, bits, axis, threads):
    """Codes, scales and zeros that differ from hqq's on so many threads: its sums, and so its last step, depend on them."""
    torch.set_num_threads(threads)
    _, packed, meta = theirs(weight, bits, axis)
    ours = torch.frombuffer(bytearray((out / "codes").read_bytes()), dtype=packed.dtype).view(packed.shape)
    unpack = Quantizer.unpack[meta["packing"]]
    codes = (unpack(ours) != unpack(packed)).sum().item()
    numbers = 0
    for name in ("scale", "zero"):
        found = torch.frombuffer(bytearray((out / name).read_bytes()), dtype=torch.float32)
        numbers += (found.view(meta[name].shape) != meta[name]).sum().item()
    return codes, numbers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", default="4096,11008")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    worker = subprocess.Popen([arguments.worker, str(cores)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    slowest = float("inf")
    for cols in map(int, arguments.cols.split(",")):
        generator = torch.Generator().manual_seed(7)
        weight = torch.randn(arguments.rows, cols, generator=generator) * 0.02
        weight.numpy().tofile(out / "weight")
        for bits in (4, 3, 2):
            for axis in (1, 0):
                request = dict(shape=[arguments.rows, cols], options=dict(bits=bits, axis=axis), folder=str(out))
                times = ([], [])
                for _ in range(arguments.rounds):
                    torch.set_num_threads(cores)
                    times[0].append(ask(worker, **request)["secs"])
                    times[1].append(theirs(weight, bits, axis)[0])
                ours, peers = map(statistics.median, times)
                ratio = peers / ours
                slowest = min(slowest, ratio)
                rate = weight.numel() / 1e6
                alone, many = (differing(out, weight, bits, axis, threads) for threads in (1, cores))
                print(
                    f"{arguments.rows}x{cols} {bits} bits axis {axis}: {rate / ours:.0f} and {rate / peers:.2f} million weights a "
                    f"second, {ratio:.1f} times hqq's speed; of {weight.numel()} codes {alone[0]} differ from hqq's on one thread "
                    f"({alone[1]} scales and zeros), {many[0]} on {cores}",
                    flush=True,
                )
    worker.stdin.close()
    worker.wait()
    print(f"at least {slowest:.1f} times hqq's speed, on {cores} threads each; expected {LEAST}")
    sys.exit(slowest < LEAST)


main()
