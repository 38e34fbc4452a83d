// Rows -> sums over the rows of each column: gradients of what all rows share.
//
// A first kernel sums chunks of rows, a second one the chunks. The tree depends on the number of rows alone.
#include "element.cuh"

// Rows of a chunk.
constexpr int64_t ROWS = 32;

// partial[chunk, c] = sum of dy[t, c] (x[t, c] - m[t]) r[t], the latter rounded where `rounds` and m 0 where it is null, or of dy x
// where there is no r, or of dy where there is no x.
template <class T>
DEVICE void sum_rows(const T* dy, const T* x, const float* r, const float* m, int rounds, float* partial, int64_t width,
                     int64_t rows) {
  int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x, begin = blockIdx.y * ROWS;
  if (c >= width) return;
  int64_t end = begin + ROWS < rows ? begin + ROWS : rows;
  float sum = 0;
  for (int64_t t = begin; t < end; t++) {
    float d = widen(dy[t * width + c]);
    if (r) {
      float normal = (m ? widen(x[t * width + c]) - m[t] : widen(x[t * width + c])) * r[t];
      d *= rounds ? rounded<T>(normal) : normal;
    } else if (x)
      d *= widen(x[t * width + c]);
    sum += d;
  }
  partial[blockIdx.y * width + c] = sum;
}
#define SUM_ROWS(T)                                                                                                     \
  extern "C" __global__ void sum_rows_##T(const T* dy, const T* x, const float* r, const float* m, int32_t rounds,      \
                                          float* partial, int64_t width, int64_t rows) {                                \
    sum_rows<T>(dy, x, r, m, rounds, partial, width, rows);                                                             \
  }                                                                                                                     \
  EXPORT(sum_rows_##T)
SUM_ROWS(f32)
SUM_ROWS(bf16)

// sum[c] = the sum of a column's chunks, or added to it.
template <class S>
DEVICE void sum_chunks(const float* partial, S* sum, int adds, int64_t width, int64_t chunks) {
  int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (c >= width) return;
  float own = 0;
  for (int64_t k = 0; k < chunks; k++) own += partial[k * width + c];
  sum[c] = narrow<S>(adds ? widen(sum[c]) + own : own);
}
#define SUM_CHUNKS(S)                                                                                                      \
  extern "C" __global__ void sum_chunks_##S(const float* partial, S* sum, int32_t adds, int64_t width, int64_t chunks) {    \
    sum_chunks<S>(partial, sum, adds, width, chunks);                                                                      \
  }                                                                                                                        \
  EXPORT(sum_chunks_##S)
SUM_CHUNKS(f32)
SUM_CHUNKS(bf16)
