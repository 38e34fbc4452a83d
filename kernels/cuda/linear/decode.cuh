// The description of a format -> functions that decode its elements.
//
// The host writes the description as definitions before the kernel that includes this file:
//
//   CODE_BITS          bits of a code, 1 to 8
//   CODE_SEGMENT       the segment of codes
//   CODE_WORD          uint8_t or uint32_t, a word of codes
//   CODE_WORD_OF(i)    the word of code i
//   CODE_SHIFT_OF(i)   the bits by which it is shifted there
//   CODE_SLOTS         codes of a word, defined where they are `tables.words` elements apart
//   BLOCK_OF(i, row, column)  the block of an element
//   SCALE(block)       a block's scale, and its zero in ZERO(block) where codes are numbers
//   DECODING_TABLE     defined where a code is an index into `tables.codes`
//   SCALES_TABLE       defined where SCALE reads `tables.scales`
//   ZEROS_TABLE        defined where ZERO reads `tables.zeros`
//
// SCALE and ZERO are expressions of `segment(k)`, the start of segment k, and of `tables`. Where neighbours can be read and
// written at once, 8 or 16 of them, the host also defines one of these:
//
//   CODES_SIDE_BY_SIDE n codes are n CODE_BITS / 8 bytes; 1 where the first is in the highest bits of a byte, 0 where it is in the
//                      lowest
//   CODES_IN_WORDS     n codes are at the same bits of n bytes
//   ONE_BLOCK          defined where 16 neighbours from a multiple of 16 on have one block
//
// A format without a description has DEVICE_CODE instead, and before the kernel the function `device_code::decode_elements`, which
// its quantizer brings.
#pragma once
#include "segments.cuh"

#if defined(CODE_BITS) || defined(DEVICE_CODE)
#define PACKED
#endif

// Elements that a thread of `decode` has at once.
constexpr int NEIGHBOURS = 8;

// Values of codes, and of the codes of block values that are quantized again.
struct Tables {
  float codes[256];
  float scales[256];
  float zeros[256];
  // Words of codes where CODE_SLOTS is defined. It depends on the weight's shape, which sources do not.
  uint64_t words;
};

// Copies a table of an even length. Each address of a kernel's arguments that a warp reads is an access of its own, so a thread
// takes two numbers.
DEVICE void share(float* to, const float* from, int length) {
  for (int k = threadIdx.x; k < length / 2; k += THREADS) ((uint64_t*)to)[k] = ((const uint64_t*)from)[k];
}

// This block's copy of the tables that the format reads, in shared memory of as many bytes. All threads call it.
DEVICE const Tables& shared_tables(const Tables& given, unsigned char* memory) {
  Tables& tables = *(Tables*)memory;
#ifdef DECODING_TABLE
  share(tables.codes, given.codes, 1 << CODE_BITS);
#endif
#ifdef SCALES_TABLE
  share(tables.scales, given.scales, 256);
#endif
#ifdef ZEROS_TABLE
  share(tables.zeros, given.zeros, 256);
#endif
  if (threadIdx.x == 0) tables.words = given.words;
  __syncthreads();
  return tables;
}

#ifdef CODE_BITS
#define segment(k) segments.start[k]
constexpr uint32_t MASK = (1u << CODE_BITS) - 1;

#ifdef CODE_SLOTS
// The slot of code i in its word, `i / words` by comparisons.
DEVICE int slot_of(uint64_t i, uint64_t words) {
  int slot = 0;
#pragma unroll
  for (int k = 1; k < CODE_SLOTS; k++) slot += i >= k * words;
  return slot;
}
#endif

// What a code stands for, without its block's scale.
DEVICE float value_of(const Tables& tables, uint32_t code, float zero) {
#ifdef DECODING_TABLE
  (void)zero;
  return tables.codes[code];
#else
  (void)tables;
  return (float)code - zero;
#endif
}
#ifdef DECODING_TABLE
#define ZERO(block) 0.0f
#endif

DEVICE float element(const Segments& segments, const Tables& tables, uint64_t i, const Shape& shape) {
  uint64_t row = i / shape.columns, column = i - row * shape.columns, block = BLOCK_OF(i, row, column);
  (void)row;
  (void)column;
  const CODE_WORD* words = (const CODE_WORD*)segment(CODE_SEGMENT);
  uint32_t code = (uint32_t)(words[CODE_WORD_OF(i)] >> CODE_SHIFT_OF(i)) & MASK;
  return value_of(tables, code, ZERO(block)) * (SCALE(block));
}

#if defined(CODES_SIDE_BY_SIDE) || defined(CODES_IN_WORDS)
// BYTES bytes, 1 to 16, from an address that is a multiple of them.
template <int BYTES>
DEVICE void read_bytes(const uint8_t* from, uint32_t (&bytes)[4]) {
  if constexpr (BYTES == 16) {
    uint4 word = *(const uint4*)from;
    bytes[0] = word.x, bytes[1] = word.y, bytes[2] = word.z, bytes[3] = word.w;
  } else if constexpr (BYTES == 8) {
    uint64_t word = *(const uint64_t*)from;
    bytes[0] = (uint32_t)word, bytes[1] = (uint32_t)(word >> 32);
  } else if constexpr (BYTES == 4) {
    bytes[0] = *(const uint32_t*)from;
  } else if constexpr (BYTES == 2) {
    bytes[0] = *(const uint16_t*)from;
  } else {
    bytes[0] = *from;
  }
}

