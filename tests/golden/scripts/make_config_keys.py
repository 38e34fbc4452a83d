"""transformers' configs of the shipped families -> config/keys.json: every key with its default.

    python make_config_keys.py > ../config/keys.json

A test reads each config as a family does: every default is taken, and another value is used or
refused, never ignored.
"""

import json
import warnings

warnings.filterwarnings("ignore")
import transformers
from transformers import AutoConfig

FAMILIES = [
    "llama", "mistral", "qwen2", "qwen3", "granite", "gemma2", "gemma3_text", "phi3",
]


def keys(family):
    """All keys of a family's config, sorted, with values of JSON."""
    config = AutoConfig.for_model(family).to_dict()
    return json.loads(json.dumps(config, default=str, sort_keys=True))


if __name__ == "__main__":
    families = {family: keys(family) for family in FAMILIES}
    found = {"transformers": transformers.__version__, "families": families}
    print(json.dumps(found, indent=1))
