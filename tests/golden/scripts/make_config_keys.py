"""Writes every key of transformers' configs of the shipped families, with its default.

usage: make_config_keys.py GOLDEN OUT

OUT: receives OUT/config/keys.json. GOLDEN is not read.

A test reads each config as a family does: every default is taken, and another value is used or
refused, never ignored.
"""

import json
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import transformers
from transformers import AutoConfig

FAMILIES = [
    "llama", "mistral", "qwen2", "qwen3", "granite", "gemma2", "gemma3_text", "phi3", "starcoder2",
]


def keys(family):
    """All keys of a family's config, sorted, with values of JSON."""
    config = AutoConfig.for_model(family).to_dict()
    return json.loads(json.dumps(config, default=str, sort_keys=True))


if __name__ == "__main__":
    families = {family: keys(family) for family in FAMILIES}
    found = {"transformers": transformers.__version__, "families": families}
    path = Path(sys.argv[2]) / "config/keys.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
