// Two matrices of bf16 -> their product on tensor cores.
//
// The host defines A_DEEP and B_DEEP, whether a matrix is contiguous in the direction of the sum, and ALIGNED, whether rows of both
// begin at multiples of 16 bytes.
#include "product.cuh"

// A block has a tile of 128 x 128, a warp 64 x 32 of it. Two stages of tiles of both matrices,
// 32 deep, are in shared memory: one is copied while the other is multiplied.
constexpr int ROWS = 128, STEP = 32, STAGE = 2 * ROWS * STEP * 2;

// The byte of 8 elements of a tile. A tile whose depth is contiguous has rows of 32 elements of depth, the other one 32 rows of 128;
// chunks of 8 are exchanged so that 8 rows fall into different banks.
template <bool DEEP>
DEVICE int place(int i, int chunk) {
  return DEEP ? i * STEP * 2 + ((chunk ^ ((i >> 1) & 3)) << 4) : i * ROWS * 2 + ((chunk ^ (i & 7)) << 4);
}

// Copies a tile from (i0, k0) on to shared memory, zeros beyond the matrix.
template <bool DEEP>
DEVICE void load_tile(unsigned char* to, const bf16* from, const Matrix& m, int64_t i0, int64_t k0, int64_t rows, int64_t depth) {
#pragma unroll
  for (int load = 0; load < ROWS * STEP / 8 / THREADS; load++) {
    int at = load * THREADS + threadIdx.x;
    // A chunk is 8 neighbours in the contiguous direction.
    int line = DEEP ? at / (STEP / 8) : at / (ROWS / 8), chunk = DEEP ? at % (STEP / 8) : at % (ROWS / 8);
    int64_t i = DEEP ? i0 + line : i0 + chunk * 8, k = DEEP ? k0 + chunk * 8 : k0 + line;
    int64_t left = DEEP ? depth - k : rows - i;
    bool in = DEEP ? i < rows : k < depth;
    int count = !in || left <= 0 ? 0 : left < 8 ? (int)left : 8;
    const bf16* source = from + (count ? i * m.row + k * m.column : 0);
    unsigned char* target = to + place<DEEP>(line, chunk);
    if (ALIGNED) {
      copy_async16(target, source, 2 * count);
    } else {
#pragma unroll
      for (int e = 0; e < 8; e++) ((bf16*)target)[e] = e < count ? source[e] : bf16{0};
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) product_bf16(const bf16* a, const bf16* b, void* c, const Matrix ma,
                                                                   const Matrix mb, const Extents n, const Epilogue<bf16> e,
                                                                   int32_t output) {
  SHARED(memory);
  int64_t i0 = (int64_t)blockIdx.y * ROWS, j0 = (int64_t)blockIdx.x * ROWS;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wi = (warp >> 2) * 64, wj = (warp & 3) * 32;
  float sum[4][4][4] = {};
  int64_t steps = (n.depth + STEP - 1) / STEP;
  auto load = [&](int64_t step) {
    unsigned char* stage = memory + (step & 1) * STAGE;
    load_tile<A_DEEP>(stage, a, ma, i0, step * STEP, n.rows, n.depth);
    load_tile<B_DEEP>(stage + STAGE / 2, b, mb, j0, step * STEP, n.columns, n.depth);
  };
  load(0);
  copy_async_commit();
  for (int64_t step = 0; step < steps; step++) {
    if (step + 1 < steps) load(step + 1);
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();
    const unsigned char* left = memory + (step & 1) * STAGE;
    const unsigned char* right = left + STAGE / 2;
#pragma unroll
    for (int k = 0; k < STEP / 16; k++) {
      uint32_t x[4][4], y[4][2];
#pragma unroll
      for (int p = 0; p < 4; p++) {
        int i = wi + p * 16;
        if (A_DEEP)
          load_matrix4(x[p], left + place<true>(i + (lane & 15), 2 * k + (lane >> 4)));
        else
          load_matrix4_transposed(x[p], left + place<false>(k * 16 + (lane & 7) + ((lane >> 4) << 3), (i >> 3) + ((lane >> 3) & 1)));
      }
#pragma unroll
      for (int q = 0; q < 2; q++) {
        int j = wj + q * 16;
        uint32_t r[4];
        if (B_DEEP)
          load_matrix4(r, right + place<true>(j + (lane & 7) + ((lane >> 4) << 3), 2 * k + ((lane >> 3) & 1)));
        else
          load_matrix4_transposed(r, right + place<false>(k * 16 + (lane & 15), (j >> 3) + (lane >> 4)));
        y[2 * q][0] = r[0], y[2 * q][1] = r[1], y[2 * q + 1][0] = r[2], y[2 * q + 1][1] = r[3];
      }
#pragma unroll
      for (int p = 0; p < 4; p++)
#pragma unroll
        for (int q = 0; q < 4; q++) mma_bf16(sum[p][q], x[p], y[q][0], y[q][1]);
    }
    __syncthreads();  // before the stage is filled again
  }
  copy_async_wait<0>();
#pragma unroll
  for (int p = 0; p < 4; p++)
#pragma unroll
    for (int q = 0; q < 4; q++)
#pragma unroll
      for (int r = 0; r < 4; r++) {
        int64_t i = i0 + wi + p * 16 + (lane >> 2) + 8 * (r >> 1), j = j0 + wj + q * 8 + (lane & 3) * 2 + (r & 1);
        if (i >= n.rows || j >= n.columns) continue;
        int64_t at = i * n.columns + j;
        put<bf16>(sum[p][q][r], c, at, j, e, output);
      }
}
EXPORT(product_bf16)
