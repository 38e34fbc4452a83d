// The gradient of softmax attention by queries, of bf16 on tensor cores, in the order of FlashAttention-2 (Dao 2023).
//
// What is computed is that of plain.cu: with p_ij = exp(l_ij - lse_i) and dl_ij = p_ij (dout_i . v_j - delta_i), times the slope of
// the cap, dq_i = scale sum_j dl_ij k_j. dl is rounded to bf16 before it multiplies. Blocks have queries and go through keys; those
// of flash_dkv.cu do the reverse, so that nothing is added by several blocks. p is computed twice, and the bits do not depend on
// chance.
#include "flash.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    flash_dq(const bf16* dout, const bf16* q, const bf16* k, const bf16* v, const float* lse, const float* delta,
             const int32_t* boundaries, bf16* dq, const Shape s, int32_t sequences) {
  SHARED(memory);
  // The last queries of a sequence, which see most, begin first.
  Part part = part_of(boundaries, sequences, gridDim.y - 1 - blockIdx.y);
  if (part.begin >= part.length) return;
  int head = blockIdx.x, kv = head / (s.heads / s.kv_heads);
  int32_t row = part.begin + warp_row();
  int64_t q_stride = (int64_t)s.heads * D, stride = (int64_t)s.kv_heads * D, own = part.first * q_stride + head * D;
  const bf16* keys = k + part.first * stride + kv * D;
  const bf16* values = v + part.first * stride + kv * D;
  int32_t begin = s.window > 0 && part.begin + 1 > s.window ? (part.begin + 1 - s.window) / STEP * STEP : 0;
  int32_t end = s.causal && part.begin + ROWS < part.length ? part.begin + ROWS : part.length;
  // Two stages of keys and values: one is copied while the other is multiplied.
  auto stage = [&](int32_t j) { return memory + 2 * KEPT + ((j - begin) / STEP & 1) * 2 * PASSED; };
  auto load = [&](int32_t j) {
    load_tile<STEP>(stage(j), keys, stride, j, part.length);
    load_tile<STEP>(stage(j) + PASSED, values, stride, j, part.length);
  };
  load_tile<ROWS>(memory, q + own, q_stride, part.begin, part.length);
  load_tile<ROWS>(memory + KEPT, dout + own, q_stride, part.begin, part.length);
  load(begin);
  copy_async_commit();
  Sums<D> sum = {};
  float log[MATRICES][2], mean[MATRICES][2];
#pragma unroll
  for (int m = 0; m < MATRICES; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int32_t i = row + m * 16 + h * 8 + lane_row();
      int64_t at = (int64_t)(part.first + i) * s.heads + head;
      log[m][h] = i < part.length ? lse[at] * LOG2_E : 0.0f;
      mean[m][h] = i < part.length ? delta[at] : 0.0f;
    }
  float factor = log2_factor(s);
  for (int32_t j = begin; j < end; j += STEP) {
    copy_async_wait<0>();
    __syncthreads();  // behind the wait, and before the other stage is filled again
    if (j + STEP < end) load(j + STEP);
    copy_async_commit();
    Sight sight = sight_of(s, row, WARP_ROWS, j, STEP, part.length);
    if (sight == NONE) continue;
    Sums<STEP> x = {}, dp = {};
    multiply_rows(x, [&](uint32_t(&a)[4], int m, int d) { left_of(a, memory, m, d); }, stage(j));
    multiply_rows(dp, [&](uint32_t(&a)[4], int m, int d) { left_of(a, memory + KEPT, m, d); }, stage(j) + PASSED);
#pragma unroll
    for (int m = 0; m < MATRICES; m++)
#pragma unroll
      for (int n = 0; n < STEP / 8; n++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
          Logit l = logit(s, x[m][n][r]);
          float p = exp2_fast(fmaf(l.value, factor, -log[m][r >> 1]));
          x[m][n][r] = p * (dp[m][n][r] - mean[m][r >> 1]) * l.slope;
        }
    if (sight == SOME) {
#pragma unroll
      for (int m = 0; m < MATRICES; m++)
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
          for (int r = 0; r < 4; r++) {
            int32_t i = row + m * 16 + 8 * (r >> 1) + lane_row(), key = j + n * 8 + (threadIdx.x & 3) * 2 + (r & 1);
            if (!sees(s, i, key, part.length)) x[m][n][r] = 0;
          }
    }
    multiply_columns(sum, x, stage(j));
  }
  part = part_of(boundaries, sequences, gridDim.y - 1 - blockIdx.y);  // again: the loop has no registers to spare
  own = part.first * q_stride + head * D;
  float scales[MATRICES][2];
#pragma unroll
  for (int m = 0; m < MATRICES; m++) scales[m][0] = scales[m][1] = s.scale;
  put_rows(memory, sum, scales);
  __syncthreads();
  store_tile(dq + own, memory, q_stride, part.begin, part.length);
}
EXPORT(flash_dq)
