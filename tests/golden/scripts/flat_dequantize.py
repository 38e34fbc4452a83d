"""Makes bitsandbytes' CPU 4-bit decoding use flat blocks, as its CUDA kernels do.

The AVX512 CPU kernel of bitsandbytes 0.50.2 restarts the block index in every row, which is wrong
where a row's length is not a multiple of the block size. Importing this module calls the same
kernel with the weight as one row.
"""

import ctypes

import bitsandbytes.backends.cpu.ops as cpu_ops

PREFIXES = ("cdequantize_blockwise_cpu_nf4", "cdequantize_blockwise_cpu_fp4")


class FlatLibrary:
    def __init__(self, library):
        self.library = library

    def __getattr__(self, name):
        function = getattr(self.library, name)
        if not name.startswith(PREFIXES):
            return function

        def one_row(codes, absmax, out, block_size, rows, cols):
            count = ctypes.c_longlong(rows.value * cols.value)
            return function(codes, absmax, out, block_size, ctypes.c_longlong(1), count)

        return one_row


cpu_ops.lib = FlatLibrary(cpu_ops.lib)
