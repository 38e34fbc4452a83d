// Codes of a few bits as they are packed, and numbers side by side -> registers.
//
// core/interface/src/format/codes.rs says how codes are packed. A segment begins at a multiple of 64 bytes, and no load goes
// beyond what it reads.
#pragma once
#include "segments.cuh"

enum CodeOrder { HIGH_FIRST, LOW_FIRST, STREAM };

// BYTES bytes from an address that is a multiple of UNIT, their largest power of two up to ALIGNMENT, by loads of so many bytes.
template <int BYTES, int ALIGNMENT = 16, int WORDS>
DEVICE void read_words(const uint8_t* from, uint32_t (&words)[WORDS]) {
  constexpr int LOWEST = BYTES & -BYTES, UNIT = LOWEST > ALIGNMENT ? ALIGNMENT : LOWEST;
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
    if (shift + BITS > 16) word |= (uint32_t)bytes[bit / 8 + 2] << 16;
    return word >> shift & MASK;
  } else if constexpr (BITS > 8) {
    return ((const uint16_t*)bytes)[i] & MASK;
  } else {
    constexpr int SLOTS = 8 / BITS;
    int slot = (int)(i % SLOTS);
    return (uint32_t)bytes[i / SLOTS] >> BITS * (ORDER == HIGH_FIRST ? SLOTS - 1 - slot : slot) & MASK;
  }
}

// The N codes from code i on, a multiple of N, by loads as wide as they are, of at most ALIGNMENT bytes, of which the first byte's
// address is a multiple.
template <int BITS, CodeOrder ORDER, int ALIGNMENT = 16, int N>
DEVICE void read_codes(const uint8_t* bytes, uint64_t i, uint32_t (&code)[N]) {
  constexpr uint32_t MASK = (1u << BITS) - 1;
  // Slots of a word, and bits from a code to the next.
  constexpr int SLOTS = BITS > 8 ? 1 : 8 / BITS, WIDTH = ORDER == STREAM ? BITS : (BITS > 8 ? 16 : 8) / SLOTS;
  if constexpr (N * WIDTH % 8) {
#pragma unroll
    for (int k = 0; k < N; k++) code[k] = code_at<BITS, ORDER>(bytes, i + k);
  } else {
    constexpr int BYTES = N * WIDTH / 8, WORDS = (BYTES + 3) / 4;
    uint32_t words[WORDS];
    read_words<BYTES, ALIGNMENT>(bytes + i * WIDTH / 8, words);
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

// Code i of codes in rows. The three numbers of `rows` are the codes of a row, the bytes from a row to the next, and the byte of
// the first.
template <int BITS, CodeOrder ORDER>
DEVICE uint32_t row_code_at(const uint8_t* segment, uint64_t i, const uint64_t* rows) {
  uint64_t row = i / rows[0];
  return code_at<BITS, ORDER>(segment + rows[2] + row * rows[1], i - row * rows[0]);
}

// The N codes from code i on, a multiple of N, of codes in rows: of a multiple of N codes, which begin at multiples of ALIGNMENT
// bytes; or of any number of codes, where ALIGNMENT is 0.
template <int BITS, CodeOrder ORDER, int ALIGNMENT, int N>
DEVICE void read_row_codes(const uint8_t* segment, uint64_t i, const uint64_t* rows, uint32_t (&code)[N]) {
  uint64_t row = i / rows[0], at = i - row * rows[0];
  const uint8_t* from = segment + rows[2] + row * rows[1];
  if constexpr (ALIGNMENT > 0) {
    read_codes<BITS, ORDER, ALIGNMENT>(from, at, code);
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) {
      code[k] = code_at<BITS, ORDER>(from, at);
      if (++at == rows[0]) at = 0, from += rows[1];
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

// The N codes from code i on, a multiple of N, of codes that are split over `words` words, a multiple of N: they are at the same
// bits of N words.
template <int BITS, class WORD, int N>
DEVICE void read_split_codes(const uint8_t* segment, uint64_t i, uint64_t words, uint32_t (&code)[N]) {
  constexpr uint32_t MASK = (1u << BITS) - 1;
  constexpr int BYTES = sizeof(WORD), SLOTS = 8 * BYTES / BITS, EACH = 4 / BYTES;
  if constexpr (N == 1) {
    code[0] = split_code_at<BITS, WORD>(segment, i, words);
  } else {
    int slot = 0;
#pragma unroll
    for (int k = 1; k < SLOTS; k++) slot += i >= k * words;
    int shift = (SLOTS - 1 - slot) * BITS;
    uint32_t read[(N + EACH - 1) / EACH];
    read_words<N * BYTES>(segment + (i - words * slot) * BYTES, read);
#pragma unroll
    for (int k = 0; k < N; k++) code[k] = (uint32_t)(WORD)(read[k / EACH] >> k % EACH * 8) >> shift & MASK;
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
