// A weight and its low-rank update -> the norms of the rows of their sum.
#include "element.cuh"

// The norms of the rows of weight + alpha b a, from row `begin` on: weight `[rows, columns]` from there, a `[rank, columns]`,
// b `[.., rank]`. A block has a row.
template <class A, class B>
DEVICE void adapted_row_norms(const float* weight, const A* a, const B* b, float* norms, float alpha, int64_t begin, int64_t columns,
                              int64_t rank) {
  SHARED(memory);
  int64_t row = begin + blockIdx.x;
  float squares = 0;
  for (int64_t j = threadIdx.x; j < columns; j += THREADS) {
    float update = 0;
    for (int64_t k = 0; k < rank; k++) update = fmaf(widen(b[row * rank + k]), widen(a[k * columns + j]), update);
    float v = weight[blockIdx.x * columns + j] + alpha * update;
    squares = fmaf(v, v, squares);
  }
  squares = block_sum(squares, (float*)memory);
  if (threadIdx.x == 0) norms[row] = sqrtf(squares);
}
#define NORMS(A, B)                                                                                                        \
  extern "C" __global__ void adapted_row_norms_##A##_##B(const float* weight, const A* a, const B* b, float* norms,          \
                                                         float alpha, int64_t begin, int64_t columns, int64_t rank) {      \
    adapted_row_norms<A, B>(weight, a, b, norms, alpha, begin, columns, rank);                                             \
  }                                                                                                                        \
  EXPORT(adapted_row_norms_##A##_##B)
#define NORMS_OF(A) NORMS(A, f32) NORMS(A, bf16) NORMS(A, f16)
NORMS_OF(f32)
NORMS_OF(bf16)
NORMS_OF(f16)
