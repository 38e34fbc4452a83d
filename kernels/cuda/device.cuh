// What kernels are written with: instructions of a GPU, each with two bodies. Here is the one for NVRTC, in PTX; the other is
// the model of a GPU in tests/gpu/emulator. NVRTC needs no header of NVIDIA's for it. All of it is there from sm_80 on.
#pragma once
#ifdef EMULATED
#include "emulator.h"
#else
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int int32_t;
typedef long long int64_t;
#define DEVICE __device__ __forceinline__
// A function of its own, for code that would be copied many times.
#define DEVICE_CALL static __device__ __noinline__
// Shared memory, whose bytes the launch gives.
extern __shared__ __align__(128) unsigned char shared_memory[];
#define SHARED(name) unsigned char* name = shared_memory
#define EXPORT(name)
#define INFINITE __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fffffff)

// d += a b, of 16x16 bf16 with 16x8 (PTX ISA, "mma.sync", m16n8k16).
DEVICE void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
// Four 8x8 matrices of 16-bit elements. Lane 8 m + i names row i of matrix m.
DEVICE void load_matrix4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
DEVICE void load_matrix4_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// 16 bytes to shared memory, of which the first `bytes` come from `from` and the others are zeros.
DEVICE void copy_async16(void* to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all groups but the last N.
template <int N>
DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
// 16 bytes. Loads stay in their order, so that those that a kernel begins with are on the way together.
DEVICE uint4 load16(const void* p) {
  uint4 r;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p) : "memory");
  return r;
}
// The value of the lane whose number differs in the bits of `mask`.
template <class T>
DEVICE T exchange(T x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
// What lanes of a warp read and wrote before is done for all of them behind it.
DEVICE void sync_warp() { __syncwarp(); }
// Two bf16, rounded to the nearest, ties to even.
DEVICE uint32_t pack_bf16(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
DEVICE float bf16_bits_to_float(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }
DEVICE uint16_t float_to_bf16_bits(float x) {
  uint16_t r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
DEVICE float f16_bits_to_float(uint16_t bits) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(bits));
  return r;
}
DEVICE uint16_t float_to_f16_bits(float x) {
  uint16_t r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
// 2^x and log2 x, to about 2 ulp.
DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / x to 1 ulp.
DEVICE float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE uint32_t float_bits(float x) { return __float_as_uint(x); }
DEVICE float bits_float(uint32_t bits) { return __uint_as_float(bits); }
#endif
