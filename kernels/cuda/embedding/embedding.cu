// Tokens -> rows of a table, and the table's gradient.
#include "packs.cuh"

// A token that is not in the vocabulary.
constexpr int32_t BAD_TOKEN = 2;

// y[t] = W[token_t]; element (v, c) of the table is at v row + c column. A row has `tiles` blocks.
template <class W, class T>
DEVICE void embedding(const int32_t* tokens, const W* table, T* y, int64_t row, int64_t column, int64_t vocabulary,
                      int64_t width, int32_t tiles, Fault* fault) {
  uint32_t t = blockIdx.x / (uint32_t)tiles;
  int32_t token = tokens[t];
  bool bad = token < 0 || token >= vocabulary;
  if (bad && threadIdx.x == 0) report(fault, BAD_TOKEN, (int32_t)t, token, (int32_t)vocabulary);
  constexpr int N = pack_of<W, T>();
  y += t * width;
  table += bad ? 0 : token * row;
  int64_t tile = (blockIdx.x - t * tiles) * TILE, begin = tile + threadIdx.x * N;
  bool packs = !bad && column == 1 && are_aligned(table, y);
  if (packs && tile + TILE <= width) {
    map_packs<N>([](float v) { return v; }, y + begin, load_packs<N>(table + begin));
    return;
  }
  for (int64_t c = begin; c < tile + TILE && c < width; c += THREADS * N) {
    if (packs && c + N <= width) {
      write_pack<N>(y + c, read_pack<N>(table + c));
    } else {
#pragma unroll 1
      for (int64_t i = c; i < c + N && i < width; i++) y[i] = narrow<T>(bad ? NOT_A_NUMBER : widen(table[i * column]));
    }
  }
}
#define EMBEDDING(W, T)                                                                                                   \
  extern "C" __global__ void embedding_##W##_##T(const int32_t* tokens, const W* table, T* y, int64_t row, int64_t column, \
                                                 int64_t vocabulary, int64_t width, int32_t tiles, Fault* fault) {        \
    embedding<W, T>(tokens, table, y, row, column, vocabulary, width, tiles, fault);                                      \
  }                                                                                                                       \
  EXPORT(embedding_##W##_##T)

// dW[token_t] += dy_t. The block of a token's first place sums all of its gradients in f32, in their order, and adds the sum: no two blocks write one row.
template <class T, class G>
DEVICE void embedding_backward(const T* dy, const int32_t* tokens, G* dtable, int64_t row, int64_t column,
                               int64_t vocabulary, int64_t width, int64_t count, Fault* fault) {
  SHARED(memory);
  int32_t* earlier = (int32_t*)memory;
  int64_t own = blockIdx.x;
  int32_t token = tokens[own];
  if (token < 0 || token >= vocabulary) {
    if (threadIdx.x == 0) report(fault, BAD_TOKEN, (int32_t)own, token, (int32_t)vocabulary);
    return;
  }
  if (threadIdx.x == 0) *earlier = 0;
  __syncthreads();
  for (int64_t t = threadIdx.x; t < own; t += THREADS)
    if (tokens[t] == token) *earlier = 1;
  __syncthreads();
  if (*earlier) return;
  for (int64_t c = threadIdx.x; c < width; c += THREADS) {
    float sum = 0;
    for (int64_t t = own; t < count; t++)
      if (tokens[t] == token) sum += widen(dy[t * width + c]);
    G* gradient = dtable + token * row + c * column;
    *gradient = narrow<G>(widen(*gradient) + sum);
  }
}
#define EMBEDDING_BACKWARD(T, G)                                                                                          \
  extern "C" __global__ void embedding_backward_##T##_##G(const T* dy, const int32_t* tokens, G* dtable, int64_t row,       \
                                                          int64_t column, int64_t vocabulary, int64_t width,              \
                                                          int64_t count, Fault* fault) {                                  \
    embedding_backward<T, G>(dy, tokens, dtable, row, column, vocabulary, width, count, fault);                           \
  }                                                                                                                       \
  EXPORT(embedding_backward_##T##_##G)

#define EACH(T)                                                                                                   \
  EMBEDDING(f32, T) EMBEDDING(bf16, T) EMBEDDING(f16, T) EMBEDDING_BACKWARD(T, f32) EMBEDDING_BACKWARD(T, bf16)
EACH(f32)
EACH(bf16)
