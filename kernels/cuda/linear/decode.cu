// A packed weight -> its values, by the description of its format.
//
// The host writes the description as definitions before this file:
//
//   CODE_BITS            bits of a code, 1 to 8
//   CODE_WORD            uint8_t or uint32_t, a word of codes
//   CODE_SLOTS           codes of a word
//   CODE_WORD_OF(i)      the word of code i, and the bits that it is shifted by in CODE_SHIFT_OF(i)
//   BLOCK_OF(i, row, column)  the block of an element
//   SCALE(block)         a block's scale, and its zero in ZERO(block) where codes are numbers
//   DECODING_TABLE       defined where a code is an index into `tables.codes`
//
// SCALE and ZERO are expressions of `segment(k)`, the start of segment k, and of `tables`.
#include "element.cuh"

constexpr int MOST_SEGMENTS = 16;
struct Segments {
  const uint8_t* start[MOST_SEGMENTS];
};
// Values of codes, and of the codes of block values that are quantized again.
struct Tables {
  float codes[256];
  float scales[256];
  float zeros[256];
};
// A number as stored.
template <class T>
DEVICE float number(const uint8_t* segment, int64_t at) {
  return widen(((const T*)segment)[at]);
}

#ifdef CODE_BITS
#define segment(k) segments.start[k]

// y[i - begin] = the value of element i, for `count` elements from `begin` on.
template <class T>
DEVICE void decode(const Segments& segments, const Tables& given, T* y, int64_t begin, int64_t count, int64_t columns) {
  SHARED(memory);
  Tables& tables = *(Tables*)memory;
  for (int k = threadIdx.x; k < 256; k += THREADS) {
    tables.codes[k] = given.codes[k];
    tables.scales[k] = given.scales[k];
    tables.zeros[k] = given.zeros[k];
  }
  __syncthreads();
  const CODE_WORD* words = (const CODE_WORD*)segment(CODE_SEGMENT);
  for (int64_t k = first_element(); k < count; k += element_stride()) {
    int64_t i = begin + k, row = i / columns, column = i - row * columns;
    int64_t block = BLOCK_OF(i, row, column);
    (void)row;
    (void)column;
    uint32_t code = (uint32_t)(words[CODE_WORD_OF(i)] >> CODE_SHIFT_OF(i)) & ((1u << CODE_BITS) - 1);
#ifdef DECODING_TABLE
    float value = tables.codes[code] * (SCALE(block));
#else
    float value = ((float)code - (ZERO(block))) * (SCALE(block));
#endif
    y[k] = narrow<T>(value);
  }
}
#define DECODE(T)                                                                                                          \
  extern "C" __global__ void decode_##T(const Segments segments, const Tables tables, T* y, int64_t begin, int64_t count,    \
                                        int64_t columns) {                                                                 \
    decode<T>(segments, tables, y, begin, count, columns);                                                                 \
  }                                                                                                                        \
  EXPORT(decode_##T)
DECODE(f32)
DECODE(bf16)
#endif
