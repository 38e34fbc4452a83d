// Codes of a few bits as they are packed, and numbers side by side -> registers.
//
// core/interface/src/format/codes.rs says how codes are packed. A segment begins at a multiple of 64 bytes, and no load goes
// beyond what it reads.
#pragma once
#include "segments.cuh"

enum CodeOrder { HIGH_FIRST, LOW_FIRST, STREAM };

// BYTES bytes from an address that is a multiple of UNIT, their largest power of two up to 16, by loads of so many bytes.
template <int BYTES, int WORDS>
DEVICE void read_words(const uint8_t* from, uint32_t (&words)[WORDS]) {
  constexpr int LOWEST = BYTES & -BYTES, UNIT = LOWEST > 16 ? 16 : LOWEST;
  static_assert(WORDS == (BYTES + 3) / 4);
  if constexpr (UNIT == 16) {
#pragma unroll
    for (int k = 0; k < WORDS; k += 4) {
      uint4 word = *(const uint4*)(from + 4 * k);
      words[k] = word.x, words[k + 1] = word.y, words[k + 2] = word.z, words[k + 3] = word.w;
    }
  } else if constexpr (UNIT == 8) {
#pragma unroll
    for (int k = 0; k < WORDS; k += 2) {
      uint64_t word = *(const uint64_t*)(from + 4 * k);
      words[k] = (uint32_t)word, words[k + 1] = (uint32_t)(word >> 32);
    }
  } else if constexpr (UNIT == 4) {
#pragma unroll
    for (int k = 0; k < WORDS; k++) words[k] = *(const uint32_t*)(from + 4 * k);
  } else {
#pragma unroll
    for (int k = 0; k < WORDS; k++) words[k] = 0;
#pragma unroll
    for (int at = 0; at < BYTES; at += UNIT) {
      uint32_t part = UNIT == 2 ? *(const uint16_t*)(from + at) : from[at];
      words[at / 4] |= part << (at % 4 * 8);
    }
  }
}

// Code i.
template <int BITS, CodeOrder ORDER>
DEVICE uint32_t code_at(const uint8_t* bytes, uint64_t i) {
  constexpr uint32_t MASK = (1u << BITS) - 1;
  if constexpr (ORDER == STREAM) {
    uint64_t bit = i * BITS;
    int shift = (int)(bit % 8);
    uint32_t word = bytes[bit / 8];
    if (shift + BITS > 8) word |= (uint32_t)bytes[bit / 8 + 1] << 8;
    return word >> shift & MASK;
  } else {
    constexpr int SLOTS = 8 / BITS;
    int slot = (int)(i % SLOTS);
    return (uint32_t)bytes[i / SLOTS] >> BITS * (ORDER == HIGH_FIRST ? SLOTS - 1 - slot : slot) & MASK;
  }
}

// The N codes from code i on, a multiple of N, by loads as wide as they are.
template <int BITS, CodeOrder ORDER, int N>
DEVICE void read_codes(const uint8_t* bytes, uint64_t i, uint32_t (&code)[N]) {
  constexpr uint32_t MASK = (1u << BITS) - 1;
  // Bits from a code to the next.
  constexpr int SLOTS = 8 / BITS, WIDTH = ORDER == STREAM ? BITS : 8 / SLOTS;
  if constexpr (N * WIDTH % 8) {
#pragma unroll
    for (int k = 0; k < N; k++) code[k] = code_at<BITS, ORDER>(bytes, i + k);
  } else {
    constexpr int BYTES = N * WIDTH / 8, WORDS = (BYTES + 3) / 4;
    uint32_t words[WORDS];
    read_words<BYTES>(bytes + i * WIDTH / 8, words);
#pragma unroll
    for (int k = 0; k < N; k++) {
      int bit = k * WIDTH;
      if (ORDER == HIGH_FIRST) bit = bit / 8 * 8 + (SLOTS - 1 - k % SLOTS) * WIDTH;
      uint32_t word = words[bit / 32] >> bit % 32;
      if (bit % 32 + BITS > 32) word |= words[bit / 32 + 1] << (32 - bit % 32);
      code[k] = word & MASK;
    }
  }
}

// Code i of codes that are split over `words` words: its slot is `i / words`, by comparisons.
template <int BITS, class WORD>
DEVICE uint32_t split_code_at(const uint8_t* segment, uint64_t i, uint64_t words) {
  constexpr uint32_t MASK = (1u << BITS) - 1;
  constexpr int SLOTS = 8 * sizeof(WORD) / BITS;
  int slot = 0;
#pragma unroll
  for (int k = 1; k < SLOTS; k++) slot += i >= k * words;
  return (uint32_t)(((const WORD*)segment)[i - words * slot] >> (SLOTS - 1 - slot) * BITS) & MASK;
}

// The N codes from code i on, a multiple of N, of codes that are split over `words` bytes, a multiple of N: they are at the same
// bits of N bytes.
template <int BITS, int N>
DEVICE void read_split_codes(const uint8_t* segment, uint64_t i, uint64_t words, uint32_t (&code)[N]) {
  constexpr uint32_t MASK = (1u << BITS) - 1;
  constexpr int SLOTS = 8 / BITS;
  if constexpr (N == 1) {
    code[0] = split_code_at<BITS, uint8_t>(segment, i, words);
  } else {
    int slot = 0;
#pragma unroll
    for (int k = 1; k < SLOTS; k++) slot += i >= k * words;
    int shift = (SLOTS - 1 - slot) * BITS;
    uint32_t bytes[(N + 3) / 4];
    read_words<N>(segment + (i - words * slot), bytes);
#pragma unroll
    for (int k = 0; k < N; k++) code[k] = (bytes[k / 4] >> k % 4 * 8 & 0xff) >> shift & MASK;
  }
}

// The N numbers of a segment from number `at` on, a multiple of N, which is a power of two.
template <class T, int N>
DEVICE void read_numbers(const uint8_t* segment, uint64_t at, float (&x)[N]) {
  constexpr int BYTES = N * (int)sizeof(T);
  uint32_t words[(BYTES + 3) / 4];
  read_words<BYTES>(segment + at * sizeof(T), words);
#pragma unroll
  for (int k = 0; k < N; k++) {
    if constexpr (sizeof(T) == 4)
      x[k] = bits_float(words[k]);
    else
      x[k] = widen(T{(uint16_t)(words[k / 2] >> k % 2 * 16)});
  }
}