// The N codes from element i on, a multiple of N, by loads as wide as they are.
template <int N>
DEVICE void read_codes(const uint8_t* words, const Tables& tables, uint64_t i, uint32_t (&code)[N]) {
  uint32_t bytes[4] = {};
#ifdef CODES_IN_WORDS
  read_bytes<N>(words + CODE_WORD_OF(i), bytes);
  int shift = CODE_SHIFT_OF(i);
#pragma unroll
  for (int k = 0; k < N; k++) code[k] = (bytes[k / 4] >> (k % 4 * 8) & 0xff) >> shift & MASK;
#else
  (void)tables;
  read_bytes<N * CODE_BITS / 8>(words + i * CODE_BITS / 8, bytes);
#pragma unroll
  for (int k = 0; k < N; k++) {
    constexpr int SLOTS = 8 / CODE_BITS;
    int byte = k / SLOTS, slot = k % SLOTS, shift = CODE_BITS * (CODES_SIDE_BY_SIDE ? SLOTS - 1 - slot : slot);
    code[k] = bytes[byte / 4] >> (byte % 4 * 8 + shift) & MASK;
  }
#endif
}

// The values of N elements from element i on, a multiple of N, which is 8 or 16.
template <int N>
DEVICE void decode_run(const Segments& segments, const Tables& tables, uint64_t i, const Shape& shape, float (&v)[N]) {
  uint32_t code[N];
  read_codes(segment(CODE_SEGMENT), tables, i, code);
#ifdef ONE_BLOCK
  uint64_t block = BLOCK_OF(i, 0, 0);
  float scale = SCALE(block), zero = ZERO(block);
#pragma unroll
  for (int k = 0; k < N; k++) v[k] = value_of(tables, code[k], zero) * scale;
#else
#pragma unroll
  for (int k = 0; k < N; k++) {
    uint64_t row = (i + k) / shape.columns, column = i + k - row * shape.columns, block = BLOCK_OF(i + k, row, column);
    (void)row;
    (void)column;
    v[k] = value_of(tables, code[k], ZERO(block)) * (SCALE(block));
  }
#endif
}
constexpr bool HAS_RUNS = true;
#else
template <int N>
DEVICE void decode_run(const Segments&, const Tables&, uint64_t, const Shape&, float (&)[N]) {}
constexpr bool HAS_RUNS = false;
#endif

// y[k] = the value of element begin + k, for `count` elements. A thread has NEIGHBOURS at once, 16 bytes of bf16, so that a warp
// writes 512 bytes side by side; and two times as many while there are: it reads all of them before it writes any.
template <class T>
DEVICE void decode(const Segments& segments, const Tables& tables, T* y, uint64_t begin, uint64_t count, const Shape& shape) {
  bool runs = HAS_RUNS && begin % NEIGHBOURS == 0;
  uint64_t k = NEIGHBOURS * (uint64_t)first_element(), stride = NEIGHBOURS * (uint64_t)element_stride();
  for (; runs && k + stride + NEIGHBOURS <= count; k += 2 * stride) {
    float v[NEIGHBOURS], w[NEIGHBOURS];
    decode_run(segments, tables, begin + k, shape, v);
    decode_run(segments, tables, begin + k + stride, shape, w);
    write_run(y + k, v);
    write_run(y + k + stride, w);
  }
  for (; k < count; k += stride) {
    float v[NEIGHBOURS];
    if (runs && k + NEIGHBOURS <= count) {
      decode_run(segments, tables, begin + k, shape, v);
      write_run(y + k, v);
    } else {
      for (uint64_t at = k; at < k + NEIGHBOURS && at < count; at++) y[at] = narrow<T>(element(segments, tables, begin + at, shape));
    }
  }
}
#elif defined(DEVICE_CODE)
// The values of 16 elements from element i on, a multiple of 16.
DEVICE void decode_run(const Segments& segments, const Tables&, uint64_t i, const Shape& shape, float (&v)[RUN]) {
  device_code::decode_elements(segments, shape, i, RUN, v);
}

// y[k] = the value of element begin + k, for `count` elements. The first and the last run may be in part beyond them.
template <class T>
DEVICE void decode(const Segments& segments, const Tables& tables, T* y, uint64_t begin, uint64_t count, const Shape& shape) {
  uint64_t elements = shape.rows * shape.columns, end = begin + count;
  for (uint64_t run = begin / RUN + (uint64_t)first_element(); run * RUN < end; run += (uint64_t)element_stride()) {
    uint64_t i = run * RUN;
    float v[RUN];
    if (begin % RUN == 0 && i + RUN <= end) {
      decode_run(segments, tables, i, shape, v);
      write_run(y + (i - begin), v);
    } else {
      int held = elements - i < RUN ? (int)(elements - i) : RUN;
      device_code::decode_elements(segments, shape, i, held, v);
      for (int k = 0; k < held; k++)
        if (i + k >= begin && i + k < end) y[i + k - begin] = narrow<T>(v[k]);
    }
  }
}
#endif
