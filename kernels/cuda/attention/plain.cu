// Softmax attention and its gradients for any head size, in f32 on plain cores: a warp has a query of a head, or a key.
//
// l_ij = scale q_i . k_j, with a softcap c tanh(l / c); lse_i = log sum_j exp l_ij; out_i = sum_j exp(l_ij - lse_i) v_j. Query i of
// a sequence sees key j of it where j <= i (if causal) and i - j < window. Nothing is added by several warps, so that the bits do
// not depend on chance.
#include "element.cuh"
#include "shape.cuh"

// The widest head: a lane holds MOST_WIDTH / 32 elements of it.
#ifndef MOST_WIDTH
#define MOST_WIDTH 256
#endif
constexpr int PARTS = MOST_WIDTH / 32;

struct Row {
  float of[PARTS];
};
template <class T>
DEVICE Row read_row(const T* from, int width) {
  Row row;
#pragma unroll
  for (int p = 0; p < PARTS; p++) {
    int d = p * 32 + (threadIdx.x & 31);
    row.of[p] = d < width ? widen(from[d]) : 0.0f;
  }
  return row;
}
template <class T>
DEVICE void write_row(T* to, const Row& row, int width) {
#pragma unroll
  for (int p = 0; p < PARTS; p++) {
    int d = p * 32 + (threadIdx.x & 31);
    if (d < width) to[d] = narrow<T>(row.of[p]);
  }
}
// The product of two rows, in all lanes.
DEVICE float dot(const Row& a, const Row& b) {
  float sum = 0;
#pragma unroll
  for (int p = 0; p < PARTS; p++) sum = fmaf(a.of[p], b.of[p], sum);
  for (int mask = 16; mask > 0; mask >>= 1) sum += exchange(sum, mask);
  return sum;
}

// The sequence of token t: its number, first token and length.
struct Sequence {
  int32_t number, first, length;
};
DEVICE Sequence sequence_of(const int32_t* boundaries, int32_t sequences, int32_t t) {
  int32_t low = 0, high = sequences;
  while (high - low > 1) {
    int32_t middle = (low + high) >> 1;
    if (boundaries[middle] <= t)
      low = middle;
    else
      high = middle;
  }
  return Sequence{low, boundaries[low], boundaries[low + 1] - boundaries[low]};
}

// The keys that query i of a sequence of `length` sees.
struct Range {
  int32_t begin, end;
};
DEVICE Range visible(const Shape& s, int32_t i, int32_t length) {
  int32_t begin = s.window > 0 && i + 1 > s.window ? i + 1 - s.window : 0;
  return Range{begin, s.causal ? i + 1 : length};
}

// A logit, and its derivative by scale q . k.
struct Logit {
  float value, slope;
};
DEVICE Logit logit(const Shape& s, float product) {
  float x = s.scale * product;
  if (s.softcap == 0) return Logit{x, 1.0f};
  float t = tanhf(x / s.softcap);
  return Logit{s.softcap * t, 1.0f - t * t};
}

// One query over keys and values that are `stride` elements apart; returns its lse.
template <class T>
DEVICE float attend(const Shape& s, const Row& q, const T* keys, const T* values, int64_t stride, Range range, Row* out) {
  float most = -INFINITE, sum = 0;
  Row acc = {};
  for (int32_t j = range.begin; j < range.end; j++) {
    float l = logit(s, dot(q, read_row(keys + j * stride, s.width))).value;
    float next = fmaxf(most, l), fade = most == -INFINITE ? 0.0f : expf(most - next), weight = expf(l - next);
    Row v = read_row(values + j * stride, s.width);
    sum = sum * fade + weight;
#pragma unroll
    for (int p = 0; p < PARTS; p++) acc.of[p] = fmaf(weight, v.of[p], acc.of[p] * fade);
    most = next;
  }
#pragma unroll
  for (int p = 0; p < PARTS; p++) out->of[p] = acc.of[p] / sum;
  return most + logf(sum);
}

// This warp's number among `count`, or -1.
DEVICE int64_t warp_number(int64_t count) {
  int64_t warp = ((int64_t)blockIdx.x * THREADS + threadIdx.x) >> 5;
  return warp < count ? warp : -1;
}

