// The gradients of softmax attention of bf16 on tensor cores, in the order of FlashAttention-2 (Dao 2023).
//
// What is computed is that of plain.cu: with p_ij = exp(l_ij - lse_i) and dl_ij = p_ij (dout_i . v_j - delta_i), times the slope of
// the cap, dq_i = scale sum_j dl_ij k_j, dk_j = scale sum_i dl_ij q_i, dv_j = sum_i p_ij dout_i. Both p and dl are rounded to bf16
// before they multiply. One kernel's blocks have queries and go through keys, the other's the reverse, so that nothing is added by
// several blocks. This computes p twice, and the bits do not depend on chance.
#include "flash.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    flash_dq(const bf16* dout, const bf16* q, const bf16* k, const bf16* v, const float* lse, const float* delta,
             const int32_t* boundaries, bf16* dq, const Shape s, int32_t sequences) {
  SHARED(memory);
  // The last queries of a sequence, which see most, begin first.
  Part part = part_of(boundaries, sequences, gridDim.y - 1 - blockIdx.y);
  if (part.begin >= part.length) return;
  int head = blockIdx.x, kv = head / (s.heads / s.kv_heads), lane = threadIdx.x & 31;
  int32_t row = part.begin + (threadIdx.x >> 5) * 16;
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
  float sum[D / 8][4] = {}, log[2], mean[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int32_t i = row + (lane >> 2) + 8 * h;
    int64_t at = (int64_t)(part.first + i) * s.heads + head;
    log[h] = i < part.length ? lse[at] * LOG2_E : 0.0f;
    mean[h] = i < part.length ? delta[at] : 0.0f;
  }
  for (int32_t j = begin; j < end; j += STEP) {
    if (j + STEP < end) load(j + STEP);
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();
    Sight sight = sight_of(s, row, 16, j, STEP, part.length);
    if (sight != NONE) {
      float x[STEP / 8][4] = {}, dp[STEP / 8][4] = {};
      multiply_rows(x, [&](uint32_t(&a)[4], int d) { left_of(a, memory, d); }, stage(j));
      multiply_rows(dp, [&](uint32_t(&a)[4], int d) { left_of(a, memory + KEPT, d); }, stage(j) + PASSED);
#pragma unroll
      for (int n = 0; n < STEP / 8; n++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
          Logit l = logit(s, x[n][r]);
          float p = exp2_fast(l.value - log[r >> 1]);
          if (sight == SOME && !sees(s, row + (lane >> 2) + 8 * (r >> 1), j + n * 8 + (lane & 3) * 2 + (r & 1), part.length)) p = 0;
          x[n][r] = p * (dp[n][r] - mean[r >> 1]) * l.slope;
        }
      multiply_columns(sum, x, stage(j));
    }
    __syncthreads();  // before the stage is filled again
  }
  copy_async_wait<0>();
  put_rows(memory, sum, s.scale, s.scale);
  __syncthreads();
  store_tile(dq + own, memory, q_stride, part.begin, part.length);
}
EXPORT(flash_dq)

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    flash_dkv(const bf16* dout, const bf16* q, const bf16* k, const bf16* v, const float* lse, const float* delta,
              const int32_t* boundaries, bf16* dk, bf16* dv, const Shape s, int32_t sequences) {
  SHARED(memory);
  Part part = part_of(boundaries, sequences, blockIdx.y);
  if (part.begin >= part.length) return;
  int kv = blockIdx.x, group = s.heads / s.kv_heads, lane = threadIdx.x & 31;
  int32_t row = part.begin + (threadIdx.x >> 5) * 16;
  int64_t q_stride = (int64_t)s.heads * D, stride = (int64_t)s.kv_heads * D, own = part.first * stride + kv * D;
  int32_t begin = s.causal ? part.begin : 0, end = part.length;
  if (s.window > 0 && s.window < part.length - (part.begin + ROWS - 1)) end = part.begin + ROWS - 1 + s.window;
  // The queries of all heads of the group, one head after the other.
  int32_t tiles = (end - begin + STEP - 1) / STEP, steps = group * tiles;
  auto head_of = [&](int32_t step) { return kv * group + step / tiles; };
  auto query_of = [&](int32_t step) { return begin + step % tiles * STEP; };
  // Two stages of queries and gradients: one is copied while the other is multiplied. Then a number lse and delta of each.
  auto stage = [&](int32_t step) { return memory + 2 * KEPT + (step & 1) * 2 * PASSED; };
  auto numbers = [&](int32_t step) { return (float*)(memory + 2 * KEPT + 4 * PASSED) + (step & 1) * 2 * STEP; };
  auto load = [&](int32_t step) {
    int64_t from = part.first * q_stride + head_of(step) * D;
    load_tile<STEP>(stage(step), q + from, q_stride, query_of(step), part.length);
    load_tile<STEP>(stage(step) + PASSED, dout + from, q_stride, query_of(step), part.length);
  };
  // The number of a stage that this thread brings.
  auto number = [&](int32_t step) {
    int32_t i = query_of(step) + threadIdx.x % STEP;
    if (threadIdx.x >= 2 * STEP || i >= part.length) return 0.0f;
    int64_t at = (int64_t)(part.first + i) * s.heads + head_of(step);
    return threadIdx.x < STEP ? lse[at] * LOG2_E : delta[at];
  };
  load_tile<ROWS>(memory, k + own, stride, part.begin, part.length);
  load_tile<ROWS>(memory + KEPT, v + own, stride, part.begin, part.length);
  load(0);
  copy_async_commit();
  if (threadIdx.x < 2 * STEP) numbers(0)[threadIdx.x] = number(0);
  float of_keys[D / 8][4] = {}, of_values[D / 8][4] = {};
  for (int32_t step = 0; step < steps; step++) {
    float next = 0;
    if (step + 1 < steps) {
      load(step + 1);
      next = number(step + 1);
    }
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();
    int32_t i = query_of(step);
    Sight sight = sight_of(s, i, STEP, row, 16, part.length);
    if (sight != NONE) {
      float x[STEP / 8][4] = {}, dp[STEP / 8][4] = {};
      multiply_rows(x, [&](uint32_t(&a)[4], int d) { left_of(a, memory, d); }, stage(step));
      multiply_rows(dp, [&](uint32_t(&a)[4], int d) { left_of(a, memory + KEPT, d); }, stage(step) + PASSED);
#pragma unroll
      for (int n = 0; n < STEP / 8; n++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
          int query = n * 8 + (lane & 3) * 2 + (r & 1);
          Logit l = logit(s, x[n][r]);
          float p = exp2_fast(l.value - numbers(step)[query]);
          if (sight == SOME && !sees(s, i + query, row + (lane >> 2) + 8 * (r >> 1), part.length)) p = 0;
          x[n][r] = p;
          dp[n][r] = p * (dp[n][r] - numbers(step)[STEP + query]) * l.slope;
        }
      multiply_columns(of_values, x, stage(step) + PASSED);
      multiply_columns(of_keys, dp, stage(step));
    }
    if (threadIdx.x < 2 * STEP) numbers(step + 1)[threadIdx.x] = next;
    __syncthreads();  // before the stage is filled again
  }
  copy_async_wait<0>();
  put_rows(memory, of_keys, s.scale, s.scale);
  put_rows(memory + KEPT, of_values, 1.0f, 1.0f);
  __syncthreads();
  store_tile(dk + own, memory, stride, part.begin, part.length);
  store_tile(dv + own, memory + KEPT, stride, part.begin, part.length);
}
EXPORT(flash_dkv)
