// A packed weight -> its values, element by element or many neighbours at once.
//
// The host writes one of two things before the kernel that includes this file. Of a format that its description covers:
//
//   DESCRIBED        defined
//   values_of<N>(segments, tables, place, shape, v)
//                    a function, made of what steps.cuh has: the values of N elements from the one at `place` on, whose index
//                    is a multiple of N. N is CHUNK, and may be 8 where that is more than 1, 8 and 16 where HAS_RUNS is defined
//   CHUNK            1, and more where so many elements are multiplied by one matrix: 8 at most, 16 where a run of 512 lies in a
//                    warp; weights and what is decoded at a time are then whole chunks
//   WHOLE_WARPS      defined where lanes of a warp exchange values of larger matrices: all of them call `values_of`
//   RESIDENT_BLOCKS  blocks of the decoder that a multiprocessor is to run at once
//
// Of another one DEVICE_CODE, and the function `device_code::decode_elements`, which its quantizer brings.
#pragma once
#include "steps.cuh"

#if defined(DESCRIBED) || defined(DEVICE_CODE)
#define PACKED
#endif

// Elements that a thread of `decode` has at once, and those that a block has in all: few, so that blocks that end early make room
// for others, and side by side, so that threads share what they read of blocks of elements.
constexpr int NEIGHBOURS = 8;
constexpr uint64_t STEP = NEIGHBOURS * THREADS, DECODED = 4 * STEP;

// This block's copy of a weight's tables, in shared memory of as many bytes. All threads call it.
DEVICE const Tables& shared_tables(const PackedWeight& weight, unsigned char* memory) {
  const uint64_t* from = (const uint64_t*)weight.tables;
  for (int k = threadIdx.x; k < (int)(sizeof(Tables) / 8); k += THREADS) ((uint64_t*)memory)[k] = from[k];
  __syncthreads();
  return *(const Tables*)memory;
}

#ifdef DESCRIBED
#if defined(HAS_RUNS) || CHUNK > 1
// The values of N elements from the one at `place` on, a multiple of N, which is 8 or 16.
template <int N>
DEVICE void decode_run(const Segments& segments, const Tables& tables, const Place& place, const Shape& shape, float (&v)[N]) {
  values_of(segments, tables, place, shape, v);
}
constexpr bool WITH_RUNS = true;
#else
// The values of N elements from the one at `place` on, one by one.
template <int N>
DEVICE void decode_run(const Segments& segments, const Tables& tables, const Place& place, const Shape& shape, float (&v)[N]) {
  Place own = place;
#pragma unroll
  for (int k = 0; k < N; k++) {
    float one[1];
    values_of(segments, tables, own, shape, one);
    v[k] = one[0];
    own = behind(own, shape);
  }
}
constexpr bool WITH_RUNS = false;
#endif

#ifdef WHOLE_WARPS
constexpr bool IN_WARPS = true;
// y[k] = the value of element begin + k, for `count` elements, all in whole chunks, of which a thread has one at once. Lanes
// without elements decode the first ones, and write nothing.
template <class T>
DEVICE void decode(const Segments& segments, const Tables& tables, T* y, uint64_t begin, uint64_t count, const Shape& shape) {
  uint64_t first = blockIdx.x * DECODED;
  for (uint64_t at = CHUNK * threadIdx.x; at < DECODED; at += CHUNK * THREADS) {
    uint64_t k = first + at;
    float v[CHUNK];
    decode_run(segments, tables, place_of(begin + (k < count ? k : 0), shape), shape, v);
    if (k < count) write_run(y + k, v);
  }
}
#else
constexpr bool IN_WARPS = false;
// y[k] = the value of element begin + k, for `count` elements. A thread has NEIGHBOURS at once, 16 bytes of bf16, so that a warp
// writes 512 bytes side by side; and two times as many where they are read together: all of them before it writes any.
template <class T>
DEVICE void decode(const Segments& segments, const Tables& tables, T* y, uint64_t begin, uint64_t count, const Shape& shape) {
  bool runs = !WITH_RUNS || begin % NEIGHBOURS == 0;
  uint64_t first = blockIdx.x * DECODED, end = first + DECODED < count ? first + DECODED : count;
  uint64_t k = first + NEIGHBOURS * threadIdx.x;
  if constexpr (WITH_RUNS) {
    for (; runs && k + STEP + NEIGHBOURS <= end; k += 2 * STEP) {
      float v[NEIGHBOURS], w[NEIGHBOURS];
      decode_run(segments, tables, place_of(begin + k, shape), shape, v);
      decode_run(segments, tables, place_of(begin + k + STEP, shape), shape, w);
      write_run(y + k, v);
      write_run(y + k + STEP, w);
    }
  }
  for (; k < end; k += STEP) {
    float v[NEIGHBOURS];
    if (runs && k + NEIGHBOURS <= end) {
      decode_run(segments, tables, place_of(begin + k, shape), shape, v);
      write_run(y + k, v);
    } else {
      for (uint64_t at = k; at < k + NEIGHBOURS && at < end; at += CHUNK) {
        float u[CHUNK];
        values_of(segments, tables, place_of(begin + at, shape), shape, u);
#pragma unroll
        for (int j = 0; j < CHUNK; j++) y[at + j] = narrow<T>(u[j]);
      }
    }
  }
}
#endif
#elif defined(DEVICE_CODE)
constexpr bool IN_WARPS = false;
// The values of 16 elements from the one at `place` on, a multiple of 16.
DEVICE void decode_run(const Segments& segments, const Tables&, const Place& place, const Shape& shape, float (&v)[RUN]) {
  device_code::decode_elements(segments, shape, place.i, RUN, v);
}

// y[k] = the value of element begin + k, for `count` elements. The first and the last run may be in part beyond them.
template <class T>
DEVICE void decode(const Segments& segments, const Tables& tables, T* y, uint64_t begin, uint64_t count, const Shape& shape) {
  uint64_t elements = shape.rows * shape.columns, end = begin + count;
  for (uint64_t run = begin / RUN + (uint64_t)first_element(); run * RUN < end; run += (uint64_t)element_stride()) {
    uint64_t i = run * RUN;
    float v[RUN];
    if (begin % RUN == 0 && i + RUN <= end) {
      decode_run(segments, tables, place_of(i, shape), shape, v);
      write_run(y + (i - begin), v);
    } else {
      int held = elements - i < RUN ? (int)(elements - i) : RUN;
      device_code::decode_elements(segments, shape, i, held, v);
      for (int k = 0; k < held; k++)
        if (i + k >= begin && i + k < end) y[i + k - begin] = narrow<T>(v[k]);
    }
  }
}
#else
constexpr bool IN_WARPS = false;
#endif
