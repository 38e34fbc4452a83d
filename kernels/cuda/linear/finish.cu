// A product that a library has written and rounded -> with what the library did not add.
#include "product.cuh"

// c[i, j] = round(c[i, j] + bias[j] + residual[i, j]), where there are a bias and a residual. The number of columns is a multiple
// of 8, and a thread has 8 neighbours of a row.
extern "C" __global__ void finish_bf16(bf16* c, const Extents n, const Epilogue<bf16> e) {
  constexpr int COUNT = 8;
  int64_t runs = n.rows * n.columns / COUNT;
  for (int64_t run = first_element(); run < runs; run += element_stride()) {
    int64_t at = run * COUNT, j = at % n.columns;
    uint4 word = *(const uint4*)(c + at), more = {0, 0, 0, 0};
    if (e.residual) more = *(const uint4*)(e.residual + at);
    uint32_t sums[4] = {word.x, word.y, word.z, word.w}, residuals[4] = {more.x, more.y, more.z, more.w};
#pragma unroll
    for (int pair = 0; pair < COUNT / 2; pair++) {
      float v[2];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        int64_t column = j + pair * 2 + half;
        float sum = bf16_bits_to_float((uint16_t)(sums[pair] >> (half * 16)));
        if (e.bias_f32) sum += e.bias_f32[column];
        if (e.bias_bf16) sum += widen(e.bias_bf16[column]);
        if (e.bias_f16) sum += widen(e.bias_f16[column]);
        if (e.residual) sum += bf16_bits_to_float((uint16_t)(residuals[pair] >> (half * 16)));
        v[half] = sum;
      }
      sums[pair] = pack_bf16(v[0], v[1]);
    }
    *(uint4*)(c + at) = uint4{sums[0], sums[1], sums[2], sums[3]};
  }
}
EXPORT(finish_bf16)
