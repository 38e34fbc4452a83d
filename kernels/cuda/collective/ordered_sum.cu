// Several ranks' numbers -> their sum, added in the order of the ranks: the same bits on every rank.
#include "element.cuh"

DEVICE f64 widen(f64 x) { return x; }
DEVICE f64 narrow_to(f64 x, f64*) { return x; }

// y[i] = ((p_0[i] + p_1[i]) + p_2[i]) + ..., of `members` parts, added as wide numbers and rounded once. Part number `own` is p, which
// y may be; the others are at `others`, one after the other, `stride` numbers apart.
template <class T>
DEVICE void ordered_sum(const T* p, const T* others, T* y, int own, int members, int64_t stride, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    auto total = widen(own == 0 ? p[i] : others[i]);
    for (int member = 1; member < members; member++) {
      int64_t slot = member < own ? member : member - 1;
      total = total + widen(member == own ? p[i] : others[slot * stride + i]);
    }
    y[i] = narrow_to(total, (T*)0);
  }
}
#define ORDERED_SUM(T)                                                                                                       \
  extern "C" __global__ void ordered_sum_##T(const T* p, const T* others, T* y, int32_t own, int32_t members, int64_t stride, \
                                             int64_t n) {                                                                    \
    ordered_sum<T>(p, others, y, own, members, stride, n);                                                                   \
  }                                                                                                                          \
  EXPORT(ordered_sum_##T)
ORDERED_SUM(f64)
ORDERED_SUM(f32)
ORDERED_SUM(bf16)
ORDERED_SUM(f16)
