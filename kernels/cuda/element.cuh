// Element types, sums over a block, random numbers: what most kernels share.
#pragma once
#include "device.cuh"

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
typedef float f32;
typedef double f64;

DEVICE float widen(f32 x) { return x; }
DEVICE float widen(bf16 x) { return bf16_bits_to_float(x.bits); }
DEVICE float widen(f16 x) { return f16_bits_to_float(x.bits); }

// A number rounded to the type of the second argument, to the nearest, ties to even.
DEVICE f32 narrow_to(float x, f32*) { return x; }
DEVICE bf16 narrow_to(float x, bf16*) { return bf16{float_to_bf16_bits(x)}; }
DEVICE f16 narrow_to(float x, f16*) { return f16{float_to_f16_bits(x)}; }
template <class T>
DEVICE T narrow(float x) {
  return narrow_to(x, (T*)0);
}
// A number as it is after it was rounded to T.
template <class T>
DEVICE float rounded(float x) {
  return widen(narrow<T>(x));
}

// Neighbours that a thread reads or writes at once, from a multiple of 16 bytes on.
constexpr int RUN = 16;

template <int N>
DEVICE void write_run(float* y, const float (&v)[N]) {
#pragma unroll
  for (int k = 0; k < N; k += 4) {
    uint4 word = {float_bits(v[k]), float_bits(v[k + 1]), float_bits(v[k + 2]), float_bits(v[k + 3])};
    *(uint4*)(y + k) = word;
  }
}
template <int N>
DEVICE void write_run(bf16* y, const float (&v)[N]) {
#pragma unroll
  for (int k = 0; k < N; k += 8) {
    uint4 word = {pack_bf16(v[k], v[k + 1]), pack_bf16(v[k + 2], v[k + 3]), pack_bf16(v[k + 4], v[k + 5]),
                  pack_bf16(v[k + 6], v[k + 7])};
    *(uint4*)(y + k) = word;
  }
}
DEVICE void read_run(const float* x, float (&v)[RUN]) {
#pragma unroll
  for (int k = 0; k < RUN; k += 4) {
    uint4 word = *(const uint4*)(x + k);
    v[k] = bits_float(word.x), v[k + 1] = bits_float(word.y), v[k + 2] = bits_float(word.z), v[k + 3] = bits_float(word.w);
  }
}
// 16 bits each.
template <class T>
DEVICE void read_run(const T* x, float (&v)[RUN]) {
#pragma unroll
  for (int k = 0; k < RUN; k += 8) {
    uint4 word = *(const uint4*)(x + k);
    uint32_t pairs[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int j = 0; j < 8; j++) v[k + j] = widen(T{(uint16_t)(pairs[j / 2] >> (j % 2 * 16))});
  }
}

// Threads of a block of every kernel that says nothing else.
constexpr int THREADS = 256;

// This thread's first element and the distance to its next, where a grid takes turns over elements.
DEVICE int64_t first_element() { return (int64_t)blockIdx.x * THREADS + threadIdx.x; }
DEVICE int64_t element_stride() { return (int64_t)gridDim.x * THREADS; }

// The sum of `x` over a block of THREADS, in all threads, by a tree that does not depend on chance. `scratch` holds
// THREADS / 32 numbers, and may be used again after the call.
template <class T>
DEVICE T block_sum(T x, T* scratch) {
  for (int mask = 16; mask > 0; mask >>= 1) x += exchange(x, mask);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = x;
  __syncthreads();
  T sum = scratch[0];
  for (int warp = 1; warp < THREADS / 32; warp++) sum += scratch[warp];
  __syncthreads();
  return sum;
}

// The largest `x` of a block of THREADS, in all threads. A NaN counts as nothing.
DEVICE float block_max(float x, float* scratch) {
  for (int mask = 16; mask > 0; mask >>= 1) x = fmaxf(x, exchange(x, mask));
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = x;
  __syncthreads();
  float most = scratch[0];
  for (int warp = 1; warp < THREADS / 32; warp++) most = fmaxf(most, scratch[warp]);
  __syncthreads();
  return most;
}

// Philox 4x32-10 (Salmon et al. 2011), as core/interface/src/random.rs has it.
struct Words {
  uint32_t word[4];
};
DEVICE Words philox(uint32_t key0, uint32_t key1, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ key0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ key1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return Words{{c0, c1, c2, c3}};
}
// A uniform number in [0, 1) with 24 random bits.
DEVICE float uniform(uint32_t word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }

// Where a kernel says what it found wrong in its input: the first word is the fault's number, 0 for none; then the place and the
// value. The host looks when it waits. The first fault of a race stays or is replaced whole by another of the same launch.
struct Fault {
  int32_t code;
  int32_t place;
  int32_t value;
  int32_t limit;
};
DEVICE void report(Fault* fault, int32_t code, int32_t place, int32_t value, int32_t limit) {
  if (fault->code) return;
  fault->place = place;
  fault->value = value;
  fault->limit = limit;
  fault->code = code;
}
