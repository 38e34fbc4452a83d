// What a format's decoder has in shared memory: the values of codes.
//
// The host defines before it TABLE_WORDS and TABLE_VALUES, the lengths of both arrays, and TABLES_IN_MEMORY where they are too
// long for a kernel's arguments. Kernels that read no tables define nothing.
#pragma once
#include "segments.cuh"

#ifndef TABLE_VALUES
#define TABLE_WORDS 1
#define TABLE_VALUES 2
#endif

struct Tables {
  // Words of each list of codes that are split. They depend on the weight's shape, which sources do not.
  uint64_t words[TABLE_WORDS];
  // The values of codes, one table behind the other. Their number is even.
  float values[TABLE_VALUES];
};

// As a kernel takes them.
#ifdef TABLES_IN_MEMORY
struct GivenTables {
  const Tables* start;
};
DEVICE const Tables& tables_of(const GivenTables& given) { return *given.start; }
#else
typedef Tables GivenTables;
DEVICE const Tables& tables_of(const GivenTables& given) { return given; }
#endif

// A packed weight, as a kernel takes it. It is one argument, because the compiler copies smaller ones to each thread's stack.
struct PackedWeight {
  Segments segments;
  GivenTables tables;
};

// This block's copy of a weight's tables, in shared memory of as many bytes. All threads call it. Each address of a kernel's
// arguments that a warp reads is an access of its own, so a thread takes two numbers.
DEVICE const Tables& shared_tables(const PackedWeight& weight, unsigned char* memory) {
  const uint64_t* from = (const uint64_t*)&tables_of(weight.tables);
  for (int k = threadIdx.x; k < (int)(sizeof(Tables) / 8); k += THREADS) ((uint64_t*)memory)[k] = from[k];
  __syncthreads();
  return *(const Tables*)memory;
}
