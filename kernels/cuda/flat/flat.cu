// Flat runs of numbers: casts, initial values, sums of squares, the first number that is not finite.
#include "packs.cuh"

template <class T, class U>
DEVICE void cast(const T* x, U* y, int64_t n) {
  map(n, [](float v) { return v; }, y, x);
}
#define CAST(T, U)                                                                               \
  extern "C" __global__ void BY_TILES cast_##T##_##U(const T* x, U* y, int64_t n) { cast<T, U>(x, y, n); } \
  EXPORT(cast_##T##_##U)
CAST(f32, f32)
CAST(f32, bf16)
CAST(f32, f16)
CAST(bf16, f32)
CAST(bf16, bf16)
CAST(bf16, f16)
CAST(f16, f32)
CAST(f16, bf16)
CAST(f16, f16)

// y += x, a gradient of a param.
template <class T, class G>
DEVICE void accumulate(const T* x, G* y, int64_t n) {
  map(n, [](float sum, float v) { return sum + v; }, y, y, x);
}
#define ACCUMULATE(T, G)                                                                                              \
  extern "C" __global__ void BY_TILES accumulate_##T##_##G(const T* x, G* y, int64_t n) { accumulate<T, G>(x, y, n); }          \
  EXPORT(accumulate_##T##_##G)
ACCUMULATE(f32, f32)
ACCUMULATE(f32, bf16)
ACCUMULATE(bf16, f32)
ACCUMULATE(bf16, bf16)

enum Init { CONSTANT, UNIFORM, NORMAL };

// Initial values of a param: a constant, uniform in [a, b), or normal with mean a and deviation b. Element i draws word i % 4 of
// counter (i / 4, param, 0, 0).
template <class T>
DEVICE void init(T* y, int kind, double a, double b, uint32_t key0, uint32_t key1, uint32_t param, int64_t n) {
  for (int64_t i = first_element(); 4 * i < n; i += element_stride()) {
    double values[4] = {a, a, a, a};
    if (kind != CONSTANT) {
      Words drawn = philox(key0, key1, (uint32_t)i, param, 0, 0);
#pragma unroll
      for (int pair = 0; pair < 2; pair++) {
        float u = uniform(drawn.word[2 * pair]), v = uniform(drawn.word[2 * pair + 1]);
        if (kind == UNIFORM) {
          values[2 * pair] = a + (b - a) * (double)u;
          values[2 * pair + 1] = a + (b - a) * (double)v;
        } else {  // Box and Muller 1958; 1 - u is not 0.
          double radius = sqrt(-2.0 * log(1.0 - (double)u)), angle = 6.283185307179586 * (double)v;
          values[2 * pair] = a + b * (double)(float)(radius * cos(angle));
          values[2 * pair + 1] = a + b * (double)(float)(radius * sin(angle));
        }
      }
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (4 * i + k < n) y[4 * i + k] = narrow<T>((float)values[k]);
  }
}
#define INIT(T)                                                                                                         \
  extern "C" __global__ void init_##T(T* y, int32_t kind, double a, double b, uint32_t key0, uint32_t key1, uint32_t param, \
                                      int64_t n) {                                                                      \
    init<T>(y, kind, a, b, key0, key1, param, n);                                                                       \
  }                                                                                                                     \
  EXPORT(init_##T)
INIT(f32)
INIT(bf16)
INIT(f16)

// A block's sum of squares of its CHUNK elements, in f64. What a thread sums depends on n alone.
constexpr int64_t CHUNK = 16384;
template <class T>
DEVICE void sum_squares(const T* x, double* partial, int64_t n) {
  SHARED(memory);
  double sum = 0;
  int64_t begin = blockIdx.x * CHUNK, end = begin + CHUNK < n ? begin + CHUNK : n;
  for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
    double v = widen(x[i]);
    sum += v * v;
  }
  sum = block_sum(sum, (double*)memory);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
#define SUM_SQUARES(T)                                                                                                    \
  extern "C" __global__ void sum_squares_##T(const T* x, double* partial, int64_t n) { sum_squares<T>(x, partial, n); } \
  EXPORT(sum_squares_##T)
SUM_SQUARES(f32)
SUM_SQUARES(bf16)
SUM_SQUARES(f16)

// The sum of the blocks' sums, by one block.
extern "C" __global__ void sum_partials(const double* partial, double* sum, int64_t count) {
  SHARED(memory);
  double own = 0;
  for (int64_t i = threadIdx.x; i < count; i += THREADS) own += partial[i];
  own = block_sum(own, (double*)memory);
  if (threadIdx.x == 0) sum[0] = own;
}
EXPORT(sum_partials)

DEVICE bool is_finite(float x) { return (float_bits(x) & 0x7f800000u) != 0x7f800000u; }

// Each block's first index of a NaN or an infinity, or n.
template <class T>
DEVICE void first_not_finite(const T* x, int64_t* partial, int64_t n) {
  SHARED(memory);
  int64_t* firsts = (int64_t*)memory;
  int64_t begin = blockIdx.x * CHUNK, end = begin + CHUNK < n ? begin + CHUNK : n, own = n;
  for (int64_t i = begin + threadIdx.x; i < end && own == n; i += THREADS)
    if (!is_finite(widen(x[i]))) own = i;
  firsts[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int k = 1; k < THREADS; k++) own = firsts[k] < own ? firsts[k] : own;
    partial[blockIdx.x] = own;
  }
}
#define FIRST_NOT_FINITE(T)                                                                        \
  extern "C" __global__ void first_not_finite_##T(const T* x, int64_t* partial, int64_t n) {        \
    first_not_finite<T>(x, partial, n);                                                            \
  }                                                                                                \
  EXPORT(first_not_finite_##T)
FIRST_NOT_FINITE(f32)
FIRST_NOT_FINITE(bf16)
FIRST_NOT_FINITE(f16)

// The first of the blocks' indices, or -1.
extern "C" __global__ void first_of_partials(const int64_t* partial, int64_t* index, int64_t count, int64_t n) {
  SHARED(memory);
  int64_t* firsts = (int64_t*)memory;
  int64_t own = n;
  for (int64_t i = threadIdx.x; i < count; i += THREADS) own = partial[i] < own ? partial[i] : own;
  firsts[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int k = 1; k < THREADS; k++) own = firsts[k] < own ? firsts[k] : own;
    index[0] = own == n ? -1 : own;
  }
}
EXPORT(first_of_partials)
