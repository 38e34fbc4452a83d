"""The weights and options of tests/golden/hqq, which two versions of hqq are run on."""
import torch

generator = torch.Generator().manual_seed(31)


def normal(*shape):
    return torch.randn(*shape, generator=generator) * 0.02


def counted(rows, cols):
    """Sums of four even numbers that follow from their place alone: too large to be stored, made again by the test."""
    i = torch.arange(4 * rows * cols, dtype=torch.int64)
    u = ((i * 2654435761) % 2**32 >> 8).double() / 2**24
    return ((u.view(-1, 4).sum(1) - 2) * 0.03).float().view(rows, cols)


W = {
    "normal_64x192": normal(64, 192),
    "heavy_32x128": torch.randn(32, 128, generator=generator) ** 3 * 0.02,
}
w = normal(64, 64)
w[3] = 0
w[:, 9] = 0.5
w[10] = 0.125
w[20, 5] = 3.0
W["degenerate_64x64"] = w
W["crossing_32x40"] = normal(32, 40)  # groups of 64 begin and end within rows
W["wide_16x88"] = normal(16, 88) * 40  # errors that do not shrink to nothing
W["few_8x48"] = normal(8, 48)  # fewer groups of 64 than a vector has numbers
STORED = list(W)
W["counted_384x512"] = counted(384, 512)


def quantize(quantizer, w, bits, size, axis, optimize):
    arguments = dict(nbits=bits, channel_wise=True, group_size=size, optimize=optimize, round_zero=bits == 4, axis=axis)
    return quantizer.quantize(w.clone(), device="cpu", **arguments)


def key(name, bits, size, axis, optimize, profile):
    return f"{name}|{bits}|{size}|{axis}|{int(optimize)}|{profile}"
