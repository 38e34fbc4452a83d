// A packed weight -> its values, as decode.cuh decodes them.
#include "decode.cuh"

// The code of a quantizer has the registers that it asks for. Formats whose neighbours have several blocks, or codes of several
// words, need some more.
#if defined(DEVICE_CODE)
#define RESIDENT
#elif defined(ONE_BLOCK) && defined(CODES_SIDE_BY_SIDE)
#define RESIDENT __launch_bounds__(THREADS, 5)
#else
#define RESIDENT __launch_bounds__(THREADS, 4)
#endif

// y[k] = the value of element begin + k, for `count` elements of a weight `[rows, columns]`.
#define DECODE(T)                                                                                                           \
  extern "C" __global__ void RESIDENT                                                                                      \
      decode_##T(const Segments segments, const Tables tables, T* y, uint64_t begin, uint64_t count, const Shape shape) {   \
    SHARED(memory);                                                                                                        \
    decode<T>(segments, shared_tables(tables, memory), y, begin, count, shape);                                            \
  }                                                                                                                        \
  EXPORT(decode_##T)
DECODE(f32)
DECODE(bf16)
