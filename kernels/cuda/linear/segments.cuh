// What the decoder of a packed weight is written with: the kernels' own, and a quantizer's device code, which the host puts behind
// this header in the namespace `device_code`. core/interface/src/format/device_code.rs says what such code may count on.
#pragma once
#include "element.cuh"

constexpr int MOST_SEGMENTS = 16;
struct Segments {
  const uint8_t* start[MOST_SEGMENTS];
};
// Of a weight.
struct Shape {
  uint64_t rows;
  uint64_t columns;
};
// A number as stored: of f32, bf16 or f16.
template <class T>
DEVICE float number(const uint8_t* segment, uint64_t at) {
  return widen(((const T*)segment)[at]);
}
// A number between other bytes, which begins at byte `at` of the segment: at a multiple of its size where that is said.
template <class T, bool IS_ALIGNED>
DEVICE float interleaved_number(const uint8_t* segment, uint64_t at) {
  if constexpr (IS_ALIGNED) return number<T>(segment + at, 0);
  uint32_t bits = 0;
#pragma unroll
  for (int k = 0; k < (int)sizeof(T); k++) bits |= (uint32_t)segment[at + k] << 8 * k;
  if constexpr (sizeof(T) == 4)
    return bits_float(bits);
  else
    return widen(T{(uint16_t)bits});
}
