// Heads -> heads rotated by their token's position, and sinusoids of positions.
#include "element.cuh"

// Angular frequencies in radians per position, of which the first `count` are used.
constexpr int MOST_FREQUENCIES = 512;
struct Frequencies {
  float of[MOST_FREQUENCIES];
};
// The same for sinusoids, which also take amplitudes: a launch has at most 4 KiB of arguments.
constexpr int MOST_SINUSOIDS = 448;
struct Sinusoids {
  float of[MOST_SINUSOIDS];
};

// With a = position inv_freq_i, c = scaling cos a, d = sign scaling sin a and the halves x, x' of a head: y = x c - x' d,
// y' = x' c + x d. What is behind the halves is copied.
template <class T>
DEVICE void rope(const T* x, const int32_t* positions, T* y, const Frequencies& frequencies, int half, int head, float scaling,
                 float sign, int64_t width, int64_t tokens) {
  int64_t per_head = head - half, per_token = width / head * per_head;
  for (int64_t i = first_element(); i < tokens * per_token; i += element_stride()) {
    int64_t t = i / per_token, in_token = i % per_token;
    int k = (int)(in_token % per_head);
    int64_t at = t * width + in_token / per_head * head;
    if (k >= half) {
      y[at + half + k] = x[at + half + k];
      continue;
    }
    float angle = (float)positions[t] * frequencies.of[k];
    float c = cosf(angle) * scaling, d = sinf(angle) * scaling * sign;
    float low = widen(x[at + k]), high = widen(x[at + half + k]);
    y[at + k] = narrow<T>(low * c - high * d);
    y[at + half + k] = narrow<T>(high * c + low * d);
  }
}
#define ROPE(T)                                                                                                            \
  extern "C" __global__ void rope_##T(const T* x, const int32_t* positions, T* y, const Frequencies frequencies, int32_t half, \
                                      int32_t head, float scaling, float sign, int64_t width, int64_t tokens) {            \
    rope<T>(x, positions, y, frequencies, half, head, scaling, sign, width, tokens);                                       \
  }                                                                                                                        \
  EXPORT(rope_##T)
ROPE(f32)
ROPE(bf16)

// y[t, i] = amplitude_i f(position_t inv_freq_i), f the cosine or the sine, for `count` columns from `begin` on of `width`.
template <class T>
DEVICE void sinusoids(const int32_t* positions, T* y, const Sinusoids& frequencies, const Sinusoids& amplitudes, int sine,
                      int begin, int count, int64_t width, int64_t tokens) {
  for (int64_t i = first_element(); i < tokens * count; i += element_stride()) {
    int64_t t = i / count;
    int k = (int)(i % count);
    float angle = (float)positions[t] * frequencies.of[k];
    y[t * width + begin + k] = narrow<T>((sine ? sinf(angle) : cosf(angle)) * amplitudes.of[k]);
  }
}
#define SINUSOIDS(T)                                                                                                       \
  extern "C" __global__ void sinusoids_##T(const int32_t* positions, T* y, const Sinusoids frequencies,                     \
                                           const Sinusoids amplitudes, int32_t sine, int32_t begin, int32_t count,       \
                                           int64_t width, int64_t tokens) {                                                \
    sinusoids<T>(positions, y, frequencies, amplitudes, sine, begin, count, width, tokens);                                \
  }                                                                                                                        \
  EXPORT(sinusoids_##T)
SINUSOIDS(f32)
SINUSOIDS(bf16)

// Each head with its first `half` columns and the `half` behind them exchanged.
template <class T>
DEVICE void swap_halves(const T* x, T* y, int half, int head, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    int k = (int)(i % head);
    y[i] = x[k < half ? i + half : k < 2 * half ? i - half : i];
  }
}
#define SWAP_HALVES(T)                                                                                    \
  extern "C" __global__ void swap_halves_##T(const T* x, T* y, int32_t half, int32_t head, int64_t n) {    \
    swap_halves<T>(x, y, half, head, n);                                                                  \
  }                                                                                                       \
  EXPORT(swap_halves_##T)
SWAP_HALVES(f32)
SWAP_HALVES(bf16)
