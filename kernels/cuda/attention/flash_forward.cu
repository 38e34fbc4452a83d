// Softmax attention of bf16 on tensor cores, in the order of FlashAttention-2 (Dao 2023): a block has queries of a head and goes
// through the keys that they see.
//
// What is computed is that of plain.cu. Weights exp(l_ij - m_i) with the largest logit m_i so far are rounded to bf16 before they
// multiply the values; their sum is not.
#include "flash.cuh"

// A matrix's products of 16 queries from `row` with STEP keys from j -> their weights by the largest logit so far, which may rise:
// what was summed before fades by the factor of each row. A lane has rows lane / 4 and lane / 4 + 8.
DEVICE void weigh(float (&weight)[STEP / 8][4], float (&most)[2], float (&total)[2], float (&fade)[2], const Shape& s, Sight sight,
                  int32_t row, int32_t j, int32_t length) {
  float factor = log2_factor(s);
#pragma unroll
  for (int n = 0; n < STEP / 8; n++)
#pragma unroll
    for (int r = 0; r < 4; r++) weight[n][r] = logit(s, weight[n][r]).value;
  if (sight == SOME) {
#pragma unroll
    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
      for (int r = 0; r < 4; r++)
        if (!sees(s, row + lane_row() + 8 * (r >> 1), j + n * 8 + (threadIdx.x & 3) * 2 + (r & 1), length)) weight[n][r] = -INFINITE;
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float next = most[h];
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) next = fmaxf(next, fmaxf(weight[n][2 * h], weight[n][2 * h + 1]));
    next = fmaxf(next, exchange(next, 1));
    next = fmaxf(next, exchange(next, 2));
    // A row that has seen no key yet.
    float base = next == -INFINITE ? 0.0f : next * factor;
    fade[h] = exp2_fast(most[h] * factor - base);
    most[h] = next;
    total[h] *= fade[h];
#pragma unroll
    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        float& x = weight[n][2 * h + c];
        x = exp2_fast(fmaf(x, factor, -base));
        total[h] += x;
      }
  }
}

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    flash_forward(const bf16* q, const bf16* k, const bf16* v, const int32_t* boundaries, bf16* out, float* lse, const Shape s,
                  int32_t sequences) {
  SHARED(memory);
  // The last queries of a sequence, which see most, begin first.
  Part part = part_of(boundaries, sequences, gridDim.y - 1 - blockIdx.y);
  if (part.begin >= part.length) return;
  int head = blockIdx.x, kv = head / (s.heads / s.kv_heads);
  int32_t row = part.begin + warp_row();
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
  load(begin);
  copy_async_commit();
  Sums<D> sum = {};
  float most[MATRICES][2], total[MATRICES][2] = {};
#pragma unroll
  for (int m = 0; m < MATRICES; m++) most[m][0] = most[m][1] = -INFINITE;
  for (int32_t j = begin; j < end; j += STEP) {
    copy_async_wait<0>();
    __syncthreads();  // behind the wait, and before the other stage is filled again
    if (j + STEP < end) load(j + STEP);
    copy_async_commit();
    Sight sight = sight_of(s, row, WARP_ROWS, j, STEP, part.length);
    if (sight == NONE) continue;
    Sums<STEP> weight = {};
    float fade[MATRICES][2];
    multiply_rows(weight, [&](uint32_t(&a)[4], int m, int d) { left_of(a, memory, m, d); }, stage(j));
#pragma unroll
    for (int m = 0; m < MATRICES; m++) weigh(weight[m], most[m], total[m], fade[m], s, sight, row + m * 16, j, part.length);
#pragma unroll
    for (int m = 0; m < MATRICES; m++)
#pragma unroll
      for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int r = 0; r < 4; r++) sum[m][n][r] *= fade[m][r >> 1];
    multiply_columns(sum, weight, stage(j) + PASSED);
  }
  part = part_of(boundaries, sequences, gridDim.y - 1 - blockIdx.y);  // again: the loop has no registers to spare
  row = part.begin + warp_row();
  float factor[MATRICES][2];
#pragma unroll
  for (int m = 0; m < MATRICES; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float& all = total[m][h];
      all += exchange(all, 1);
      all += exchange(all, 2);
      int32_t i = row + m * 16 + h * 8 + lane_row();
      if (i < part.length && (threadIdx.x & 3) == 0)
        lse[(int64_t)(part.first + i) * s.heads + head] = (most[m][h] * log2_factor(s) + log2_fast(all)) * LN_2;
      factor[m][h] = 1.0f / all;
    }
  put_rows(memory, sum, factor);
  __syncthreads();
  store_tile(out + part.first * q_stride + head * D, memory, q_stride, part.begin, part.length);
}
EXPORT(flash_forward)
