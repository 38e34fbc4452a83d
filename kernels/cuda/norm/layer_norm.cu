// Rows -> rows of mean 0 and deviation 1, times a weight, plus a bias; and the gradient of the input.
//
// m = mean(x), r = 1 / sqrt(mean((x - m)^2) + eps), n = (x - m) r, y = n w + b. A row is read once from memory and then, for each
// further sum, from the caches. Params are of any stored type, which the launch names.
#include "row.cuh"

// A param, and its type: 0 f32, 1 bf16, 2 f16.
struct Param {
  const void* at;
  int type;
};

// The numbers of a thread at a time: N, or one behind the last pack.
template <int N>
struct Width {
  static constexpr int of = N;
};
template <int N, class T>
DEVICE Numbers<N> read_some(const T* x) {
  if constexpr (N == 1)
    return Numbers<1>{{widen(*x)}};
  else
    return read_pack<N>(x);
}
template <int N>
DEVICE Numbers<N> read_some(Param p, int64_t c) {
  if (p.type == 0) return read_some<N>((const f32*)p.at + c);
  if (p.type == 1) return read_some<N>((const bf16*)p.at + c);
  return read_some<N>((const f16*)p.at + c);
}
template <int N, class T>
DEVICE void write_some(T* y, const Numbers<N>& v) {
  if constexpr (N == 1)
    *y = narrow<T>(v.of[0]);
  else
    write_pack<N>(y, v);
}

// Calls f(width, c) for each of a thread's packs in the first `packed` columns, and for its single columns behind them.
template <int N, class F>
DEVICE void each_column(int per_row, int64_t packed, int64_t width, const F& f) {
  int first = threadIdx.x & (per_row - 1);
#pragma unroll 2
  for (int64_t c = first * N; c < packed; c += per_row * N) f(Width<N>{}, c);
  for (int64_t c = packed + first; c < width; c += per_row) f(Width<1>{}, c);
}

// m and r of a row.
struct Moments {
  float mean, inverse;
};
template <int N, class T>
DEVICE Moments moments(const T* x, float eps, int per_row, int64_t packed, int64_t width, float* scratch) {
  float sum = 0, squares = 0;
  each_column<N>(per_row, packed, width, [&](auto some, int64_t c) {
    constexpr int M = decltype(some)::of;
    Numbers<M> v = read_some<M>(x + c);
#pragma unroll
    for (int k = 0; k < M; k++) sum += v.of[k];
  });
  float mean = row_sum(sum, scratch, per_row == THREADS) / (float)width;
  each_column<N>(per_row, packed, width, [&](auto some, int64_t c) {
    constexpr int M = decltype(some)::of;
    Numbers<M> v = read_some<M>(x + c);
#pragma unroll
    for (int k = 0; k < M; k++) squares = fmaf(v.of[k] - mean, v.of[k] - mean, squares);
  });
  squares = row_sum(squares, scratch, per_row == THREADS);
  return Moments{mean, 1.0f / sqrtf(squares / (float)width + eps)};
}

