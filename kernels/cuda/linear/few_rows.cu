// A few rows times a weight `[columns, depth]`, as generation needs it: each weight is read once, and decoded on the way.
//
// A warp has a column: its lanes decode runs of neighbours, multiply them with each row and add in an order that the depth fixes.
// The depth is a multiple of 16. Without a format's description or device code the weight is dense, of WEIGHT.
#include "decode.cuh"
#include "product.cuh"

// Most rows.
constexpr int ROWS = 8;

#ifdef PACKED
typedef PackedWeight Weight;
DEVICE void weight_run(const Weight& weight, const Tables& tables, const Place& place, const Shape& shape, float (&w)[RUN]) {
  decode_run(weight.segments, tables, place, shape, w);
}
#else
struct Weight {
  const WEIGHT* start;
};
DEVICE void weight_run(const Weight& weight, const Tables&, const Place& place, const Shape&, float (&w)[RUN]) {
  read_run(weight.start + place.i, w);
}
#endif

template <class X>
DEVICE void few_rows(const X* x, const Weight& weight, X* y, const Extents& n, const Epilogue<X>& e) {
  SHARED(memory);
#ifdef PACKED
  const Tables& tables = shared_tables(weight, memory);
#else
  const Tables& tables = *(const Tables*)memory;
#endif
  int lane = threadIdx.x & 31;
  int64_t column = (int64_t)blockIdx.x * (THREADS / 32) + (threadIdx.x >> 5);
  if (column >= n.columns) return;
  Shape shape = {(uint64_t)n.columns, (uint64_t)n.depth};
  float sum[ROWS] = {};
  // Lanes that exchange values go on together; without elements they decode the first ones.
  int64_t own = IN_WARPS ? lane * RUN : 0;
  for (int64_t k = lane * RUN; k - own < n.depth; k += 32 * RUN) {
    bool is_in = !IN_WARPS || k < n.depth;
    int64_t at = is_in ? k : 0;
    float w[RUN];
    weight_run(weight, tables, Place{(uint64_t)(column * n.depth + at), (uint64_t)column, (uint64_t)at}, shape, w);
    if (!is_in) continue;
#pragma unroll
    for (int t = 0; t < ROWS; t++) {
      if (t >= n.rows) break;
      float v[RUN];
      read_run(x + t * n.depth + k, v);
#pragma unroll
      for (int j = 0; j < RUN; j++) sum[t] = fmaf(v[j], w[j], sum[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < ROWS; t++) {
    if (t >= n.rows) break;
    for (int mask = 16; mask > 0; mask >>= 1) sum[t] += exchange(sum[t], mask);
    int64_t at = t * n.columns + column;
    if (lane == 0) y[at] = finish<X>(sum[t], at, column, e);
  }
}
#define FEW_ROWS(X)                                                                                                        \
  extern "C" __global__ void few_rows_##X(const X* x, const Weight weight, X* y, const Extents n, const Epilogue<X> e) {    \
    few_rows<X>(x, weight, y, n, e);                                                                                       \
  }                                                                                                                        \
  EXPORT(few_rows_##X)
FEW_ROWS(f32)
FEW_ROWS(bf16)
