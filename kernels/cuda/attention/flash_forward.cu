// Softmax attention of bf16 on tensor cores, in the order of FlashAttention-2 (Dao 2023): a block has 128 queries of a head and goes
// through the keys that they see.
//
// What is computed is that of plain.cu. Weights exp(l_ij - m_i) with the largest logit m_i so far are rounded to bf16 before they
// multiply the values; their sum is not.
#include "flash.cuh"

// A warp's products of 16 queries from `row` with STEP keys from j -> their weights by the largest logit so far, which may rise: what
// was summed before fades by the factor of each row. A lane has rows lane / 4 and lane / 4 + 8.
DEVICE void weigh(float (&weight)[STEP / 8][4], float (&most)[2], float (&total)[2], float (&fade)[2], const Shape& s, Sight sight,
                  int32_t row, int32_t j, int32_t length) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float next = most[h];
#pragma unroll
    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        float& x = weight[n][2 * h + c];
        x = logit(s, x).value;
        if (sight == SOME && !sees(s, row + (lane >> 2) + 8 * h, j + n * 8 + (lane & 3) * 2 + c, length)) x = -INFINITE;
        next = fmaxf(next, x);
      }
    next = fmaxf(next, exchange(next, 1));
    next = fmaxf(next, exchange(next, 2));
    // A row that has seen no key yet.
    float base = next == -INFINITE ? 0.0f : next;
    fade[h] = exp2_fast(most[h] - base);
    most[h] = next;
    total[h] *= fade[h];
#pragma unroll
    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        float& x = weight[n][2 * h + c];
        x = exp2_fast(x - base);
        total[h] += x;
      }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    flash_forward(const bf16* q, const bf16* k, const bf16* v, const int32_t* boundaries, bf16* out, float* lse, const Shape s,
                  int32_t sequences) {
  SHARED(memory);
  // The last queries of a sequence, which see most, begin first.
  Part part = part_of(boundaries, sequences, gridDim.y - 1 - blockIdx.y);
  if (part.begin >= part.length) return;
  int head = blockIdx.x, kv = head / (s.heads / s.kv_heads), lane = threadIdx.x & 31;
  int32_t row = part.begin + (threadIdx.x >> 5) * 16;
  int64_t q_stride = (int64_t)s.heads * D, stride = (int64_t)s.kv_heads * D;
  const bf16* keys = k + part.first * stride + kv * D;
  const bf16* values = v + part.first * stride + kv * D;
  int32_t begin = s.window > 0 && part.begin + 1 > s.window ? (part.begin + 1 - s.window) / STEP * STEP : 0;
  int32_t end = s.causal && part.begin + ROWS < part.length ? part.begin + ROWS : part.length;
  // Two stages of keys and values: one is copied while the other is multiplied.
  auto stage = [&](int32_t j) { return memory + KEPT + ((j - begin) / STEP & 1) * 2 * PASSED; };
  auto load = [&](int32_t j) {
    load_tile<STEP>(stage(j), keys, stride, j, part.length);
    load_tile<STEP>(stage(j) + PASSED, values, stride, j, part.length);
  };
  load_tile<ROWS>(memory, q + part.first * q_stride + head * D, q_stride, part.begin, part.length);
  copy_async_commit();
  load(begin);
  copy_async_commit();
  float sum[D / 8][4] = {}, most[2] = {-INFINITE, -INFINITE}, total[2] = {0, 0};
  copy_async_wait<1>();
  __syncthreads();
  uint32_t queries[D / 16][4];
#pragma unroll
  for (int d = 0; d < D / 16; d++) left_of(queries[d], memory, d);
  auto query = [&](uint32_t(&a)[4], int d) {
#pragma unroll
    for (int r = 0; r < 4; r++) a[r] = queries[d][r];
  };
  for (int32_t j = begin; j < end; j += STEP) {
    if (j + STEP < end) load(j + STEP);
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();
    Sight sight = sight_of(s, row, 16, j, STEP, part.length);
    if (sight != NONE) {
      float weight[STEP / 8][4] = {}, fade[2];
      multiply_rows(weight, query, stage(j));
      weigh(weight, most, total, fade, s, sight, row, j, part.length);
#pragma unroll
      for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int r = 0; r < 4; r++) sum[n][r] *= fade[r >> 1];
      multiply_columns(sum, weight, stage(j) + PASSED);
    }
    __syncthreads();  // before the stage is filled again
  }
  copy_async_wait<0>();
#pragma unroll
  for (int h = 0; h < 2; h++) {
    total[h] += exchange(total[h], 1);
    total[h] += exchange(total[h], 2);
    int32_t i = row + (lane >> 2) + 8 * h;
    if (i < part.length && (lane & 3) == 0)
      lse[(int64_t)(part.first + i) * s.heads + head] = (most[h] + log2_fast(total[h])) * LN_2;
  }
  put_rows(memory, sum, 1.0f / total[0], 1.0f / total[1]);
  __syncthreads();
  store_tile(out + part.first * q_stride + head * D, memory, q_stride, part.begin, part.length);
}
EXPORT(flash_forward)
