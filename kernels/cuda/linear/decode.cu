// A packed weight -> its values, by the description of its format, which decode.cuh states.
#include "decode.cuh"

// y[k] = the value of element begin + k, for `count` elements.
template <class T>
DEVICE void decode(const Segments& segments, const Tables& given, T* y, uint64_t begin, uint64_t count, uint64_t columns) {
  SHARED(memory);
  const Tables& tables = shared_tables(given, memory);
  bool runs = HAS_RUNS && begin % RUN == 0;
  for (uint64_t k = RUN * (uint64_t)first_element(); k < count; k += RUN * (uint64_t)element_stride()) {
    float v[RUN];
    if (runs && k + RUN <= count) {
      decode_run(segments, tables, begin + k, columns, v);
      write_run(y + k, v);
    } else {
      for (uint64_t at = k; at < k + RUN && at < count; at++) y[at] = narrow<T>(element(segments, tables, begin + at, columns));
    }
  }
}
#define DECODE(T)                                                                                                           \
  extern "C" __global__ void decode_##T(const Segments segments, const Tables tables, T* y, uint64_t begin, uint64_t count,   \
                                        uint64_t columns) {                                                                 \
    decode<T>(segments, tables, y, begin, count, columns);                                                                  \
  }                                                                                                                         \
  EXPORT(decode_##T)
DECODE(f32)
DECODE(bf16)
