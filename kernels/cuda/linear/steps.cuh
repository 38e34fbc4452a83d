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
