// What a format's decoder has in shared memory: the values of codes.
//
// The host defines before it TABLE_WORDS and TABLE_VALUES, the lengths of both arrays. Kernels that read no tables define nothing.
#pragma once
#include "segments.cuh"

#ifndef TABLE_VALUES
#define TABLE_WORDS 1
#define TABLE_VALUES 2
#endif

struct Tables {
  // Words of each list of codes that are split, and the rows of those that have rows. They depend on the weight's shape, which
  // sources do not.
  uint64_t words[TABLE_WORDS];
  // The values of codes, one table behind the other. Their number is even.
  float values[TABLE_VALUES];
};

// A packed weight, as a kernel takes it. It is one argument, because the compiler copies smaller ones to each thread's stack.
struct PackedWeight {
  Segments segments;
  const Tables* tables;
};
