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