template <class T>
DEVICE void layer_norm(const T* x, Param weight, Param bias, T* y, float eps, int per_row, int64_t width, int64_t rows) {
  SHARED(memory);
  int64_t row = row_of(per_row);
  if (row >= rows) return;
  constexpr int N = pack_of<T>();
  int64_t packed = width % N == 0 && are_aligned(x, weight.at, bias.at, y) ? width : 0;
  x += row * width;
  y += row * width;
  Moments found = moments<N>(x, eps, per_row, packed, width, (float*)memory);
  each_column<N>(per_row, packed, width, [&](auto some, int64_t c) {
    constexpr int M = decltype(some)::of;
    Numbers<M> v = read_some<M>(x + c), w = read_some<M>(weight, c), b = {};
    if (bias.at) b = read_some<M>(bias, c);
#pragma unroll
    for (int k = 0; k < M; k++) v.of[k] = (v.of[k] - found.mean) * found.inverse * w.of[k] + b.of[k];
    write_some<M>(y + c, v);
  });
}
#define LAYER_NORM(T)                                                                                                      \
  extern "C" __global__ void __launch_bounds__(THREADS, 4) layer_norm_##T(const T* x, const void* weight, const void* bias, T* y, \
      int32_t type_of_weight, int32_t type_of_bias, float eps, int32_t per_row, int64_t width, int64_t rows) {             \
    layer_norm<T>(x, Param{weight, type_of_weight}, Param{bias, type_of_bias}, y, eps, per_row, width, rows);              \
  }                                                                                                                        \
  EXPORT(layer_norm_##T)

// dx = r (g - mean(g) - (x - m) r^2 mean(g (x - m))) with g = dy w.
template <class T>
DEVICE void layer_norm_backward(const T* dy, const T* x, Param weight, T* dx, float eps, int per_row, int64_t width,
                                int64_t rows) {
  SHARED(memory);
  int64_t row = row_of(per_row);
  if (row >= rows) return;
  constexpr int N = pack_of<T>();
  int64_t packed = width % N == 0 && are_aligned(dy, x, weight.at, dx) ? width : 0;
  dy += row * width;
  x += row * width;
  dx += row * width;
  float* scratch = (float*)memory;
  Moments found = moments<N>(x, eps, per_row, packed, width, scratch);
  float sum = 0, dot = 0;
  each_column<N>(per_row, packed, width, [&](auto some, int64_t c) {
    constexpr int M = decltype(some)::of;
    Numbers<M> v = read_some<M>(x + c), d = read_some<M>(dy + c), w = read_some<M>(weight, c);
#pragma unroll
    for (int k = 0; k < M; k++) {
      float g = d.of[k] * w.of[k];
      sum += g;
      dot = fmaf(g, v.of[k] - found.mean, dot);
    }
  });
  float level = row_sum(sum, scratch, per_row == THREADS) / (float)width;
  float pull = row_sum(dot, scratch, per_row == THREADS) / (float)width * found.inverse * found.inverse;
  each_column<N>(per_row, packed, width, [&](auto some, int64_t c) {
    constexpr int M = decltype(some)::of;
    Numbers<M> v = read_some<M>(x + c), d = read_some<M>(dy + c), w = read_some<M>(weight, c);
#pragma unroll
    for (int k = 0; k < M; k++)
      v.of[k] = found.inverse * (d.of[k] * w.of[k] - level - (v.of[k] - found.mean) * pull);
    write_some<M>(dx + c, v);
  });
}
#define LAYER_NORM_BACKWARD(T)                                                                                             \
  extern "C" __global__ void __launch_bounds__(THREADS, 3) layer_norm_backward_##T(const T* dy, const T* x, const void* weight, \
      T* dx, int32_t type_of_weight, float eps, int32_t per_row, int64_t width, int64_t rows) {                            \
    layer_norm_backward<T>(dy, x, Param{weight, type_of_weight}, dx, eps, per_row, width, rows);                           \
  }                                                                                                                        \
  EXPORT(layer_norm_backward_##T)

// r of each row and, behind them, m of each, for the gradient of the weight.
template <class T>
DEVICE void row_moments(const T* x, float* inverse, float* mean, float eps, int per_row, int64_t width, int64_t rows) {
  SHARED(memory);
  int64_t row = row_of(per_row);
  if (row >= rows) return;
  constexpr int N = pack_of<T>();
  int64_t packed = width % N == 0 && are_aligned(x) ? width : 0;
  Moments found = moments<N>(x + row * width, eps, per_row, packed, width, (float*)memory);
  if ((threadIdx.x & (per_row - 1)) == 0) {
    inverse[row] = found.inverse;
    mean[row] = found.mean;
  }
}
#define ROW_MOMENTS(T)                                                                                                     \
  extern "C" __global__ void row_moments_##T(const T* x, float* inverse, float* mean, float eps, int32_t per_row,          \
                                             int64_t width, int64_t rows) {                                                \
    row_moments<T>(x, inverse, mean, eps, per_row, width, rows);                                                           \
  }                                                                                                                        \
  EXPORT(row_moments_##T)

#define OF_VALUE(T) LAYER_NORM(T) LAYER_NORM_BACKWARD(T) ROW_MOMENTS(T)
OF_VALUE(f32)
OF_VALUE(bf16)
