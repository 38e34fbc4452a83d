// Numbers -> numbers by accesses of 16 bytes: what kernels whose time is that of memory are made of.
//
// A block has a tile of neighbours, of which a thread takes a pack at a time: all of its packs are on the way before the first is
// used. Numbers that fill no pack, and memory that does not begin at 16 bytes, are read one by one.
#pragma once
#include "element.cuh"

// Numbers of a tile, and of those that a thread has.
constexpr int OF_THREAD = 16;
constexpr int64_t TILE = (int64_t)THREADS * OF_THREAD;

// What stands before a kernel that goes by tiles: registers for all loads of a thread, which it else would do one after another.
#define BY_TILES __launch_bounds__(THREADS, 5)

template <int N>
struct Numbers {
  float of[N];
};
// N neighbours as they are in memory.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T of[N];
};

// Numbers of a pack of which that of the widest type is 16 bytes.
template <class... T>
DEVICE constexpr int pack_of() {
  return ((sizeof(T) > 2) || ...) ? 4 : 8;
}
template <class... P>
DEVICE bool are_aligned(const P*... p) {
  return (((uint64_t)p | ...) & 15) == 0;
}

template <int N, class T>
DEVICE Pack<T, N> load_pack(const T* x) {
  Pack<T, N> pack;
  if constexpr (sizeof(pack) % 16 == 0) {
#pragma unroll
    for (int k = 0; k < (int)sizeof(pack); k += 16) *(uint4*)((char*)&pack + k) = load16((const char*)x + k);
  } else {
    pack = *(const Pack<T, N>*)x;
  }
  return pack;
}
template <int N, class T>
DEVICE Numbers<N> widen_pack(const Pack<T, N>& pack) {
  Numbers<N> v;
#pragma unroll
  for (int k = 0; k < N; k++) v.of[k] = widen(pack.of[k]);
  return v;
}
template <int N>
DEVICE Numbers<N> widen_pack(const Pack<bf16, N>& pack) {
  Numbers<N> v;
#pragma unroll
  for (int k = 0; k < N; k += 2) {
    uint32_t pair = ((const uint32_t*)&pack)[k / 2];
    v.of[k] = bits_float(pair << 16);
    v.of[k + 1] = bits_float(pair & 0xffff0000u);
  }
  return v;
}
template <int N, class T>
DEVICE Numbers<N> read_pack(const T* x) {
  return widen_pack<N>(load_pack<N>(x));
}
template <int N, class T>
DEVICE void write_pack(T* y, const Numbers<N>& v) {
  Pack<T, N> pack;
#pragma unroll
  for (int k = 0; k < N; k++) pack.of[k] = narrow<T>(v.of[k]);
  *(Pack<T, N>*)y = pack;
}
template <int N>
DEVICE void write_pack(bf16* y, const Numbers<N>& v) {
  Pack<uint32_t, N / 2> pairs;
#pragma unroll
  for (int k = 0; k < N; k += 2) pairs.of[k / 2] = pack_bf16(v.of[k], v.of[k + 1]);
  *(Pack<uint32_t, N / 2>*)y = pairs;
}

// Each number of a pack by `f`, of a number of each input.
template <int N, class F, class... X>
DEVICE Numbers<N> each(const F& f, const X&... x) {
  Numbers<N> y;
#pragma unroll
  for (int k = 0; k < N; k++) y.of[k] = f(x.of[k]...);
  return y;
}

// The packs of a thread, THREADS packs apart.
template <class T, int N>
struct Packs {
  Pack<T, N> of[OF_THREAD / N];
};
template <int N, class T>
DEVICE Packs<T, N> load_packs(const T* x) {
  Packs<T, N> packs;
#pragma unroll
  for (int k = 0; k < OF_THREAD / N; k++) packs.of[k] = load_pack<N>(x + k * THREADS * N);
  return packs;
}
template <int N, class F, class Y, class... X>
DEVICE void map_packs(const F& f, Y* y, const Packs<X, N>&... x) {
#pragma unroll
  for (int k = 0; k < OF_THREAD / N; k++) write_pack<N>(y + k * THREADS * N, each<N>(f, widen_pack<N>(x.of[k])...));
}

// y = f(x...), number by number: n of them, a block for each tile. y may be an x.
template <class F, class Y, class... X>
DEVICE void map(int64_t n, const F& f, Y* y, const X*... x) {
  constexpr int N = pack_of<Y, X...>();
  int64_t begin = blockIdx.x * TILE + threadIdx.x * N;
  bool packs = are_aligned(y, x...);
  if (packs && (blockIdx.x + 1) * TILE <= n) {
    map_packs<N>(f, y + begin, load_packs<N>(x + begin)...);
    return;
  }
  for (int64_t at = begin; at < begin + TILE && at < n; at += THREADS * N) {
    if (packs && at + N <= n) {
      write_pack<N>(y + at, each<N>(f, read_pack<N>(x + at)...));
    } else {
#pragma unroll 1
      for (int64_t i = at; i < at + N && i < n; i++) y[i] = narrow<Y>(f(widen(x[i])...));
    }
  }
}

// The row of element i of rows of `width`, and its column. A division of 64 bits takes much longer than one of 32.
struct Cell {
  int64_t row, column;
};
DEVICE Cell cell_of(int64_t i, int64_t width) {
  if (((uint64_t)i | (uint64_t)width) >> 32) return Cell{i / width, i % width};
  uint32_t row = (uint32_t)i / (uint32_t)width;
  return Cell{row, (uint32_t)i - row * (uint32_t)width};
}
