// Rows -> rows of unit root mean square, times a weight; and the gradient of the input.
//
// r = 1 / sqrt(mean(x^2) + eps), y = round(x r) w; or, with an offset o, y = x r (o + w). A row here is `width` columns: a weight of fewer elements than a token's
// columns norms each part by itself. A row has 32 threads where it is short, else a block.
#include "row.cuh"

// Packs of a row that a thread keeps in registers, where they are all that it has of the row.
constexpr int KEPT = 2;
// Calls f(k, c) for each pack k of a thread, at column c of a row of `width`.
template <int N, class F>
DEVICE void each_kept(int first, int per_row, int64_t width, const F& f) {
#pragma unroll
  for (int k = 0; k < KEPT; k++) {
    int c = (first + k * per_row) * N;
    if (c < width) f(k, c);
  }
}

// This thread's part of the sum of squares of a row: of its packs in the first `packed` columns, and of single columns behind them.
template <int N>
DEVICE float add_squares(float sum, const Numbers<N>& v) {
#pragma unroll
  for (int k = 0; k < N; k++) sum = fmaf(v.of[k], v.of[k], sum);
  return sum;
}
template <int N, class T>
DEVICE float squares_of(const T* x, int first, int per_row, int64_t packed, int64_t width) {
  float squares = 0;
#pragma unroll 2
  for (int64_t c = first * N; c < packed; c += per_row * N) squares = add_squares(squares, read_pack<N>(x + c));
  for (int64_t c = packed + first; c < width; c += per_row) squares = fmaf(widen(x[c]), widen(x[c]), squares);
  return squares;
}
// r of a row, of its threads' sums of squares.
DEVICE float inverse_root(float squares, float eps, int64_t width, int per_row, float* scratch) {
  squares = row_sum(squares, scratch, per_row == THREADS);
  return 1.0f / sqrtf(squares / (float)width + eps);
}

// What a norm is multiplied by, and what of the norm is: the weight, of a rounded norm.
struct Rounded {};
DEVICE float factor(Rounded, float w) { return w; }
template <class T>
DEVICE float normal(Rounded, float n) {
  return rounded<T>(n);
}
// An offset and the weight, of a norm that is not rounded.
struct Offset {
  float offset;
};
DEVICE float factor(Offset form, float w) { return form.offset + w; }
template <class T>
DEVICE float normal(Offset, float n) {
  return n;
}

