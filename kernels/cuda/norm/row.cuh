// A row's threads: 32 of them where it is short, else a block.
#pragma once
#include "packs.cuh"

// The sum over a row's threads, in all of them.
DEVICE float row_sum(float x, float* scratch, bool whole_block) {
  if (whole_block) return block_sum(x, scratch);
  for (int mask = 16; mask > 0; mask >>= 1) x += exchange(x, mask);
  return x;
}

// This thread's row, and its place among the row's threads. All threads of a warp have the same row.
DEVICE int64_t row_of(int per_row) {
  return per_row == THREADS ? blockIdx.x : (int64_t)blockIdx.x * (THREADS / 32) + (threadIdx.x >> 5);
}
