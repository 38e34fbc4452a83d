// What the decoder of a described format is written with, from its description, by plugins/backend-cuda/src/decoder.
#pragma once
#include "codes.cuh"
#include "tables.cuh"

// An element of a weight: its flat index, and its row and column.
struct Place {
  uint64_t i;
  uint64_t row;
  uint64_t column;
};
DEVICE Place place_of(uint64_t i, const Shape& shape) {
  uint64_t row = i / shape.columns;
  return Place{i, row, i - row * shape.columns};
}
DEVICE Place behind(const Place& at, const Shape& shape) {
  bool is_last = at.column + 1 == shape.columns;
  return Place{at.i + 1, at.row + is_last, is_last ? 0 : at.column + 1};
}

// Puts outliers of type T in place of the values of N elements from element i on, a multiple of N: COUNT of each block of SIZE
// elements, of which the last holds.
template <int SIZE, int COUNT, class T, int N>
DEVICE void replace_outliers(const uint8_t* positions, const uint8_t* values, uint64_t i, float (&v)[N]) {
  if constexpr (SIZE % N == 0) {
    uint64_t first = i / SIZE * COUNT;
    int begin = (int)(i % SIZE);
#pragma unroll 1
    for (int entry = 0; entry < COUNT; entry++) {
      int k = positions[first + entry] - begin;
      if (k < 0 || k >= N) continue;
      float value = number<T>(values, first + entry);
#pragma unroll
      for (int lane = 0; lane < N; lane++) v[lane] = lane == k ? value : v[lane];
    }
  } else {
#pragma unroll
    for (int lane = 0; lane < N; lane++) {
      float one[1] = {v[lane]};
      replace_outliers<SIZE, COUNT, T>(positions, values, i + lane, one);
      v[lane] = one[0];
    }
  }
}

// Multiplies each run of SIZE values by Sylvester's Hadamard matrix, as core/interface/src/format/steps.rs has it. A thread has N
// neighbours. Where SIZE is more, lanes side by side have a run, and all lanes of the warp call it.
template <int SIZE, int N>
DEVICE void multiply_hadamard(float (&v)[N]) {
#pragma unroll
  for (int distance = 1; distance < SIZE && distance < N; distance *= 2) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      if (k & distance) continue;
      float low = v[k], high = v[k + distance];
      v[k] = low + high;
      v[k + distance] = low - high;
    }
  }
#pragma unroll
  for (int mask = 1; mask < SIZE / N; mask *= 2) {
    bool is_high = threadIdx.x & mask;
#pragma unroll
    for (int k = 0; k < N; k++) {
      float other = exchange(v[k], mask);
      v[k] = is_high ? other - v[k] : v[k] + other;
    }
  }
}
