// What kernels of flash attention share: rows of a sequence, where tiles lie in shared memory, products of tiles, the mask.
//
// The host defines HEAD_DIM, a multiple of 16 up to 128, SOFTCAP, whether logits are capped, and STEP, a multiple of 16: the rows
// of the tiles that a block goes through.
#pragma once
#include "element.cuh"
#include "shape.cuh"

constexpr int D = HEAD_DIM, CHUNKS = D / 8;
// Rows that a block keeps: a warp has 16 of them, as many as a matrix of mma_bf16.
constexpr int ROWS = THREADS / 2;
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
#pragma unroll
  for (int load = 0; load < COUNT * CHUNKS; load += THREADS) {
    int at = load + threadIdx.x, row = at / CHUNKS, chunk = at % CHUNKS;
    if (COUNT * CHUNKS % THREADS != 0 && at >= COUNT * CHUNKS) break;
    bool in = begin + row < length;
    copy_async16(to + place(row, chunk), from + (in ? (begin + row) * stride + chunk * 8 : 0), in ? 16 : 0);
  }
}
// Rounds a warp's 16 rows into its rows of a tile in shared memory.
DEVICE void put_rows(unsigned char* tile, const float (&x)[D / 8][4], float low, float high) {
  int lane = threadIdx.x & 31, row = (threadIdx.x >> 5) * 16 + (lane >> 2);
#pragma unroll
  for (int n = 0; n < D / 8; n++) {
    *(uint32_t*)(tile + place(row, n) + (lane & 3) * 4) = pack_bf16(x[n][0] * low, x[n][1] * low);
    *(uint32_t*)(tile + place(row + 8, n) + (lane & 3) * 4) = pack_bf16(x[n][2] * high, x[n][3] * high);
  }
}
// Writes the rows of a block, which are in shared memory.
DEVICE void store_tile(bf16* to, const unsigned char* tile, int64_t stride, int32_t begin, int32_t length) {
#pragma unroll
  for (int at = threadIdx.x; at < ROWS * CHUNKS; at += THREADS) {
    int row = at / CHUNKS, chunk = at % CHUNKS;
    if (begin + row < length) *(uint4*)(to + (begin + row) * stride + chunk * 8) = *(const uint4*)(tile + place(row, chunk));
  }
}

// Depth d of the 16 rows of a tile that a warp has, as a left matrix of mma_bf16.
DEVICE void left_of(uint32_t (&a)[4], const unsigned char* tile, int d) {
  int lane = threadIdx.x & 31, row = (threadIdx.x >> 5) * 16;
  load_matrix4(a, tile + place(row + (lane & 15), 2 * d + (lane >> 4)));
}
// sum += a y^T, where left(x, d) gives depth d of a warp's 16 rows of a, and y is a tile of STEP rows.
template <class Left>
DEVICE void multiply_rows(float (&sum)[STEP / 8][4], Left left, const unsigned char* y) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int d = 0; d < D / 16; d++) {
    uint32_t a[4];
    left(a, d);
#pragma unroll
    for (int n = 0; n < STEP / 16; n++) {
      uint32_t b[4];
      load_matrix4(b, y + place(n * 16 + (lane & 7) + ((lane >> 4) << 3), 2 * d + ((lane >> 3) & 1)));
      mma_bf16(sum[2 * n], a, b[0], b[1]);
      mma_bf16(sum[2 * n + 1], a, b[2], b[3]);
    }
  }
}
// sum += a y, where a is 16 rows of STEP sums, rounded to bf16, and y a tile of STEP rows.
DEVICE void multiply_columns(float (&sum)[D / 8][4], const float (&a)[STEP / 8][4], const unsigned char* y) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int k = 0; k < STEP / 16; k++) {
    const float(&low)[4] = a[2 * k], (&high)[4] = a[2 * k + 1];
    uint32_t x[4] = {pack_bf16(low[0], low[1]), pack_bf16(low[2], low[3]), pack_bf16(high[0], high[1]),
                     pack_bf16(high[2], high[3])};
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      uint32_t b[4];
      load_matrix4_transposed(b, y + place(k * 16 + (lane & 15), 2 * d + (lane >> 4)));
      mma_bf16(sum[2 * d], x, b[0], b[1]);
      mma_bf16(sum[2 * d + 1], x, b[2], b[3]);
    }
  }
}

// A logit times log2 e, and the logit's derivative by scale q . k.
struct Logit {
  float value, slope;
};
DEVICE Logit logit(const Shape& s, float product) {
  if (!SOFTCAP) return Logit{product * (s.scale * LOG2_E), 1.0f};
  float t = tanhf(product * (s.scale / s.softcap));
  return Logit{t * (s.softcap * LOG2_E), 1.0f - t * t};
}
