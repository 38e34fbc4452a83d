// What kernels of flash attention share: rows of a sequence, where tiles lie in shared memory, products of tiles, the mask.
//
// The host defines HEAD_DIM, a multiple of 16 up to 128, SOFTCAP, whether logits are capped, STEP, a multiple of 16: the rows of
// the tiles that a block goes through, WARPS of a block, and WARP_ROWS, 16 or 32: the rows that each of them keeps. With 32 a warp
// reads a matrix of a tile for twice as many products, and shared memory is read less.
#pragma once
#include "element.cuh"
#include "shape.cuh"

constexpr int D = HEAD_DIM, CHUNKS = D / 8;
// Threads of a block, matrices of 16 rows that a warp keeps, and rows that a block keeps.
constexpr int BLOCK = 32 * WARPS, MATRICES = WARP_ROWS / 16, ROWS = WARPS * WARP_ROWS;
// Blocks that a multiprocessor has at once, so that one multiplies while another finds weights.
constexpr int RESIDENT = 8 / WARPS;
// What a warp has of its rows: 16 times COLUMNS numbers of each matrix.
template <int COLUMNS>
using Sums = float[MATRICES][COLUMNS / 8][4];
// Bytes of a tile that a block keeps, and of one that it goes through.
constexpr int KEPT = ROWS * D * 2, PASSED = STEP * D * 2;
constexpr float LOG2_E = 1.44269504f, LN_2 = 0.69314718f;

// The rows of a block: the first token and the length of their sequence, and the first row there.
struct Part {
  int32_t first, length, begin;
};
// The rows of block `number`. Sequence s has the numbers from boundaries[s] / ROWS + s on. It needs ceil(length / ROWS), which is
// at most what is left to the next sequence's. A number that no rows are left for begins beyond the sequence's end.
DEVICE Part part_of(const int32_t* boundaries, int32_t sequences, int32_t number) {
  int32_t low = 0, high = sequences;
  while (high - low > 1) {
    int32_t middle = (low + high) >> 1;
    if (boundaries[middle] / ROWS + middle <= number)
      low = middle;
    else
      high = middle;
  }
  int32_t first = boundaries[low];
  return Part{first, boundaries[low + 1] - first, (number - first / ROWS - low) * ROWS};
}

// How much of a rectangle of queries and keys the mask leaves.
enum Sight { NONE, SOME, ALL };
DEVICE Sight sight_of(const Shape& s, int32_t i, int32_t queries, int32_t j, int32_t keys, int32_t length) {
  int32_t last_i = i + queries - 1, last_j = j + keys - 1;
  if (i >= length || j >= length || (s.causal && j > last_i) || (s.window > 0 && last_j <= i - s.window)) return NONE;
  bool all = last_i < length && last_j < length && (!s.causal || last_j <= i) && (s.window <= 0 || j > last_i - s.window);
  return all ? ALL : SOME;
}
// Whether query i sees key j.
DEVICE bool sees(const Shape& s, int32_t i, int32_t j, int32_t length) {
  return i < length && j < length && (!s.causal || j <= i) && (s.window <= 0 || j > i - s.window);
}

