// The gradients of softmax attention by keys and values, of bf16 on tensor cores, in the order of FlashAttention-2 (Dao 2023).
//
// What is computed is that of plain.cu: with p_ij and dl_ij as flash_dq.cu states, dk_j = scale sum_i dl_ij q_i,
// dv_j = sum_i p_ij dout_i. Both p and dl are rounded to bf16 before they multiply.
#include "flash.cuh"

// A number of each of two neighbouring queries.
struct alignas(8) Two {
  float of[2];
};

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    flash_dkv(const bf16* dout, const bf16* q, const bf16* k, const bf16* v, const float* lse, const float* delta,
              const int32_t* boundaries, bf16* dk, bf16* dv, const Shape s, int32_t sequences) {
  SHARED(memory);
  Part part = part_of(boundaries, sequences, blockIdx.y);
  if (part.begin >= part.length) return;
  int kv = blockIdx.x, group = s.heads / s.kv_heads;
  int32_t row = part.begin + warp_row();
  int64_t q_stride = (int64_t)s.heads * D, stride = (int64_t)s.kv_heads * D, own = part.first * stride + kv * D;
  int32_t begin = s.causal ? part.begin : 0, end = part.length;
  if (s.window > 0 && s.window < part.length - (part.begin + ROWS - 1)) end = part.begin + ROWS - 1 + s.window;
  // The queries of all heads of the group, one head after the other.
  int32_t steps = group * ((end - begin + STEP - 1) / STEP), head = kv * group, i = begin;
  // Two stages of queries and gradients: one is copied while the other is multiplied. Then an lse and a delta of each.
  auto stage = [&](int32_t step) { return memory + 2 * KEPT + (step & 1) * 2 * PASSED; };
  auto numbers = [&](int32_t step) { return (float*)(memory + 2 * KEPT + 4 * PASSED) + (step & 1) * 2 * STEP; };
  // Those of a head from query i on.
  auto load = [&](int32_t step, int32_t head, int32_t i) {
    int64_t from = part.first * q_stride + head * D;
    load_tile<STEP>(stage(step), q + from, q_stride, i, part.length);
    load_tile<STEP>(stage(step) + PASSED, dout + from, q_stride, i, part.length);
  };
  // The number of a stage that this thread brings, where there are as many threads.
  auto number = [&](int32_t head, int32_t i) {
    i += threadIdx.x % STEP;
    if (threadIdx.x >= 2 * STEP || i >= part.length) return 0.0f;
    int64_t at = (int64_t)(part.first + i) * s.heads + head;
    return threadIdx.x < STEP ? lse[at] * LOG2_E : delta[at];
  };
  load_tile<ROWS>(memory, k + own, stride, part.begin, part.length);
  load_tile<ROWS>(memory + KEPT, v + own, stride, part.begin, part.length);
  load(0, head, i);
  copy_async_commit();
  if (threadIdx.x < 2 * STEP) numbers(0)[threadIdx.x] = number(head, i);
  Sums<D> of_keys = {}, of_values = {};
  float factor = log2_factor(s);
  for (int32_t step = 0; step < steps; step++) {
    copy_async_wait<0>();
    __syncthreads();  // behind the wait, and before the other stage is filled again
    int32_t next_i = i + STEP < end ? i + STEP : begin;
    if (next_i == begin) head++;
    float next = 0;
    if (step + 1 < steps) {
      load(step + 1, head, next_i);
      next = number(head, next_i);
    }
    copy_async_commit();
    Sight sight = sight_of(s, i, STEP, row, WARP_ROWS, part.length);
    if (sight != NONE) {
      Sums<STEP> x = {}, dp = {};
      multiply_rows(x, [&](uint32_t(&a)[4], int m, int d) { left_of(a, memory, m, d); }, stage(step));
      multiply_rows(dp, [&](uint32_t(&a)[4], int m, int d) { left_of(a, memory + KEPT, m, d); }, stage(step) + PASSED);
#pragma unroll
      for (int n = 0; n < STEP / 8; n++) {
        int query = n * 8 + (threadIdx.x & 3) * 2;
        Two log = *(const Two*)(numbers(step) + query), mean = *(const Two*)(numbers(step) + STEP + query);
#pragma unroll
        for (int m = 0; m < MATRICES; m++)
#pragma unroll
          for (int r = 0; r < 4; r++) {
            Logit l = logit(s, x[m][n][r]);
            float p = exp2_fast(fmaf(l.value, factor, -log.of[r & 1]));
            x[m][n][r] = p;
            dp[m][n][r] = p * (dp[m][n][r] - mean.of[r & 1]) * l.slope;
          }
      }
      if (sight == SOME) {
#pragma unroll
        for (int m = 0; m < MATRICES; m++)
#pragma unroll
          for (int n = 0; n < STEP / 8; n++)
#pragma unroll
            for (int r = 0; r < 4; r++) {
              int32_t query = i + n * 8 + (threadIdx.x & 3) * 2 + (r & 1), key = row + m * 16 + 8 * (r >> 1) + lane_row();
              if (!sees(s, query, key, part.length)) x[m][n][r] = dp[m][n][r] = 0;
            }
      }
      multiply_columns(of_values, x, stage(step) + PASSED);
      multiply_columns(of_keys, dp, stage(step));
    }
    if (threadIdx.x < 2 * STEP) numbers(step + 1)[threadIdx.x] = next;
    i = next_i;
  }
  part = part_of(boundaries, sequences, blockIdx.y);  // again: the loop has no registers to spare
  own = part.first * stride + kv * D;
  float scales[MATRICES][2], ones[MATRICES][2];
#pragma unroll
  for (int m = 0; m < MATRICES; m++) scales[m][0] = scales[m][1] = s.scale, ones[m][0] = ones[m][1] = 1.0f;
  put_rows(memory, of_keys, scales);
  put_rows(memory + KEPT, of_values, ones);
  __syncthreads();
  store_tile(dk + own, memory, stride, part.begin, part.length);
  store_tile(dv + own, memory + KEPT, stride, part.begin, part.length);
}
EXPORT(flash_dkv)
