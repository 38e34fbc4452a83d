// Two matrices -> their product, with sums in f32 on plain cores.
#include "product.cuh"

// A block has a tile of 64 x 64, a thread 4 x 4 of it.
constexpr int TILE = 64, DEPTH = 16;
template <class A, class B, class C>
DEVICE void product_f32(const A* a, const B* b, C* c, const Matrix& ma, const Matrix& mb, const Extents& n, const Epilogue<C>& e,
                        int output) {
  SHARED(memory);
  float(*left)[TILE + 4] = (float(*)[TILE + 4])memory;
  float(*right)[TILE + 4] = left + DEPTH;
  int64_t i0 = (int64_t)blockIdx.y * TILE, j0 = (int64_t)blockIdx.x * TILE;
  int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
  float sum[4][4] = {};
  for (int64_t k0 = 0; k0 < n.depth; k0 += DEPTH) {
#pragma unroll
    for (int load = 0; load < TILE * DEPTH / THREADS; load++) {
      // Neighbouring threads read neighbouring elements.
      int at = load * THREADS + threadIdx.x;
      int i = ma.column == 1 ? at / DEPTH : at % TILE, k = ma.column == 1 ? at % DEPTH : at / TILE;
      bool in = i0 + i < n.rows && k0 + k < n.depth;
      left[k][i] = in ? widen(a[(i0 + i) * ma.row + (k0 + k) * ma.column]) : 0.0f;
      int j = mb.column == 1 ? at / DEPTH : at % TILE, l = mb.column == 1 ? at % DEPTH : at / TILE;
      in = j0 + j < n.columns && k0 + l < n.depth;
      right[l][j] = in ? widen(b[(j0 + j) * mb.row + (k0 + l) * mb.column]) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      float x[4], y[4];
#pragma unroll
      for (int q = 0; q < 4; q++) x[q] = left[k][ty * 4 + q], y[q] = right[k][tx * 4 + q];
#pragma unroll
      for (int p = 0; p < 4; p++)
#pragma unroll
        for (int q = 0; q < 4; q++) sum[p][q] = fmaf(x[p], y[q], sum[p][q]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int p = 0; p < 4; p++)
#pragma unroll
    for (int q = 0; q < 4; q++) {
      int64_t i = i0 + ty * 4 + p, j = j0 + tx * 4 + q;
      if (i >= n.rows || j >= n.columns) continue;
      int64_t at = i * n.columns + j;
      put<C>(sum[p][q], c, at, j, e, output);
    }
}
#define PRODUCT_F32(A, B, C)                                                                                                \
  extern "C" __global__ void product_##A##_##B(const A* a, const B* b, C* c, const Matrix ma, const Matrix mb,               \
                                               const Extents n, const Epilogue<C> e, int32_t output) {                 \
    product_f32<A, B, C>(a, b, c, ma, mb, n, e, output);                                                               \
  }                                                                                                                         \
  EXPORT(product_##A##_##B)
PRODUCT_F32(f32, f32, f32)
PRODUCT_F32(f32, bf16, f32)
PRODUCT_F32(f32, f16, f32)