// The byte of 8 elements of a tile. Chunks of a row are exchanged so that 8 rows fall into different banks.
DEVICE int place(int row, int chunk) {
  int by = CHUNKS % 8 == 0 ? row & 7 : CHUNKS % 4 == 0 ? (row >> 1) & 3 : (row >> 2) & 1;
  return row * D * 2 + ((chunk ^ by) << 4);
}
// Copies rows from `begin` on to shared memory, zeros beyond the sequence's `length`. Its rows are `stride` elements apart.
template <int COUNT>
DEVICE void load_tile(unsigned char* to, const bf16* from, int64_t stride, int32_t begin, int32_t length) {
  // Threads of a row, of which the first CHUNKS have one each. Theirs are in rows so far apart that they have one place there.
  constexpr int LANES = CHUNKS > 8 ? 16 : CHUNKS > 4 ? 8 : CHUNKS, APART = BLOCK / LANES;
  static_assert(BLOCK % LANES == 0 && APART % 8 == 0, "rows of one place");
  int row = threadIdx.x / LANES, chunk = threadIdx.x % LANES, left = length - begin - row;
  if (LANES != CHUNKS && chunk >= CHUNKS) return;
  const bf16* next = from + (begin + row) * stride + chunk * 8;
  to += place(row, chunk);
#pragma unroll
  for (int r = 0; r < COUNT; r += APART) {
    if (COUNT % APART != 0 && row + r >= COUNT) break;
    bool in = r < left;
    copy_async16(to + r * D * 2, in ? next : from, in ? 16 : 0);
    next += APART * stride;
  }
}
// This warp's first row of a block, and this lane's first of a matrix: it has that and the one 8 rows behind.
DEVICE int warp_row() { return (threadIdx.x >> 5) * WARP_ROWS; }
DEVICE int lane_row() { return (threadIdx.x & 31) >> 2; }
// Rounds a warp's rows, each times a factor, into its rows of a tile in shared memory.
DEVICE void put_rows(unsigned char* tile, const Sums<D>& x, const float (&factor)[MATRICES][2]) {
  int at = (threadIdx.x & 3) * 4;
  sync_warp();  // behind its reads of the same rows
#pragma unroll
  for (int m = 0; m < MATRICES; m++)
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        int row = warp_row() + m * 16 + h * 8 + lane_row();
        float low = x[m][n][2 * h] * factor[m][h], high = x[m][n][2 * h + 1] * factor[m][h];
        *(uint32_t*)(tile + place(row, n) + at) = pack_bf16(low, high);
      }
}
// Writes the rows of a block, which are in shared memory.
DEVICE void store_tile(bf16* to, const unsigned char* tile, int64_t stride, int32_t begin, int32_t length) {
#pragma unroll
  for (int at = threadIdx.x; at < ROWS * CHUNKS; at += BLOCK) {
    int row = at / CHUNKS, chunk = at % CHUNKS;
    if (begin + row < length) *(uint4*)(to + (begin + row) * stride + chunk * 8) = *(const uint4*)(tile + place(row, chunk));
  }
}

// Depth d of matrix m of the rows of a tile that a warp has, as a left matrix of mma_bf16.
DEVICE void left_of(uint32_t (&a)[4], const unsigned char* tile, int m, int d) {
  int lane = threadIdx.x & 31, row = warp_row() + m * 16;
  load_matrix4(a, tile + place(row + (lane & 15), 2 * d + (lane >> 4)));
}
// sum += a y^T, where left(x, m, d) gives depth d of matrix m of a warp's rows of a, and y is a tile of STEP rows.
template <class Left>
DEVICE void multiply_rows(Sums<STEP>& sum, Left left, const unsigned char* y) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int d = 0; d < D / 16; d++) {
    uint32_t a[MATRICES][4];
#pragma unroll
    for (int m = 0; m < MATRICES; m++) left(a[m], m, d);
#pragma unroll
    for (int n = 0; n < STEP / 16; n++) {
      uint32_t b[4];
      load_matrix4(b, y + place(n * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * d + ((lane >> 3) & 1)));
#pragma unroll
      for (int m = 0; m < MATRICES; m++) {
        mma_bf16(sum[m][2 * n], a[m], b[0], b[1]);
        mma_bf16(sum[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}
// sum += a y, where a is a warp's rows of STEP sums, rounded to bf16, and y a tile of STEP rows.
DEVICE void multiply_columns(Sums<D>& sum, const Sums<STEP>& a, const unsigned char* y) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int k = 0; k < STEP / 16; k++) {
    uint32_t x[MATRICES][4];
#pragma unroll
    for (int m = 0; m < MATRICES; m++)
#pragma unroll
      for (int r = 0; r < 4; r++) {
        const float(&from)[4] = a[m][2 * k + (r >> 1)];
        x[m][r] = pack_bf16(from[2 * (r & 1)], from[2 * (r & 1) + 1]);
      }
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      uint32_t b[4];
      load_matrix4_transposed(b, y + place(k * 16 + (lane & 15), 2 * d + (lane >> 4)));
#pragma unroll
      for (int m = 0; m < MATRICES; m++) {
        mma_bf16(sum[m][2 * d], x[m], b[0], b[1]);
        mma_bf16(sum[m][2 * d + 1], x[m], b[2], b[3]);
      }
    }
  }
}

// What makes a product or, where it is capped, a logit times log2 e of a number that `logit` gives.
DEVICE float log2_factor(const Shape& s) { return SOFTCAP ? 1.0f : s.scale * LOG2_E; }
// A logit by its factor, and its derivative by scale q . k. The scale is above 0.
struct Logit {
  float value, slope;
};
DEVICE Logit logit(const Shape& s, float product) {
  if (!SOFTCAP) return Logit{product, 1.0f};
  float t = tanhf(product * (s.scale / s.softcap));
  return Logit{t * (s.softcap * LOG2_E), 1.0f - t * t};
}
