// Rows -> rows of unit root mean square, times a weight; and the gradient of the input.
//
// r = 1 / sqrt(mean(x^2) + eps), y = round(x r) w. A row here is `width` columns: a weight of fewer elements than a token's
// columns norms each part by itself. A row has 32 threads where it is short, else a block.
#include "element.cuh"

DEVICE float row_sum(float x, float* scratch, bool whole_block) {
  if (whole_block) return block_sum(x, scratch);
  for (int mask = 16; mask > 0; mask >>= 1) x += exchange(x, mask);
  return x;
}

// This thread's row, and its place among the row's threads. All threads of a warp have the same row.
DEVICE int64_t row_of(int per_row) {
  return per_row == THREADS ? blockIdx.x : (int64_t)blockIdx.x * (THREADS / 32) + (threadIdx.x >> 5);
}

template <class T, class W>
DEVICE void rms_norm(const T* x, const W* weight, T* y, float eps, int per_row, int64_t width, int64_t rows) {
  SHARED(memory);
  int64_t row = row_of(per_row);
  if (row >= rows) return;
  int first = threadIdx.x & (per_row - 1);
  x += row * width;
  y += row * width;
  float squares = 0;
  for (int64_t c = first; c < width; c += per_row) squares += widen(x[c]) * widen(x[c]);
  squares = row_sum(squares, (float*)memory, per_row == THREADS);
  float r = 1.0f / sqrtf(squares / (float)width + eps);
  for (int64_t c = first; c < width; c += per_row) y[c] = narrow<T>(rounded<T>(widen(x[c]) * r) * widen(weight[c]));
}
#define RMS_NORM(T, W)                                                                                                     \
  extern "C" __global__ void rms_norm_##T##_##W(const T* x, const W* weight, T* y, float eps, int32_t per_row, int64_t width, \
                                                int64_t rows) {                                                            \
    rms_norm<T, W>(x, weight, y, eps, per_row, width, rows);                                                               \
  }                                                                                                                        \
  EXPORT(rms_norm_##T##_##W)

// dx = r (g - x r^2 mean(g x)) with g = dy w; added to `added` where it is there, which dx may be.
template <class T, class W>
DEVICE void rms_norm_backward(const T* dy, const T* x, const W* weight, const T* added, T* dx, float eps, int per_row,
                              int64_t width, int64_t rows) {
  SHARED(memory);
  int64_t row = row_of(per_row);
  if (row >= rows) return;
  int first = threadIdx.x & (per_row - 1);
  int64_t at = row * width;
  float squares = 0, dot = 0;
  for (int64_t c = first; c < width; c += per_row) {
    float v = widen(x[at + c]);
    squares += v * v;
    dot += widen(dy[at + c]) * widen(weight[c]) * v;
  }
  squares = row_sum(squares, (float*)memory, per_row == THREADS);
  dot = row_sum(dot, (float*)memory, per_row == THREADS);
  float r = 1.0f / sqrtf(squares / (float)width + eps), pull = dot / (float)width * r * r;
  for (int64_t c = first; c < width; c += per_row) {
    float d = rounded<T>(r * (widen(dy[at + c]) * widen(weight[c]) - widen(x[at + c]) * pull));
    dx[at + c] = narrow<T>(added ? widen(added[at + c]) + d : d);
  }
}
#define RMS_NORM_BACKWARD(T, W)                                                                                            \
  extern "C" __global__ void rms_norm_backward_##T##_##W(const T* dy, const T* x, const W* weight, const T* added, T* dx,    \
                                                         float eps, int32_t per_row, int64_t width, int64_t rows) {        \
    rms_norm_backward<T, W>(dy, x, weight, added, dx, eps, per_row, width, rows);                                          \
  }                                                                                                                        \
  EXPORT(rms_norm_backward_##T##_##W)

// r of each row, for the gradient of the weight.
template <class T>
DEVICE void inverse_rms(const T* x, float* r, float eps, int per_row, int64_t width, int64_t rows) {
  SHARED(memory);
  int64_t row = row_of(per_row);
  if (row >= rows) return;
  float squares = 0;
  for (int64_t c = threadIdx.x & (per_row - 1); c < width; c += per_row) squares += widen(x[row * width + c]) * widen(x[row * width + c]);
  squares = row_sum(squares, (float*)memory, per_row == THREADS);
  if ((threadIdx.x & (per_row - 1)) == 0) r[row] = 1.0f / sqrtf(squares / (float)width + eps);
}
#define INVERSE_RMS(T)                                                                                                 \
  extern "C" __global__ void inverse_rms_##T(const T* x, float* r, float eps, int32_t per_row, int64_t width, int64_t rows) { \
    inverse_rms<T>(x, r, eps, per_row, width, rows);                                                                   \
  }                                                                                                                    \
  EXPORT(inverse_rms_##T)

#define OF_WEIGHT(T, W) RMS_NORM(T, W) RMS_NORM_BACKWARD(T, W)
#define OF_VALUE(T) OF_WEIGHT(T, f32) OF_WEIGHT(T, bf16) OF_WEIGHT(T, f16) INVERSE_RMS(T)
OF_VALUE(f32)
OF_VALUE(bf16)
