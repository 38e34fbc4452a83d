// A packed weight -> its values, as decode.cuh decodes them.
#include "decode.cuh"

// The code of a quantizer has the registers that it asks for.
#ifdef DEVICE_CODE
#define RESIDENT
#else
#define RESIDENT __launch_bounds__(THREADS, RESIDENT_BLOCKS)
#endif

// y[k] = the value of element begin + k, for `count` elements of a weight `[rows, columns]`.
#define DECODE(T)                                                                                                          \
  extern "C" __global__ void RESIDENT decode_##T(const PackedWeight weight, T* y, uint64_t begin, uint64_t count,           \
                                                 const Shape shape) {                                                      \
    SHARED(memory);                                                                                                        \
    decode<T>(weight.segments, shared_tables(weight, memory), y, begin, count, shape);                                     \
  }                                                                                                                        \
  EXPORT(decode_##T)
DECODE(f32)
DECODE(bf16)
