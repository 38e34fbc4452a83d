// Numbers -> numbers, element by element: sums, products, functions, channels, gates, slices, dropout.
#include "packs.cuh"

// `FORWARD(T)` instantiates a kernel for the dtypes that values are computed in.
#define EACH_VALUE(kernel) kernel(f32) kernel(bf16)

// y = a + alpha b. y may be a.
template <class T>
DEVICE void add(const T* a, const T* b, T* y, float alpha, int64_t n) {
  map(n, [&](float p, float q) { return p + alpha * q; }, y, a, b);
}
#define ADD(T)                                                                                                        \
  extern "C" __global__ void BY_TILES add_##T(const T* a, const T* b, T* y, float alpha, int64_t n) { add<T>(a, b, y, alpha, n); } \
  EXPORT(add_##T)
EACH_VALUE(ADD)

// y = a b.
template <class T>
DEVICE void multiply(const T* a, const T* b, T* y, int64_t n) {
  map(n, [](float p, float q) { return p * q; }, y, a, b);
}
#define MULTIPLY(T)                                                                                          \
  extern "C" __global__ void BY_TILES mul_##T(const T* a, const T* b, T* y, int64_t n) { multiply<T>(a, b, y, n); } \
  EXPORT(mul_##T)
EACH_VALUE(MULTIPLY)

// y = a / b.
template <class T>
DEVICE void divide(const T* a, const T* b, T* y, int64_t n) {
  map(n, [](float p, float q) { return p / q; }, y, a, b);
}
#define DIVIDE(T)                                                                                          \
  extern "C" __global__ void BY_TILES div_##T(const T* a, const T* b, T* y, int64_t n) { divide<T>(a, b, y, n); } \
  EXPORT(div_##T)
EACH_VALUE(DIVIDE)

// y = alpha x. y may be x.
template <class T>
DEVICE void scale(const T* x, T* y, float alpha, int64_t n) {
  map(n, [&](float v) { return alpha * v; }, y, x);
}
#define SCALE(T)                                                                                           \
  extern "C" __global__ void BY_TILES scale_##T(const T* x, T* y, float alpha, int64_t n) { scale<T>(x, y, alpha, n); } \
  EXPORT(scale_##T)
EACH_VALUE(SCALE)

enum Function { EXP, LOG, SIGMOID, TANH, RSQRT, ERF };

// y = f(x); for RSQRT 1 / sqrt(alpha x + beta).
template <class T>
DEVICE void function(const T* x, T* y, int which, float alpha, float beta, int64_t n) {
  if (which == EXP)
    map(n, [](float v) { return expf(v); }, y, x);
  else if (which == LOG)
    map(n, [](float v) { return logf(v); }, y, x);
  else if (which == SIGMOID)
    map(n, [](float v) { return 1.0f / (1.0f + expf(-v)); }, y, x);
  else if (which == TANH)
    map(n, [](float v) { return tanhf(v); }, y, x);
  else if (which == ERF)
    map(n, [](float v) { return erff(v); }, y, x);
  else
    map(n, [&](float v) { return 1.0f / sqrtf(alpha * v + beta); }, y, x);
}
#define FUNCTION(T)                                                                                                  \
  extern "C" __global__ void BY_TILES function_##T(const T* x, T* y, int32_t which, float alpha, float beta, int64_t n) {      \
    function<T>(x, y, which, alpha, beta, n);                                                                        \
  }                                                                                                                  \
  EXPORT(function_##T)
EACH_VALUE(FUNCTION)

// y[t, c] = x[t, c] w[c], rows of `width`.
template <class T, class W>
DEVICE void scale_columns(const T* x, const W* w, T* y, int64_t width, int64_t n) {
  constexpr int N = pack_of<T, W>();
  bool packs = width % N == 0 && are_aligned(x, w, y);
  int64_t begin = blockIdx.x * TILE + threadIdx.x * N;
  for (int64_t at = begin; at < begin + TILE && at < n; at += THREADS * N) {
    if (packs) {
      int64_t c = cell_of(at, width).column;
      write_pack<N>(y + at, each<N>([](float p, float q) { return p * q; }, read_pack<N>(x + at), read_pack<N>(w + c)));
    } else {
#pragma unroll 1
      for (int64_t i = at; i < at + N && i < n; i++) y[i] = narrow<T>(widen(x[i]) * widen(w[cell_of(i, width).column]));
    }
  }
}
#define SCALE_COLUMNS(T, W)                                                                                       \
  extern "C" __global__ void BY_TILES scale_columns_##T##_##W(const T* x, const W* w, T* y, int64_t width, int64_t n) {     \
    scale_columns<T, W>(x, w, y, width, n);                                                                       \
  }                                                                                                               \
  EXPORT(scale_columns_##T##_##W)
#define SCALE_COLUMNS_OF(T) SCALE_COLUMNS(T, f32) SCALE_COLUMNS(T, bf16) SCALE_COLUMNS(T, f16)
EACH_VALUE(SCALE_COLUMNS_OF)

// 1 / x, for values of T: what is rounded to bf16 needs no division.
DEVICE float inverse(float x, f32*) { return 1.0f / x; }
DEVICE float inverse(float x, bf16*) { return reciprocal_fast(x); }
// 1 / (1 + e^-g).
template <class T>
DEVICE float sigmoid(float g) {
  return inverse(1.0f + expf(-g), (T*)0);
}

// The argument z of a gate's sigmoid, and g z'. SwiGLU: z = g.
struct Silu {};
DEVICE float argument(Silu, float g) { return g; }
DEVICE float slope(Silu, float g) { return g; }
// GELU by the hyperbolic tangent: z = 2 k (g + c g^3), k = sqrt(2 / pi), c = 0.044715; (1 + tanh(z / 2)) / 2 is the sigmoid.
struct Gelu {};
DEVICE float argument(Gelu, float g) { return 1.5957691216057308f * g * (1.0f + 0.044715f * (g * g)); }
DEVICE float slope(Gelu, float g) { return 1.5957691216057308f * g * (1.0f + 0.134145f * (g * g)); }

// y = g s u with s = 1 / (1 + e^-z).
template <class T, class F>
DEVICE void gated(F form, const T* gate, const T* up, T* y, int64_t n) {
  map(n, [&](float g, float u) { return g * sigmoid<T>(argument(form, g)) * u; }, y, gate, up);
}
#define GATED(name, F, T)                                                                                                  \
  extern "C" __global__ void BY_TILES name##_##T(const T* gate, const T* up, T* y, int64_t n) { gated<T>(F{}, gate, up, y, n); } \
  EXPORT(name##_##T)
#define SWIGLU(T) GATED(swiglu, Silu, T)
EACH_VALUE(SWIGLU)
#define GEGLU_TANH(T) GATED(geglu_tanh, Gelu, T)
EACH_VALUE(GEGLU_TANH)

// dg = dy u s (1 + g z' (1 - s)), du = dy g s.
template <class T, class F>
DEVICE void gated_backward(F form, const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t n) {
  constexpr int N = pack_of<T>();
  auto of_gate = [&](float d, float g, float u) {
    float s = sigmoid<T>(argument(form, g));
    return d * u * s * (1.0f + slope(form, g) * (1.0f - s));
  };
  auto of_up = [&](float d, float g) { return d * g * sigmoid<T>(argument(form, g)); };
  bool packs = are_aligned(dy, gate, up, dgate, dup);
  int64_t begin = blockIdx.x * TILE + threadIdx.x * N;
  for (int64_t at = begin; at < begin + TILE && at < n; at += THREADS * N) {
    if (packs && at + N <= n) {
      Numbers<N> d = read_pack<N>(dy + at), g = read_pack<N>(gate + at), u = read_pack<N>(up + at);
      write_pack<N>(dgate + at, each<N>(of_gate, d, g, u));
      write_pack<N>(dup + at, each<N>(of_up, d, g));
    } else {
#pragma unroll 1
      for (int64_t i = at; i < at + N && i < n; i++) {
        float d = widen(dy[i]), g = widen(gate[i]), u = widen(up[i]);
        dgate[i] = narrow<T>(of_gate(d, g, u));
        dup[i] = narrow<T>(of_up(d, g));
      }
    }
  }
}
#define GATED_BACKWARD(name, F, T)                                                                                       \
  extern "C" __global__ void name##_##T(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t n) {         \
    gated_backward<T>(F{}, dy, gate, up, dgate, dup, n);                                                                 \
  }                                                                                                                      \
  EXPORT(name##_##T)
#define SWIGLU_BACKWARD(T) GATED_BACKWARD(swiglu_backward, Silu, T)
EACH_VALUE(SWIGLU_BACKWARD)
#define GEGLU_TANH_BACKWARD(T) GATED_BACKWARD(geglu_tanh_backward, Gelu, T)
EACH_VALUE(GEGLU_TANH_BACKWARD)

// The normal distribution function P, and P + x P'. By the error function; P' = e^(-x^2 / 2) / sqrt(2 pi).
struct Exact {};
template <class T>
DEVICE float below(Exact, float x) {
  return 0.5f * (1.0f + erff(x * 0.70710678118654752f));
}
template <class T>
DEVICE float rise(Exact form, float x) {
  return below<T>(form, x) + x * (expf(-0.5f * (x * x)) * 0.39894228040143268f);
}
// By the hyperbolic tangent, the sigmoid of a gate.
template <class T>
DEVICE float below(Gelu form, float x) {
  return sigmoid<T>(argument(form, x));
}
template <class T>
DEVICE float rise(Gelu form, float x) {
  float s = below<T>(form, x);
  return s * (1.0f + slope(form, x) * (1.0f - s));
}
// y = x P(x), dx = dy (P(x) + x P'(x)).
#define GELU(name, F, T)                                                                                          \
  extern "C" __global__ void BY_TILES name##_##T(const T* x, T* y, int64_t n) {                                   \
    map(n, [](float v) { return v * below<T>(F{}, v); }, y, x);                                                   \
  }                                                                                                               \
  EXPORT(name##_##T)                                                                                              \
  extern "C" __global__ void BY_TILES name##_backward_##T(const T* dy, const T* x, T* dx, int64_t n) {            \
    map(n, [](float d, float v) { return d * rise<T>(F{}, v); }, dx, dy, x);                                      \
  }                                                                                                               \
  EXPORT(name##_backward_##T)
#define GELUS(T) GELU(gelu_none, Exact, T) GELU(gelu_tanh, Gelu, T)
EACH_VALUE(GELUS)

// y = columns `first` to `first + width` of x, rows of `of` columns.
template <class T>
DEVICE void slice_columns(const T* x, T* y, int64_t first, int64_t width, int64_t of, int64_t n) {
  constexpr int N = pack_of<T>();
  bool packs = (first | width | of) % N == 0 && are_aligned(x, y);
  int64_t begin = blockIdx.x * TILE + threadIdx.x * N;
  for (int64_t at = begin; at < begin + TILE && at < n; at += THREADS * N) {
    if (packs) {
      auto [t, c] = cell_of(at, width);
      write_pack<N>(y + at, read_pack<N>(x + t * of + first + c));
    } else {
#pragma unroll 1
      for (int64_t i = at; i < at + N && i < n; i++) {
        auto [t, c] = cell_of(i, width);
        y[i] = x[t * of + first + c];
      }
    }
  }
}
#define SLICE_COLUMNS(T)                                                                                                     \
  extern "C" __global__ void slice_columns_##T(const T* x, T* y, int64_t first, int64_t width, int64_t of, int64_t n) {      \
    slice_columns<T>(x, y, first, width, of, n);                                                                             \
  }                                                                                                                          \
  EXPORT(slice_columns_##T)
EACH_VALUE(SLICE_COLUMNS)

// dx = dy in those columns, 0 in the others; added to `added` where it is there. Where dx lies in its memory, `n` is the size of dy
// and its columns alone are written, else that of dx.
template <class T>
DEVICE void slice_columns_backward(const T* dy, const T* added, T* dx, int64_t first, int64_t width, int64_t of, int64_t n) {
  if (added == dx) {
    for (int64_t i = first_element(); i < n; i += element_stride()) {
      auto [t, c] = cell_of(i, width);
      int64_t at = t * of + first + c;
      dx[at] = narrow<T>(widen(dx[at]) + widen(dy[i]));
    }
    return;
  }
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    auto [t, c] = cell_of(i, of);
    bool within = c >= first && c < first + width;
    float own = within ? widen(dy[t * width + c - first]) : 0.0f;
    if (!added)
      dx[i] = narrow<T>(own);
    else
      dx[i] = within ? narrow<T>(widen(added[i]) + own) : added[i];
  }
}
#define SLICE_COLUMNS_BACKWARD(T)                                                                                          \
  extern "C" __global__ void slice_columns_backward_##T(const T* dy, const T* added, T* dx, int64_t first, int64_t width,  \
                                                        int64_t of, int64_t n) {                                           \
    slice_columns_backward<T>(dy, added, dx, first, width, of, n);                                                         \
  }                                                                                                                        \
  EXPORT(slice_columns_backward_##T)
EACH_VALUE(SLICE_COLUMNS_BACKWARD)

// y = factor x where the element's random number is at least `threshold` / 2^24, else 0. Element (t, c) draws word c % 4 of the
// counter (c / 4, position of t, sequence of t, site). A thread has four elements of a row.
template <class T>
DEVICE void dropout(const T* x, const int32_t* sequences, const int32_t* positions, T* y, uint32_t key0, uint32_t key1,
                    uint32_t site, uint32_t threshold, float factor, int64_t tokens, int64_t width) {
  int64_t blocks = (width + 3) / 4;
  bool packs = width % 4 == 0 && are_aligned(x, y);
  for (int64_t i = first_element(); i < tokens * blocks; i += element_stride()) {
    auto [t, c] = cell_of(i, blocks);
    Words drawn = philox(key0, key1, (uint32_t)c, (uint32_t)positions[t], (uint32_t)sequences[t], site);
    if (packs) {
      Numbers<4> v = read_pack<4>(x + 4 * i);
#pragma unroll
      for (int k = 0; k < 4; k++) v.of[k] = (drawn.word[k] >> 8) >= threshold ? v.of[k] * factor : 0.0f;
      write_pack<4>(y + 4 * i, v);
      continue;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
      int64_t at = t * width + 4 * c + k;
      if (4 * c + k < width) y[at] = (drawn.word[k] >> 8) >= threshold ? narrow<T>(widen(x[at]) * factor) : narrow<T>(0.0f);
    }
  }
}
#define DROPOUT(T)                                                                                                        \
  extern "C" __global__ void dropout_##T(const T* x, const int32_t* sequences, const int32_t* positions, T* y, uint32_t key0, \
                                         uint32_t key1, uint32_t site, uint32_t threshold, float factor, int64_t tokens,  \
                                         int64_t width) {                                                                 \
    dropout<T>(x, sequences, positions, y, key0, key1, site, threshold, factor, tokens, width);                           \
  }                                                                                                                       \
  EXPORT(dropout_##T)
EACH_VALUE(DROPOUT)
