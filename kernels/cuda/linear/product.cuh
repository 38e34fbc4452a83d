// What products share: where elements lie, and what is done to a sum.
//
// c[i, j] = sum_k a[i, k] b[j, k], where element (i, k) of a lies at i a_row + k a_column, and the same of b. An element's sum goes
// over k in order, so that its bits do not depend on the other rows and columns.
#pragma once
#include "element.cuh"

// What is done to a sum, in this order: the bias of column j is added and the result rounded to T; it is multiplied by alpha;
// `added` is added and the result rounded; `residual` is added and the result rounded. `added` or `residual` may be c.
template <class T>
struct Epilogue {
  const float* bias_f32;
  const bf16* bias_bf16;
  const f16* bias_f16;
  const T* added;
  const T* residual;
  float alpha;
};
template <class T>
DEVICE T finish(float sum, int64_t at, int64_t j, const Epilogue<T>& e) {
  if (e.bias_f32) sum += e.bias_f32[j];
  if (e.bias_bf16) sum += widen(e.bias_bf16[j]);
  if (e.bias_f16) sum += widen(e.bias_f16[j]);
  sum = e.alpha * rounded<T>(sum);
  if (e.added) sum = widen(e.added[at]) + sum;
  if (e.residual) sum = widen(e.residual[at]) + rounded<T>(sum);
  return narrow<T>(sum);
}

struct Matrix {
  int64_t row, column;
};
struct Extents {
  int64_t rows, columns, depth;
};

// What becomes of a sum: it is written; or, times alpha, added to a gradient in f32, or rounded and added to one in bf16.
enum Output { WRITTEN, ADDED_F32, ADDED_BF16 };
template <class T>
DEVICE_CALL void put(float sum, void* c, int64_t at, int64_t j, const Epilogue<T>& e, int output) {
  if (output == ADDED_F32) {
    ((float*)c)[at] += e.alpha * sum;
  } else if (output == ADDED_BF16) {
    bf16* gradient = (bf16*)c + at;
    *gradient = narrow<bf16>(widen(*gradient) + rounded<bf16>(e.alpha * sum));
  } else {
    ((T*)c)[at] = finish<T>(sum, at, j, e);
  }
}
