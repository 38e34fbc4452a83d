"""Compares regenerated golden data with the committed, tensor by tensor, and the JSON of chat/ and config/.

usage: compare.py GOLDEN OUT      exit status 1 where a tensor is missing or differs by > 1e-4, or JSON differs

Whole numbers must be identical. Weights after training (the files `*_final`, `final_params_*` and
`adapter_trained_*`, the tensors `last.*`) are measured by their norm: AdamW moves a weight whose gradient is rounding
by as much as any other, so that single weights say nothing. So are the tensors of `bf16/`, which may differ by 3e-2:
another order of sums moves values across rounding boundaries.
"""

import gzip
import json
import math
import sys
from pathlib import Path

import torch
from compressed import load_compressed

LIMIT = 1e-4  # of the tensor's largest value, or of its norm: other CPUs round differently
BF16_LIMIT = 3e-2  # of the tensor's norm: AVX2 and AVX-512 differ by up to 2e-2


def difference(old, new, by_norm):
    """How far `new` is from `old`, as a share of it."""
    # By their bits: codes that are kept in floats may read as no number.
    if old.numel() == 0 or torch.equal(*(values.flatten().view(torch.uint8) for values in (old, new))):
        return 0.0
    if not old.is_floating_point():
        return float("inf")
    old, new = old.double(), new.double()
    size = torch.linalg.vector_norm if by_norm else lambda values: values.abs().max()
    share = (size(old - new) / (size(old) or 1.0)).item()
    return float("inf") if math.isnan(share) else share


def load_json(path):
    """The content of a file that is compressed or not."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def is_trained(name):
    """Whether the file `name` holds weights after training."""
    places = (name.stem, name.parent.name)
    return name.stem.endswith("_final") or any(place.startswith(("final_params_", "adapter_trained_")) for place in places)


def main():
    golden, out = Path(sys.argv[1]), Path(sys.argv[2])
    bad = 0
    for path in sorted([*out.rglob("*.safetensors"), *out.rglob("*.safetensors.gz")]):
        name = path.relative_to(out)
        if not (golden / name).exists():
            print(f"{name}: not committed")
            continue
        old, new = load_compressed(golden / name), load_compressed(path)
        missing = sorted(key for key in old.keys() ^ new.keys() if not key.endswith("_asis"))
        in_bf16 = name.parts[0] == "bf16"
        of_norm = in_bf16 or is_trained(name)
        worst, where, measure = 0.0, "", ""
        for key in old.keys() & new.keys():
            if old[key].shape != new[key].shape or old[key].dtype != new[key].dtype:
                missing.append(key)
                continue
            by_norm = of_norm or key.startswith("last.")
            found = difference(old[key], new[key], by_norm)
            # Shares of a norm already, in f32 of its rounding.
            if key == "errors":
                found = (old[key] - new[key]).abs().max().item()
            # A whole model in bf16 is a loose reference.
            if found > worst and not key.startswith("bf16."):
                worst, where, measure = found, key, "norm" if by_norm else "largest value"
        verdict = "identical" if worst == 0 else f"{worst:.1e} of the {measure} at {where}"
        print(f"{name}: {verdict}" + (f"; differing keys {missing}" if missing else ""))
        bad += bool(missing) or worst > (BF16_LIMIT if in_bf16 else LIMIT)
    # Texts and whole numbers. The other JSON is about the tensors.
    for path in sorted([*out.glob("chat/*.json*"), *out.glob("config/*.json")]):
        name = path.relative_to(out)
        same = (golden / name).exists() and load_json(golden / name) == load_json(path)
        print(f"{name}: {'identical' if same else 'differs'}")
        bad += not same
    sys.exit(1 if bad else 0)


main()
