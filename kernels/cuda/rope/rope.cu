// Heads -> heads rotated by their token's position, and sinusoids of positions.
#include "packs.cuh"

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
//
// A block has `rows` tokens from blockIdx.x `rows` on. It finds the cosines and sines of a token once for all of its heads, in
// shared memory: those of the first numbers of all packs of a half, then of the second ones, as neighbours read them.
struct Turn {
  float c, d;
};
template <int N>
DEVICE void turn(Numbers<N>& low, Numbers<N>& high, const Turn* turns, int apart) {
#pragma unroll
  for (int k = 0; k < N; k++) {
    float x = low.of[k], c = turns[k * apart].c, d = turns[k * apart].d;
    low.of[k] = x * c - high.of[k] * d;
    high.of[k] = high.of[k] * c + x * d;
  }
}
template <class T>
DEVICE void rope(const T* x, const int32_t* positions, T* y, const Frequencies& frequencies, int half, int head, float scaling,
                 float sign, int rows, int64_t width, int64_t tokens) {
  SHARED(memory);
  Turn* turns = (Turn*)memory;
  constexpr int N = pack_of<T>();
  int64_t begin = (int64_t)blockIdx.x * rows;
  int count = (int)(tokens - begin < rows ? tokens - begin : rows), heads = (int)(width / head);
  // Halves in packs, or number by number.
  bool packs = half % N == 0 && head % N == 0 && are_aligned(x, y);
  int step = packs ? N : 1, of_head = half / step, of_token = of_head * heads;
  x += begin * width;
  y += begin * width;
  for (int i = threadIdx.x; i < count * half; i += THREADS) {
    int t = i / half, k = i - t * half;
    float angle = (float)positions[begin + t] * frequencies.of[k];
    turns[t * half + k % step * of_head + k / step] = Turn{cosf(angle) * scaling, sinf(angle) * scaling * sign};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count * of_token; i += THREADS) {
    int t = i / of_token, in_token = i - t * of_token, at_head = in_token / of_head, k = in_token - at_head * of_head;
    int64_t at = t * width + at_head * head + k * step;
    if (packs) {
      Pack<T, N> first = load_pack<N>(x + at), second = load_pack<N>(x + at + half);
      Numbers<N> low = widen_pack<N>(first), high = widen_pack<N>(second);
      turn(low, high, turns + t * half + k, of_head);
      write_pack<N>(y + at, low);
      write_pack<N>(y + at + half, high);
    } else {
      Numbers<1> low = {{widen(x[at])}}, high = {{widen(x[at + half])}};
      turn(low, high, turns + t * half + k, of_head);
      y[at] = narrow<T>(low.of[0]);
      y[at + half] = narrow<T>(high.of[0]);
    }
  }
  int behind = head - 2 * half;
  for (int i = threadIdx.x; i < count * heads * behind; i += THREADS) {
    int64_t at = (int64_t)(i / behind) * head + 2 * half + i % behind;
    y[at] = x[at];
  }
}
#define ROPE(T)                                                                                                            \
  extern "C" __global__ void rope_##T(const T* x, const int32_t* positions, T* y, const Frequencies frequencies, int32_t half, \
                                      int32_t head, float scaling, float sign, int32_t rows, int64_t width, int64_t tokens) { \
    rope<T>(x, positions, y, frequencies, half, head, scaling, sign, rows, width, tokens);                                 \
  }                                                                                                                        \
  EXPORT(rope_##T)
ROPE(f32)
ROPE(bf16)

// y[t, i] = amplitude_i f(position_t inv_freq_i), f the cosine or the sine, for `count` columns from `begin` on of `width`.
template <class T>
DEVICE void sinusoids(const int32_t* positions, T* y, const Sinusoids& frequencies, const Sinusoids& amplitudes, int sine,
                      int begin, int count, int64_t width, int64_t tokens) {
  for (int64_t i = first_element(); i < tokens * count; i += element_stride()) {
    auto [t, column] = cell_of(i, count);
    int k = (int)column;
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
    int k = (int)cell_of(i, head).column;
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
