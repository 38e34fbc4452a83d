"""Compares regenerated golden data with the committed, tensor by tensor.

usage: compare.py GOLDEN OUT      exit status 1 where a tensor is missing or differs by > 1e-4
"""

import sys
from pathlib import Path

from safetensors.torch import load_file

LIMIT = 1e-4  # of the tensor's largest value: other CPUs round differently


def main():
    golden, out = Path(sys.argv[1]), Path(sys.argv[2])
    bad = 0
    for path in sorted(out.rglob("*.safetensors")):
        name = path.relative_to(out)
        if not (golden / name).exists():
            print(f"{name}: not committed")
            continue
        old, new = load_file(golden / name), load_file(path)
        missing = sorted(key for key in old.keys() ^ new.keys() if not key.endswith("_asis"))
        worst, where = 0.0, ""
        for key in old.keys() & new.keys():
            a, b = old[key].double(), new[key].double()
            if a.shape != b.shape:
                missing.append(key)
                continue
            scale = a.abs().max().item() if a.numel() else 0.0
            difference = (a - b).abs().max().item() / (scale or 1.0) if a.numel() else 0.0
            # A whole model in bf16 is a loose reference.
            if difference > worst and not key.startswith("bf16."):
                worst, where = difference, key
        verdict = "identical" if worst == 0 else f"{worst:.1e} of the largest value at {where}"
        print(f"{name}: {verdict}" + (f"; differing keys {missing}" if missing else ""))
        bad += bool(missing) or worst > LIMIT
    sys.exit(1 if bad else 0)


main()