template <class T>
DEVICE void forward(const T* q, const T* k, const T* v, const int32_t* boundaries, T* out, float* lse, const Shape& s,
                    int32_t sequences, int64_t tokens) {
  int64_t warp = warp_number(tokens * s.heads);
  if (warp < 0) return;
  int32_t t = (int32_t)(warp / s.heads), head = (int32_t)(warp % s.heads), kv = head / (s.heads / s.kv_heads);
  Sequence in = sequence_of(boundaries, sequences, t);
  int64_t stride = (int64_t)s.kv_heads * s.width, at = in.first * stride + kv * s.width;
  Row made;
  float l = attend(s, read_row(q + warp * s.width, s.width), k + at, v + at, stride, visible(s, t - in.first, in.length), &made);
  write_row(out + warp * s.width, made, s.width);
  if ((threadIdx.x & 31) == 0) lse[warp] = l;
}
#define FORWARD(T)                                                                                                          \
  extern "C" __global__ void attention_##T(const T* q, const T* k, const T* v, const int32_t* boundaries, T* out, float* lse, \
                                           const Shape s, int32_t sequences, int64_t tokens) {                              \
    forward<T>(q, k, v, boundaries, out, lse, s, sequences, tokens);                                                        \
  }                                                                                                                         \
  EXPORT(attention_##T)

// delta_i = dout_i . out_i of each head (Dao et al. 2022, appendix B.2).
template <class T>
DEVICE void delta(const T* dout, const T* out, float* delta, const Shape& s, int64_t tokens) {
  int64_t warp = warp_number(tokens * s.heads);
  if (warp < 0) return;
  float sum = dot(read_row(dout + warp * s.width, s.width), read_row(out + warp * s.width, s.width));
  if ((threadIdx.x & 31) == 0) delta[warp] = sum;
}
#define DELTA(T)                                                                                                           \
  extern "C" __global__ void attention_delta_##T(const T* dout, const T* out, float* sums, const Shape s, int64_t tokens) { \
    delta<T>(dout, out, sums, s, tokens);                                                                                  \
  }                                                                                                                        \
  EXPORT(attention_delta_##T)

template <class T>
DEVICE void query_gradient(const T* dout, const T* q, const T* k, const T* v, const float* lse, const float* delta,
                           const int32_t* boundaries, T* dq, const Shape& s, int32_t sequences, int64_t tokens) {
  int64_t warp = warp_number(tokens * s.heads);
  if (warp < 0) return;
  int32_t t = (int32_t)(warp / s.heads), head = (int32_t)(warp % s.heads), kv = head / (s.heads / s.kv_heads);
  Sequence in = sequence_of(boundaries, sequences, t);
  int64_t stride = (int64_t)s.kv_heads * s.width, at = in.first * stride + kv * s.width;
  Row own = read_row(q + warp * s.width, s.width), d = read_row(dout + warp * s.width, s.width), sum = {};
  Range range = visible(s, t - in.first, in.length);
  for (int32_t j = range.begin; j < range.end; j++) {
    Row key = read_row(k + at + j * stride, s.width);
    Logit l = logit(s, dot(own, key));
    float weight = expf(l.value - lse[warp]);
    float by = weight * (dot(d, read_row(v + at + j * stride, s.width)) - delta[warp]) * l.slope * s.scale;
#pragma unroll
    for (int p = 0; p < PARTS; p++) sum.of[p] = fmaf(by, key.of[p], sum.of[p]);
  }
  write_row(dq + warp * s.width, sum, s.width);
}
#define QUERY_GRADIENT(T)                                                                                                  \
  extern "C" __global__ void attention_dq_##T(const T* dout, const T* q, const T* k, const T* v, const float* lse,          \
                                              const float* sums, const int32_t* boundaries, T* dq, const Shape s,          \
                                              int32_t sequences, int64_t tokens) {                                         \
    query_gradient<T>(dout, q, k, v, lse, sums, boundaries, dq, s, sequences, tokens);                                     \
  }                                                                                                                        \
  EXPORT(attention_dq_##T)

template <class T>
DEVICE void key_gradient(const T* dout, const T* q, const T* k, const T* v, const float* lse, const float* delta,
                         const int32_t* boundaries, T* dk, T* dv, const Shape& s, int32_t sequences, int64_t tokens) {
  int64_t warp = warp_number(tokens * s.kv_heads);
  if (warp < 0) return;
  int32_t t = (int32_t)(warp / s.kv_heads), kv = (int32_t)(warp % s.kv_heads), group = s.heads / s.kv_heads;
  Sequence in = sequence_of(boundaries, sequences, t);
  Row key = read_row(k + warp * s.width, s.width), value = read_row(v + warp * s.width, s.width), of_key = {}, of_value = {};
  int32_t j = t - in.first, begin = s.causal ? j : 0, end = in.length;
  if (s.window > 0 && end > j + s.window) end = j + s.window;
  for (int32_t i = begin; i < end; i++)
    for (int32_t head = kv * group; head < (kv + 1) * group; head++) {
      int64_t row = (int64_t)(in.first + i) * s.heads + head;
      Row query = read_row(q + row * s.width, s.width), d = read_row(dout + row * s.width, s.width);
      Logit l = logit(s, dot(query, key));
      float weight = expf(l.value - lse[row]), by = weight * (dot(d, value) - delta[row]) * l.slope * s.scale;
#pragma unroll
      for (int p = 0; p < PARTS; p++) {
        of_key.of[p] = fmaf(by, query.of[p], of_key.of[p]);
        of_value.of[p] = fmaf(weight, d.of[p], of_value.of[p]);
      }
    }
  write_row(dk + warp * s.width, of_key, s.width);
  write_row(dv + warp * s.width, of_value, s.width);
}
#define KEY_GRADIENT(T)                                                                                                    \
  extern "C" __global__ void attention_dkv_##T(const T* dout, const T* q, const T* k, const T* v, const float* lse,         \
                                               const float* sums, const int32_t* boundaries, T* dk, T* dv, const Shape s,  \
                                               int32_t sequences, int64_t tokens) {                                        \
    key_gradient<T>(dout, q, k, v, lse, sums, boundaries, dk, dv, s, sequences, tokens);                                   \
  }                                                                                                                        \
  EXPORT(attention_dkv_##T)

// A sequence that does not fit its slot of the cache.
constexpr int32_t BAD_SLOT = 3;

// Where a sequence of a launch continues in a cache of `slots` slots of `capacity` tokens; slot -1 where it does not fit.
struct Start {
  int32_t slot, held;
};
DEVICE Start start_of(const Sequence& in, const int32_t* positions, const int32_t* slots_of, int32_t slots, int32_t capacity) {
  int32_t slot = slots_of[in.first], held = positions[in.first];
  bool fits = slot >= 0 && slot < slots && held >= 0 && held <= capacity - in.length;
  return Start{fits ? slot : -1, held};
}

// Appends keys and values to the cache. A warp has a token.
template <class T>
DEVICE void append(const T* k, const T* v, const int32_t* boundaries, const int32_t* positions, const int32_t* slots_of, T* keys,
                   T* values, const Shape& s, int32_t sequences, int32_t slots, int32_t capacity, int64_t tokens, Fault* fault) {
  int64_t t = warp_number(tokens);
  if (t < 0) return;
  Sequence in = sequence_of(boundaries, sequences, (int32_t)t);
  Start start = start_of(in, positions, slots_of, slots, capacity);
  if (start.slot < 0) {
    if ((threadIdx.x & 31) == 0) report(fault, BAD_SLOT, in.number, slots_of[in.first], slots);
    return;
  }
  int64_t width = (int64_t)s.kv_heads * s.width, to = ((int64_t)start.slot * capacity + start.held + t - in.first) * width;
  for (int64_t c = threadIdx.x & 31; c < width; c += 32) {
    keys[to + c] = k[t * width + c];
    values[to + c] = v[t * width + c];
  }
}
#define APPEND(T)                                                                                                         \
  extern "C" __global__ void cache_append_##T(const T* k, const T* v, const int32_t* boundaries, const int32_t* positions,  \
                                              const int32_t* slots_of, T* keys, T* values, const Shape s, int32_t sequences, \
                                              int32_t slots, int32_t capacity, int64_t tokens, Fault* fault) {            \
    append<T>(k, v, boundaries, positions, slots_of, keys, values, s, sequences, slots, capacity, tokens, fault);         \
  }                                                                                                                       \
  EXPORT(cache_append_##T)

template <class T>
DEVICE void cached(const T* q, const int32_t* boundaries, const int32_t* positions, const int32_t* slots_of, const T* keys,
                   const T* values, T* out, const Shape& s, int32_t sequences, int32_t slots, int32_t capacity, int64_t tokens) {
  int64_t warp = warp_number(tokens * s.heads);
  if (warp < 0) return;
  int32_t t = (int32_t)(warp / s.heads), head = (int32_t)(warp % s.heads), kv = head / (s.heads / s.kv_heads);
  Sequence in = sequence_of(boundaries, sequences, t);
  Start start = start_of(in, positions, slots_of, slots, capacity);
  Row made = {};
  if (start.slot >= 0) {
    int64_t stride = (int64_t)s.kv_heads * s.width, at = (int64_t)start.slot * capacity * stride + kv * s.width;
    Range range = visible(s, start.held + t - in.first, start.held + in.length);
    attend(s, read_row(q + warp * s.width, s.width), keys + at, values + at, stride, range, &made);
  }
  write_row(out + warp * s.width, made, s.width);
}
#define CACHED(T)                                                                                                          \
  extern "C" __global__ void attention_cached_##T(const T* q, const int32_t* boundaries, const int32_t* positions,          \
                                                  const int32_t* slots_of, const T* keys, const T* values, T* out,         \
                                                  const Shape s, int32_t sequences, int32_t slots, int32_t capacity,       \
                                                  int64_t tokens) {                                                        \
    cached<T>(q, boundaries, positions, slots_of, keys, values, out, s, sequences, slots, capacity, tokens);               \
  }                                                                                                                        \
  EXPORT(attention_cached_##T)

#define EACH(T) FORWARD(T) DELTA(T) QUERY_GRADIENT(T) KEY_GRADIENT(T) APPEND(T) CACHED(T)
EACH(f32)
EACH(bf16)