template <class T, class W, class F>
DEVICE void rms_norm(F form, const T* x, const W* weight, T* y, float eps, int per_row, int64_t width, int64_t rows) {
  SHARED(memory);
  int64_t row = row_of(per_row);
  if (row >= rows) return;
  int first = threadIdx.x & (per_row - 1);
  constexpr int N = pack_of<T>();
  int64_t packed = width % N == 0 && are_aligned(x, weight, y) ? width : 0;
  x += row * width;
  y += row * width;
  if (packed && width <= KEPT * per_row * N) {
    Pack<T, N> v[KEPT];
    Pack<W, N> w[KEPT];
    float squares = 0;
    each_kept<N>(first, per_row, width, [&](int k, int c) { v[k] = load_pack<N>(x + c); });
    each_kept<N>(first, per_row, width, [&](int k, int c) { w[k] = load_pack<N>(weight + c); });
    each_kept<N>(first, per_row, width, [&](int k, int) { squares = add_squares(squares, widen_pack<N>(v[k])); });
    float r = inverse_root(squares, eps, width, per_row, (float*)memory);
    auto normed = [&](float p, float q) { return normal<T>(form, p * r) * factor(form, q); };
    each_kept<N>(first, per_row, width, [&](int k, int c) {
      write_pack<N>(y + c, each<N>(normed, widen_pack<N>(v[k]), widen_pack<N>(w[k])));
    });
    return;
  }
  float r = inverse_root(squares_of<N>(x, first, per_row, packed, width), eps, width, per_row, (float*)memory);
  auto normed = [&](float v, float w) { return normal<T>(form, v * r) * factor(form, w); };
#pragma unroll 2
  for (int64_t c = first * N; c < packed; c += per_row * N)
    write_pack<N>(y + c, each<N>(normed, read_pack<N>(x + c), read_pack<N>(weight + c)));
  for (int64_t c = packed + first; c < width; c += per_row) y[c] = narrow<T>(normed(widen(x[c]), widen(weight[c])));
}
#define RMS_NORM(T, W)                                                                                                     \
  extern "C" __global__ void __launch_bounds__(THREADS, 4) rms_norm_##T##_##W(const T* x, const W* weight, T* y, float eps, int32_t per_row, int64_t width, \
                                                int64_t rows) {                                                            \
    rms_norm<T, W>(Rounded{}, x, weight, y, eps, per_row, width, rows);                                                    \
  }                                                                                                                        \
  EXPORT(rms_norm_##T##_##W)
#define RMS_NORM_OFFSET(T, W)                                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS, 4) rms_norm_offset_##T##_##W(const T* x, const W* weight, T* y,    \
      float eps, int32_t per_row, int64_t width, int64_t rows, float offset) {                                             \
    rms_norm<T, W>(Offset{offset}, x, weight, y, eps, per_row, width, rows);                                               \
  }                                                                                                                        \
  EXPORT(rms_norm_offset_##T##_##W)

// dx = r (g - x r^2 mean(g x)) with g = dy w, or dy (o + w); added to `added` where it is there, which dx may be.
template <class T, class W, class F>
DEVICE void rms_norm_backward(F form, const T* dy, const T* x, const W* weight, const T* added, T* dx, float eps, int per_row,
                              int64_t width, int64_t rows) {
  SHARED(memory);
  int64_t row = row_of(per_row);
  if (row >= rows) return;
  int first = threadIdx.x & (per_row - 1);
  constexpr int N = pack_of<T>();
  int64_t packed = width % N == 0 && are_aligned(dy, x, weight, added, dx) ? width : 0;
  dy += row * width;
  x += row * width;
  dx += row * width;
  if (added) added += row * width;
  float squares = 0, dot = 0;
  auto add_dot = [&](const Numbers<N>& v, const Numbers<N>& d, const Numbers<N>& w) {
    squares = add_squares(squares, v);
#pragma unroll
    for (int k = 0; k < N; k++) dot = fmaf(d.of[k] * factor(form, w.of[k]), v.of[k], dot);
  };
  auto sum = [](float p, float q) { return p + q; };
  if (packed && width <= KEPT * per_row * N) {
    Pack<T, N> v[KEPT], d[KEPT], before[KEPT] = {};
    each_kept<N>(first, per_row, width, [&](int k, int c) { v[k] = load_pack<N>(x + c); });
    each_kept<N>(first, per_row, width, [&](int k, int c) { d[k] = load_pack<N>(dy + c); });
    if (added) each_kept<N>(first, per_row, width, [&](int k, int c) { before[k] = load_pack<N>(added + c); });
    each_kept<N>(first, per_row, width, [&](int k, int c) {
      add_dot(widen_pack<N>(v[k]), widen_pack<N>(d[k]), read_pack<N>(weight + c));
    });
    float r = inverse_root(squares, eps, width, per_row, (float*)memory);
    float pull = row_sum(dot, (float*)memory, per_row == THREADS) / (float)width * r * r;
    auto gradient = [&](float x, float dy, float w) { return rounded<T>(r * (dy * factor(form, w) - x * pull)); };
    each_kept<N>(first, per_row, width, [&](int k, int c) {
      Numbers<N> own = each<N>(gradient, widen_pack<N>(v[k]), widen_pack<N>(d[k]), read_pack<N>(weight + c));
      write_pack<N>(dx + c, each<N>(sum, widen_pack<N>(before[k]), own));
    });
    return;
  }
#pragma unroll 2
  for (int64_t c = first * N; c < packed; c += per_row * N)
    add_dot(read_pack<N>(x + c), read_pack<N>(dy + c), read_pack<N>(weight + c));
  for (int64_t c = packed + first; c < width; c += per_row) {
    float v = widen(x[c]);
    squares = fmaf(v, v, squares);
    dot = fmaf(widen(dy[c]) * factor(form, widen(weight[c])), v, dot);
  }
  float r = inverse_root(squares, eps, width, per_row, (float*)memory);
  float pull = row_sum(dot, (float*)memory, per_row == THREADS) / (float)width * r * r;
  auto gradient = [&](float v, float d, float w) { return rounded<T>(r * (d * factor(form, w) - v * pull)); };
#pragma unroll 2
  for (int64_t c = first * N; c < packed; c += per_row * N) {
    Numbers<N> before = {};
    if (added) before = read_pack<N>(added + c);
    Numbers<N> d = each<N>(gradient, read_pack<N>(x + c), read_pack<N>(dy + c), read_pack<N>(weight + c));
    write_pack<N>(dx + c, each<N>(sum, before, d));
  }
  for (int64_t c = packed + first; c < width; c += per_row) {
    float d = gradient(widen(x[c]), widen(dy[c]), widen(weight[c]));
    dx[c] = narrow<T>(added ? widen(added[c]) + d : d);
  }
}
#define RMS_NORM_BACKWARD(T, W)                                                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS, 3) rms_norm_backward_##T##_##W(const T* dy, const T* x, const W* weight, const T* added, T* dx,    \
                                                         float eps, int32_t per_row, int64_t width, int64_t rows) {        \
    rms_norm_backward<T, W>(Rounded{}, dy, x, weight, added, dx, eps, per_row, width, rows);                               \
  }                                                                                                                        \
  EXPORT(rms_norm_backward_##T##_##W)
#define RMS_NORM_OFFSET_BACKWARD(T, W)                                                                                     \
  extern "C" __global__ void __launch_bounds__(THREADS, 3) rms_norm_offset_backward_##T##_##W(const T* dy, const T* x,     \
      const W* weight, const T* added, T* dx, float eps, int32_t per_row, int64_t width, int64_t rows, float offset) {     \
    rms_norm_backward<T, W>(Offset{offset}, dy, x, weight, added, dx, eps, per_row, width, rows);                          \
  }                                                                                                                        \
  EXPORT(rms_norm_offset_backward_##T##_##W)

// r of each row, for the gradient of the weight.
template <class T>
DEVICE void inverse_rms(const T* x, float* r, float eps, int per_row, int64_t width, int64_t rows) {
  SHARED(memory);
  int64_t row = row_of(per_row);
  if (row >= rows) return;
  constexpr int N = pack_of<T>();
  int64_t packed = width % N == 0 && are_aligned(x) ? width : 0;
  float squares = squares_of<N>(x + row * width, threadIdx.x & (per_row - 1), per_row, packed, width);
  squares = row_sum(squares, (float*)memory, per_row == THREADS);
  if ((threadIdx.x & (per_row - 1)) == 0) r[row] = 1.0f / sqrtf(squares / (float)width + eps);
}
#define INVERSE_RMS(T)                                                                                                 \
  extern "C" __global__ void inverse_rms_##T(const T* x, float* r, float eps, int32_t per_row, int64_t width, int64_t rows) { \
    inverse_rms<T>(x, r, eps, per_row, width, rows);                                                                   \
  }                                                                                                                    \
  EXPORT(inverse_rms_##T)

#define OF_WEIGHT(T, W) RMS_NORM(T, W) RMS_NORM_BACKWARD(T, W) RMS_NORM_OFFSET(T, W) RMS_NORM_OFFSET_BACKWARD(T, W)
#define OF_VALUE(T) OF_WEIGHT(T, f32) OF_WEIGHT(T, bf16) OF_WEIGHT(T, f16) INVERSE_RMS(T)
OF_VALUE(f32)
OF_VALUE(bf16)
