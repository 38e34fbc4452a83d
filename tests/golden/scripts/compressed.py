"""Golden tensors that compress well -> `NAME.safetensors.gz`, and back."""

import gzip
from pathlib import Path

from safetensors.torch import load, save


def save_compressed(tensors, path):
    """Writes `path`, the same bytes for the same tensors."""
    Path(path).write_bytes(gzip.compress(save(tensors), mtime=0))


def load_compressed(path):
    """The tensors of a file that is compressed or not."""
    data = Path(path).read_bytes()
    return load(gzip.decompress(data) if str(path).endswith(".gz") else data)
