// Rows -> a number of each, or rows: the primitives that other ops are made of.
#include "packs.cuh"

// The label or index of a row that is left out.
constexpr int32_t IGNORED = -100;

// An index that is neither a column nor -100.
constexpr int32_t BAD_INDEX = 1;
DEVICE bool is_bad(int32_t index, int64_t width, int64_t t, Fault* fault) {
  bool bad = index != IGNORED && (index < 0 || index >= width);
  if (bad) report(fault, BAD_INDEX, (int32_t)t, index, (int32_t)width);
  return bad;
}

// Column (l M + m) R + r of y is column m of x.
template <class T>
DEVICE void expand(const T* x, T* y, int64_t columns, int64_t repeat, int64_t width, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    auto [t, c] = cell_of(i, width);
    y[i] = x[t * columns + cell_of(cell_of(c, repeat).row, columns).column];
  }
}
#define EXPAND(T)                                                                                                       \
  extern "C" __global__ void expand_##T(const T* x, T* y, int64_t columns, int64_t repeat, int64_t width, int64_t n) {   \
    expand<T>(x, y, columns, repeat, width, n);                                                                         \
  }                                                                                                                     \
  EXPORT(expand_##T)

// The transpose of `expand`: a warp sums the copies of a column.
template <class T>
DEVICE void contract(const T* x, T* y, int64_t columns, int64_t repeat, int64_t width, int64_t n) {
  int lane = threadIdx.x & 31;
  int64_t copies = width / columns;
  for (int64_t i = first_element() >> 5; i < n; i += element_stride() >> 5) {
    const T* row = x + i / columns * width;
    int64_t m = i % columns;
    float sum = 0;
    for (int64_t k = lane; k < copies; k += 32) sum += widen(row[(k / repeat * columns + m) * repeat + k % repeat]);
    for (int mask = 16; mask > 0; mask >>= 1) sum += exchange(sum, mask);
    if (lane == 0) y[i] = narrow<T>(sum);
  }
}
#define CONTRACT(T)                                                                                                       \
  extern "C" __global__ void contract_##T(const T* x, T* y, int64_t columns, int64_t repeat, int64_t width, int64_t n) {   \
    contract<T>(x, y, columns, repeat, width, n);                                                                         \
  }                                                                                                                       \
  EXPORT(contract_##T)

// Each row is the weight, as often as it fits.
template <class W, class T>
DEVICE void broadcast(const W* weight, T* y, int64_t elements, int64_t width, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) y[i] = narrow<T>(widen(weight[cell_of(cell_of(i, width).column, elements).column]));
}
#define BROADCAST(W, T)                                                                                                   \
  extern "C" __global__ void broadcast_##W##_##T(const W* weight, T* y, int64_t elements, int64_t width, int64_t n) {      \
    broadcast<W, T>(weight, y, elements, width, n);                                                                       \
  }                                                                                                                       \
  EXPORT(broadcast_##W##_##T)

// The largest number of a row of x, and the index where it is first, in all threads. NaNs count as nothing.
template <class T>
DEVICE void largest(const T* x, int64_t width, unsigned char* memory, float* most, int32_t* first) {
  float own = -INFINITE;
  for (int64_t c = threadIdx.x; c < width; c += THREADS) own = fmaxf(own, widen(x[c]));
  own = block_max(own, (float*)memory);
  int32_t at = 0x7fffffff;
  for (int64_t c = threadIdx.x; c < width && at == 0x7fffffff; c += THREADS)
    if (widen(x[c]) == own) at = (int32_t)c;
  for (int mask = 16; mask > 0; mask >>= 1) {
    int32_t other = exchange(at, mask);
    at = other < at ? other : at;
  }
  int32_t* scratch = (int32_t*)memory;
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = at;
  __syncthreads();
  at = scratch[0];
  for (int warp = 1; warp < THREADS / 32; warp++) at = scratch[warp] < at ? scratch[warp] : at;
  __syncthreads();
  *most = own;
  *first = at;
}

template <class T>
DEVICE void row_max(const T* x, T* y, int64_t width) {
  SHARED(memory);
  float most;
  int32_t first;
  largest(x + blockIdx.x * width, width, memory, &most, &first);
  if (threadIdx.x == 0) y[blockIdx.x] = narrow<T>(most);
}
#define ROW_MAX(T)                                                                                        \
  extern "C" __global__ void row_max_##T(const T* x, T* y, int64_t width) { row_max<T>(x, y, width); }     \
  EXPORT(row_max_##T)

template <class T>
DEVICE void is_argmax(const T* x, const int32_t* index, int32_t* y, int64_t width) {
  SHARED(memory);
  float most;
  int32_t first;
  largest(x + blockIdx.x * width, width, memory, &most, &first);
  if (threadIdx.x == 0) y[blockIdx.x] = first == index[blockIdx.x];
}
#define IS_ARGMAX(T)                                                                                               \
  extern "C" __global__ void is_argmax_##T(const T* x, const int32_t* index, int32_t* y, int64_t width) {           \
    is_argmax<T>(x, index, y, width);                                                                              \
  }                                                                                                                \
  EXPORT(is_argmax_##T)

template <class T>
DEVICE void pick(const T* x, const int32_t* index, T* y, int64_t width, int64_t tokens, Fault* fault) {
  for (int64_t t = first_element(); t < tokens; t += element_stride()) {
    int32_t at = index[t];
    bool bad = is_bad(at, width, t, fault);
    y[t] = bad ? narrow<T>(NOT_A_NUMBER) : at == IGNORED ? narrow<T>(0.0f) : x[t * width + at];
  }
}
#define PICK(T)                                                                                                            \
  extern "C" __global__ void pick_##T(const T* x, const int32_t* index, T* y, int64_t width, int64_t tokens, Fault* fault) { \
    pick<T>(x, index, y, width, tokens, fault);                                                                            \
  }                                                                                                                        \
  EXPORT(pick_##T)

template <class T>
DEVICE void one_hot(const int32_t* index, T* y, int64_t width, int64_t n, Fault* fault) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    auto [t, c] = cell_of(i, width);
    if (c == 0) is_bad(index[t], width, t, fault);
    y[i] = narrow<T>(index[t] == c ? 1.0f : 0.0f);
  }
}
#define ONE_HOT(T)                                                                                                   \
  extern "C" __global__ void one_hot_##T(const int32_t* index, T* y, int64_t width, int64_t n, Fault* fault) {        \
    one_hot<T>(index, y, width, n, fault);                                                                           \
  }                                                                                                                  \
  EXPORT(one_hot_##T)

template <class T>
DEVICE void scale_trained(const T* x, const int32_t* labels, T* y, float factor, int64_t width, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride())
    y[i] = narrow<T>(labels[i / width] == IGNORED ? 0.0f : factor * widen(x[i]));
}
#define SCALE_TRAINED(T)                                                                                              \
  extern "C" __global__ void scale_trained_##T(const T* x, const int32_t* labels, T* y, float factor, int64_t width,   \
                                               int64_t n) {                                                           \
    scale_trained<T>(x, labels, y, factor, width, n);                                                                 \
  }                                                                                                                   \
  EXPORT(scale_trained_##T)

// What is known of the logits of a row so far: the largest, where it is first, and the sum of e^(l - largest).
struct Online {
  float most, sum;
  int32_t first;
};
// e^(x - most), for x of the logits so far. Until one is not -INFINITE, `most` counts as 0.
DEVICE float weight_of(float x, float most) { return exp2_fast((x - (most == -INFINITE ? 0.0f : most)) * 1.44269504f); }
// By what a sum fades when the largest logit rises.
DEVICE float fade_of(float most, float next) { return most == -INFINITE ? 1.0f : weight_of(most, next); }

// Adds N logits, of which the first is in `column`.
template <int N>
DEVICE void add_logits(Online& o, const Numbers<N>& x, int32_t column) {
  float next = x.of[0];
#pragma unroll
  for (int k = 1; k < N; k++) next = fmaxf(next, x.of[k]);
  if (next > o.most) {
    o.sum *= fade_of(o.most, next);
    o.most = next;
#pragma unroll
    for (int k = N - 1; k >= 0; k--)
      if (x.of[k] == next) o.first = column + k;
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < N; k++) sum += weight_of(x.of[k], o.most);
  o.sum += sum;
}
DEVICE Online joined(const Online& a, const Online& b) {
  float most = fmaxf(a.most, b.most);
  bool is_a = a.most > b.most || (a.most == b.most && a.first < b.first);
  return Online{most, a.sum * fade_of(a.most, most) + b.sum * fade_of(b.most, most), is_a ? a.first : b.first};
}

// Elements before the first at 16 bytes, of a row of `width`.
template <class T>
DEVICE int64_t before_packs(const T* row, int64_t width) {
  int64_t count = (16 - ((uint64_t)row & 15)) % 16 / sizeof(T);
  return count < width ? count : width;
}

// loss = lse - the label's logit, lse = log sum_v e^l_v, correct: whether the first largest logit is the label's; 0 where the
// label is -100. A block has a row, which it reads once.
template <class T>
DEVICE void cross_entropy(const T* logits, const int32_t* labels, float* loss, float* lse, int32_t* correct, int64_t width,
                          Fault* fault) {
  SHARED(memory);
  int64_t t = blockIdx.x;
  int32_t label = labels[t];
  if (label == IGNORED || is_bad(label, width, t, fault)) {
    if (threadIdx.x == 0) {
      loss[t] = lse[t] = label == IGNORED ? 0.0f : NOT_A_NUMBER;
      correct[t] = 0;
    }
    return;
  }
  const T* row = logits + t * width;
  float own_logit = widen(row[label]);
  constexpr int N = pack_of<T>();
  Online own = {-INFINITE, 0, 0x7fffffff};
  int64_t begin = before_packs(row, width), c = begin + threadIdx.x * N, stride = THREADS * N;
  if (threadIdx.x < begin) add_logits(own, Numbers<1>{{widen(row[threadIdx.x])}}, threadIdx.x);
  for (; c + stride + N <= width; c += 2 * stride) {
    Pack<T, N> first = load_pack<N>(row + c), second = load_pack<N>(row + c + stride);
    add_logits(own, widen_pack<N>(first), (int32_t)c);
    add_logits(own, widen_pack<N>(second), (int32_t)(c + stride));
  }
  for (; c < width; c += stride) {
    if (c + N <= width) {
      add_logits(own, read_pack<N>(row + c), (int32_t)c);
    } else {
#pragma unroll 1
      for (int64_t i = c; i < width; i++) add_logits(own, Numbers<1>{{widen(row[i])}}, (int32_t)i);
    }
  }
  for (int mask = 16; mask > 0; mask >>= 1)
    own = joined(own, Online{exchange(own.most, mask), exchange(own.sum, mask), exchange(own.first, mask)});
  Online* warps = (Online*)memory;
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < THREADS / 32; warp++) own = joined(own, warps[warp]);
  float log_sum = logf(own.sum);
  loss[t] = (own.most - own_logit) + log_sum;
  lse[t] = own.most + log_sum;
  correct[t] = own.first == label;
}
#define CROSS_ENTROPY(T)                                                                                                   \
  extern "C" __global__ void cross_entropy_##T(const T* logits, const int32_t* labels, float* loss, float* lse,             \
                                               int32_t* correct, int64_t width, Fault* fault) {                            \
    cross_entropy<T>(logits, labels, loss, lse, correct, width, fault);                                                    \
  }                                                                                                                        \
  EXPORT(cross_entropy_##T)

// dl_v = (e^(l_v - lse) - [v = label]) factor. A block has a tile of a row, whose packs begin at 16 bytes.
template <class T>
DEVICE void cross_entropy_backward(const T* logits, const int32_t* labels, const float* lse, T* dlogits, float factor,
                                   int64_t width) {
  int64_t t = blockIdx.y;
  int32_t label = labels[t];
  float log = lse[t];
  constexpr int N = pack_of<T>();
  logits += t * width;
  dlogits += t * width;
  auto probability = [&](float x) { return label == IGNORED ? 0.0f : expf(x - log); };
  auto one = [&](int64_t c) { dlogits[c] = narrow<T>((probability(widen(logits[c])) - (c == label ? 1.0f : 0.0f)) * factor); };
  auto pack = [&](const Pack<T, N>& x, int64_t c) {
    Numbers<N> p = each<N>(probability, widen_pack<N>(x));
    if (c <= label && label < c + N) {
#pragma unroll
      for (int k = 0; k < N; k++) p.of[k] -= c + k == label ? 1.0f : 0.0f;
    }
    write_pack<N>(dlogits + c, each<N>([&](float d) { return d * factor; }, p));
  };
  bool packs = (((uint64_t)logits ^ (uint64_t)dlogits) & 15) == 0;
  int64_t before = packs ? before_packs(logits, width) : width;
  if (blockIdx.x == 0)
    for (int64_t c = threadIdx.x; c < before; c += THREADS) one(c);
  int64_t tile = before + blockIdx.x * TILE, begin = tile + threadIdx.x * N;
  if (tile + TILE <= width) {
    Packs<T, N> x = load_packs<N>(logits + begin);
#pragma unroll
    for (int k = 0; k < OF_THREAD / N; k++) pack(x.of[k], begin + k * THREADS * N);
    return;
  }
  for (int64_t c = begin; c < tile + TILE && c < width; c += THREADS * N) {
    if (c + N <= width) {
      pack(load_pack<N>(logits + c), c);
    } else {
#pragma unroll 1
      for (int64_t i = c; i < width; i++) one(i);
    }
  }
}
#define CROSS_ENTROPY_BACKWARD(T)                                                                                          \
  extern "C" __global__ void BY_TILES cross_entropy_backward_##T(const T* logits, const int32_t* labels, const float* lse, T* dlogits, \
                                                        float factor, int64_t width) {                                     \
    cross_entropy_backward<T>(logits, labels, lse, dlogits, factor, width);                                                \
  }                                                                                                                        \
  EXPORT(cross_entropy_backward_##T)

#define EACH(T)                                                                                                   \
  EXPAND(T) CONTRACT(T) BROADCAST(f32, T) BROADCAST(bf16, T) BROADCAST(f16, T) ROW_MAX(T) IS_ARGMAX(T) PICK(T)     \
  ONE_HOT(T) SCALE_TRAINED(T) CROSS_ENTROPY(T) CROSS_ENTROPY_BACKWARD(T)
EACH(f32)
EACH(bf16)
