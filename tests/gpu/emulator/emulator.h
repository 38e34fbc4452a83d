// A processor's model of a GPU, for kernels written in CUDA C++. For tests alone: it says nothing of speed.
//
// A block runs at a time, and each of its threads is a fiber. What a GPU leaves to chance is made visible:
//
// - Threads take turns in an order that the test chooses. A barrier or a wait that is missing changes the result in one of them.
// - Shared memory begins as NaNs.
// - `copy_async` copies nothing before it is waited for, or at once where the order is GREEDY.
// - Lanes that meet in different collective calls, rows and copies that are not aligned, and threads that wait for one another
//   for ever are errors.
//
// The numbers of `mma` are those of its definition with sums in f32 (PTX ISA, "mma.sync"; the order of a GPU's sums is not
// defined). For x86-64 and the compilers GCC and Clang.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
// A table of one module.
#define __constant__ __attribute__((visibility("hidden")))
#define __forceinline__ inline
#define __launch_bounds__(...)
#define DEVICE static inline
#define DEVICE_CALL static __attribute__((noinline, unused))
#define SHARED(name) unsigned char* name = emulator::block().shared
#define INFINITE INFINITY
#define NOT_A_NUMBER NAN

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

namespace emulator {

enum Order { FORWARD, BACKWARD, SHUFFLED, GREEDY };

// A copy to shared memory that nobody has waited for.
struct Copy {
  void* to;
  const void* from;
  int bytes;
  int group;
};

struct Block;

struct Fiber {
  Block* block = nullptr;
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  dim3 index;
  int lane = 0, warp = 0;
  bool done = false;
  const uint64_t* awaited = nullptr;
  uint64_t since = 0;
  const char* waits_in = "";
  std::vector<Copy> copies;
  int group = 0;
};

struct Warp {
  uint64_t generation = 0;
  int arrived = 0, size = 0;
  const char* call = "";
  alignas(16) unsigned char slots[2][32][64];
};

// What a launch did. Bank conflicts are counted for `load_matrix` alone.
struct Counts {
  uint64_t products = 0, matrix_loads = 0, conflicts = 0, barriers = 0, copied_bytes = 0;
};

struct Block {
  dim3 index, size, grid;
  std::vector<unsigned char> memory;
  unsigned char* shared = nullptr;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  uint64_t generation = 0;
  int arrived = 0, alive = 0;
  void* launcher = nullptr;
  void (*body)(void**) = nullptr;
  void** arguments = nullptr;
  Counts counts;
  Order order = FORWARD;
  char failure[256] = "";
  ~Block() {
    for (Fiber& f : fibers) free(f.stack);
  }
};

// The block that this thread of the host launches.
inline Block& launched() {
  static thread_local Block the_block;
  return the_block;
}

// A fiber's stack, which begins at a multiple of its size. Its lowest word is the fiber's address, so that a fiber finds itself by its
// stack pointer: a variable of the thread costs a call.
constexpr size_t STACK_BYTES = 64 << 10;

// The fiber that runs.
inline Fiber& fiber() {
  uintptr_t stack_pointer;
  asm("mov %%rsp, %0" : "=r"(stack_pointer));
  return **(Fiber**)(stack_pointer & ~uintptr_t(STACK_BYTES - 1));
}
// Its block.
inline Block& block() { return *fiber().block; }

// It jumps to where `to` went on: the processor would predict a return to where this one was called.
extern "C" void emulator_switch(void** save, void* to);
asm(R"(
.weak emulator_switch
.type emulator_switch,@function
emulator_switch:
  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
  pop %rcx
  jmp *%rcx
.size emulator_switch,.-emulator_switch
)");

// Ends the launch with a message. The fiber that calls it never goes on.
[[noreturn]] inline void fail(const char* what) {
  Fiber& f = fiber();
  Block& b = *f.block;
  snprintf(b.failure, sizeof b.failure, "%s (block %u,%u,%u thread %u)", what, b.index.x, b.index.y, b.index.z, f.index.x);
  emulator_switch(&f.stack_pointer, b.launcher);
  abort();
}

inline void wait_for(const uint64_t* generation, const char* call) {
  Fiber& f = fiber();
  f.awaited = generation;
  f.since = *generation;
  f.waits_in = call;
  emulator_switch(&f.stack_pointer, f.block->launcher);
  f.awaited = nullptr;
}

inline void enter() {
  Fiber& f = fiber();
  Block& b = *f.block;
  b.body(b.arguments);
  if (!f.copies.empty()) fail("a thread ends with copies that nobody waited for");
  f.done = true;
  b.alive--;
  if (b.alive && b.arrived == b.alive) fail("a thread ends while the others wait at a barrier");
  emulator_switch(&f.stack_pointer, b.launcher);
  abort();
}

// All lanes of a warp bring `in`. The last to come runs `act` on all slots. Each takes what is then in its own.
template <class F>
inline unsigned char* collective(const char* call, const void* in, size_t bytes, F act) {
  Fiber& f = fiber();
  Warp& w = f.block->warps[f.warp];
  unsigned char(*slots)[64] = w.slots[w.generation & 1];
  if (w.arrived == 0)
    w.call = call;
  else if (w.call != call && strcmp(w.call, call))
    fail("lanes of a warp meet in different collective calls");
  memcpy(slots[f.lane], in, bytes);
  if (++w.arrived == w.size) {
    act(slots);
    w.arrived = 0;
    w.generation++;
  } else {
    wait_for(&w.generation, call);
  }
  return slots[f.lane];
}

// Begins a block: its threads, none of which has run, and shared memory of NaNs.
inline void begin(Block& b, size_t shared_bytes) {
  int threads = int(b.fibers.size());
  memset(b.shared, 0xff, shared_bytes);
  b.warps.assign((threads + 31) / 32, Warp{});
  b.generation = 0;
  b.arrived = 0;
  b.alive = threads;
  for (int i = 0; i < threads; i++) {
    Fiber& f = b.fibers[i];
    f.block = &b;
    f.done = false;
    f.awaited = nullptr;
    f.copies.clear();
    f.group = 0;
    f.index = {i % b.size.x, i / b.size.x % b.size.y, i / b.size.x / b.size.y};
    f.lane = i & 31;
    f.warp = i >> 5;
    b.warps[f.warp].size++;
    *(Fiber**)f.stack = &f;
    // Stacks that lie alike in their pages would share a few lines of the processor's cache.
    void** top = (void**)(f.stack + STACK_BYTES - i * 576 % (16 << 10)) - 1;
    *--top = (void*)enter;
    for (int r = 0; r < 6; r++) *--top = nullptr;
    f.stack_pointer = top;
  }
}

// Lets thread `i` run until it waits. Returns whether it did anything.
inline bool run(Block& b, int i) {
  Fiber& f = b.fibers[i];
  if (f.done || (f.awaited && *f.awaited == f.since)) return false;
  emulator_switch(&b.launcher, f.stack_pointer);
  return true;
}

// Runs a block. Returns whether it came to its end.
inline bool finish(Block& b, std::vector<int>& turns) {
  int threads = int(b.fibers.size());
  while (b.alive) {
    bool ran = false;
    if (b.order != GREEDY) {
      for (int i : turns) {
        ran |= run(b, i);
        if (*b.failure) return false;
      }
    } else {
      for (int w = 0; w < threads; w += 32)
        for (bool any = true; any;) {
          any = false;
          for (int i = w; i < w + 32 && i < threads; i++) {
            any |= run(b, i);
            if (*b.failure) return false;
          }
          ran |= any;
        }
    }
    if (ran) continue;
    const char* call = "";
    for (Fiber& f : b.fibers)
      if (!f.done) call = f.waits_in;
    snprintf(b.failure, sizeof b.failure, "threads wait for one another for ever, in %s (block %u,%u,%u)", call, b.index.x,
             b.index.y, b.index.z);
    return false;
  }
  return true;
}

// Runs a kernel. Returns whether it came to its end; else `launched().failure` says why.
inline bool launch(void (*body)(void**), void** arguments, dim3 grid, dim3 size, size_t shared_bytes, Order order, uint32_t seed) {
  Block& b = launched();
  size_t threads = size_t(size.x) * size.y * size.z;
  for (size_t i = threads; i < b.fibers.size(); i++) free(b.fibers[i].stack);
  size_t had = b.fibers.size();
  b.fibers.resize(threads);
  for (size_t i = had; i < threads; i++) b.fibers[i].stack = (char*)aligned_alloc(STACK_BYTES, STACK_BYTES);
  b.body = body;
  b.arguments = arguments;
  b.grid = grid;
  b.size = size;
  b.order = order;
  b.counts = {};
  *b.failure = 0;
  b.memory.resize(shared_bytes + 256);
  b.shared = (unsigned char*)(((uintptr_t)b.memory.data() + 127) & ~uintptr_t(127));
  std::vector<int> turns(threads);
  for (size_t i = 0; i < threads; i++) turns[i] = int(order == BACKWARD ? threads - 1 - i : i);
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x; x++) {
        b.index = {x, y, z};
        if (order == BACKWARD) b.index = {grid.x - 1 - x, grid.y - 1 - y, grid.z - 1 - z};
        begin(b, shared_bytes);
        if (order == SHUFFLED)
          for (size_t i = threads; i-- > 1;) {
            seed = seed * 1664525 + 1013904223;
            std::swap(turns[i], turns[(seed >> 8) % (i + 1)]);
          }
        if (!finish(b, turns)) return false;
      }
  return true;
}

template <class... A, size_t... I>
inline void spread(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_cv_t<std::remove_reference_t<A>>*>(arguments[I])...);
}
template <class... A>
inline void spread(void (*kernel)(A...), void** arguments) {
  spread(kernel, arguments, std::index_sequence_for<A...>{});
}
// The bytes of each argument, and 0 behind the last.
template <class... A>
inline const size_t* sizes(void (*)(A...)) {
  static const size_t bytes[] = {sizeof(A)..., 0};
  return bytes;
}

inline float from_bf16(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float x;
  memcpy(&x, &wide, 4);
  return x;
}
inline uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (x != x) return 0x7fff;
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// What lane l of a warp has of a product of 16x16 with 16x8.
struct Product {
  uint32_t a[4], b[2];
  float c[4];
};
struct MatrixRows {
  const uint16_t* row;
  uint32_t r[4];
};

}  // namespace emulator

// What a driver calls: the kernel `name`, and the sizes of its arguments.
#define EXPORT(name)                                                                             \
  extern "C" void emulator_kernel_##name(void** arguments) { emulator::spread(name, arguments); } \
  extern "C" const size_t* emulator_sizes_##name() { return emulator::sizes(name); }
// NULL where the launch came to its end, else why it did not.
extern "C" __attribute__((weak)) const char* emulator_launch(void (*body)(void**), void** arguments, const unsigned* grid,
                                                            const unsigned* size, size_t shared_bytes, int order, uint32_t seed,
                                                            emulator::Counts* counts) {
  bool done = emulator::launch(body, arguments, {grid[0], grid[1], grid[2]}, {size[0], size[1], size[2]}, shared_bytes,
                               emulator::Order(order), seed);
  if (counts) *counts = emulator::launched().counts;
  return done ? nullptr : emulator::launched().failure;
}

#define threadIdx (emulator::fiber().index)
#define blockIdx (emulator::block().index)
#define blockDim (emulator::block().size)
#define gridDim (emulator::block().grid)

DEVICE void __syncthreads() {
  emulator::Block& b = emulator::block();
  b.counts.barriers++;
  if (++b.arrived == b.alive) {
    b.arrived = 0;
    b.generation++;
  } else {
    emulator::wait_for(&b.generation, "__syncthreads");
  }
}

DEVICE void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  using emulator::Product;
  Product in{{a[0], a[1], a[2], a[3]}, {b0, b1}, {d[0], d[1], d[2], d[3]}};
  auto* own = emulator::collective("mma_bf16", &in, sizeof in, [](unsigned char(*slots)[64]) {
    // A row of 8 at once: the order of each sum stays.
    using Row = float __attribute__((vector_size(32)));
    float A[16][16];
    Row B[16], C[16] = {};
    for (int lane = 0; lane < 32; lane++) {
      Product* p = (Product*)slots[lane];
      int group = lane >> 2, pair = (lane & 3) * 2;
      for (int half = 0; half < 2; half++) {
        for (int r = 0; r < 4; r++)
          A[group + 8 * (r & 1)][pair + 8 * (r >> 1) + half] = emulator::from_bf16(uint16_t(p->a[r] >> (16 * half)));
        for (int r = 0; r < 2; r++) B[pair + 8 * r + half][group] = emulator::from_bf16(uint16_t(p->b[r] >> (16 * half)));
      }
    }
    for (int m = 0; m < 16; m++)
      for (int k = 0; k < 16; k++) C[m] += A[m][k] * B[k];
    for (int lane = 0; lane < 32; lane++) {
      Product* p = (Product*)slots[lane];
      int group = lane >> 2, pair = (lane & 3) * 2;
      for (int r = 0; r < 4; r++) p->c[r] += C[group + 8 * (r >> 1)][pair + (r & 1)];
    }
    emulator::block().counts.products++;
  });
  memcpy(d, ((Product*)own)->c, 16);
}

DEVICE void load_matrix(uint32_t (&r)[4], const void* row, bool transposed) {
  using emulator::MatrixRows;
  if ((uintptr_t)row & 15) emulator::fail("load_matrix: a row that is not aligned to 16 bytes");
  MatrixRows in{(const uint16_t*)row, {}};
  const char* call = transposed ? "load_matrix4_transposed" : "load_matrix4";
  auto* own = emulator::collective(call, &in, sizeof in, [transposed](unsigned char(*slots)[64]) {
    const uint16_t* rows[32];
    for (int lane = 0; lane < 32; lane++) rows[lane] = ((MatrixRows*)slots[lane])->row;
    for (int m = 0; m < 4; m++) {
      int seen[8] = {};
      for (int i = 0; i < 8; i++)
        if (seen[((uintptr_t)rows[8 * m + i] / 16) & 7]++) emulator::block().counts.conflicts++;
    }
    for (int lane = 0; lane < 32; lane++)
      for (int m = 0; m < 4; m++) {
        const uint16_t** M = rows + 8 * m;
        int i = lane / 4, j = 2 * (lane % 4);
        uint32_t& pair = ((MatrixRows*)slots[lane])->r[m];
        if (transposed)
          pair = M[j][i] | uint32_t(M[j + 1][i]) << 16;
        else
          memcpy(&pair, &M[i][j], 4);
      }
    emulator::block().counts.matrix_loads++;
  });
  memcpy(r, ((MatrixRows*)own)->r, 16);
}
DEVICE void load_matrix4(uint32_t (&r)[4], const void* row) { load_matrix(r, row, false); }
DEVICE void load_matrix4_transposed(uint32_t (&r)[4], const void* row) { load_matrix(r, row, true); }

DEVICE void copy_async16(void* to, const void* from, int bytes) {
  if (((uintptr_t)to | (uintptr_t)(bytes ? from : nullptr)) & 15)
    emulator::fail("copy_async16: an address that is not aligned to 16 bytes");
  emulator::Fiber& f = emulator::fiber();
  emulator::block().counts.copied_bytes += bytes;
  if (emulator::block().order == emulator::GREEDY) {
    memset(to, 0, 16);
    memcpy(to, from, bytes);
  } else {
    f.copies.push_back({to, from, bytes, f.group});
  }
}
DEVICE void copy_async_commit() { emulator::fiber().group++; }
template <int N>
DEVICE void copy_async_wait() {
  emulator::Fiber& f = emulator::fiber();
  std::vector<emulator::Copy> left;
  for (emulator::Copy& c : f.copies)
    if (c.group < f.group - N) {
      memset(c.to, 0, 16);
      memcpy(c.to, c.from, c.bytes);
    } else {
      left.push_back(c);
    }
  f.copies.swap(left);
}

DEVICE uint4 load16(const void* p) {
  if ((uintptr_t)p & 15) emulator::fail("load16: an address that is not aligned to 16 bytes");
  uint4 r;
  memcpy(&r, p, 16);
  return r;
}

template <class T>
DEVICE T exchange(T x, int mask) {
  auto* own = emulator::collective("exchange", &x, sizeof x, [mask](unsigned char(*slots)[64]) {
    T all[32];
    for (int lane = 0; lane < 32; lane++) memcpy(&all[lane], slots[lane], sizeof(T));
    for (int lane = 0; lane < 32; lane++) memcpy(slots[lane], &all[lane ^ mask], sizeof(T));
  });
  T y;
  memcpy(&y, own, sizeof y);
  return y;
}

DEVICE void sync_warp() {
  char nothing = 0;
  emulator::collective("sync_warp", &nothing, 1, [](unsigned char(*)[64]) {});
}

DEVICE uint32_t pack_bf16(float low, float high) { return emulator::to_bf16(low) | uint32_t(emulator::to_bf16(high)) << 16; }
DEVICE float bf16_bits_to_float(uint16_t bits) { return emulator::from_bf16(bits); }
DEVICE uint16_t float_to_bf16_bits(float x) { return emulator::to_bf16(x); }
DEVICE float f16_bits_to_float(uint16_t bits) {
  _Float16 half;
  memcpy(&half, &bits, 2);
  return float(half);
}
DEVICE uint16_t float_to_f16_bits(float x) {
  _Float16 half = _Float16(x);
  uint16_t bits;
  memcpy(&bits, &half, 2);
  return bits;
}
DEVICE float exp2_fast(float x) { return exp2f(x); }
DEVICE float log2_fast(float x) { return log2f(x); }
DEVICE float reciprocal_fast(float x) { return 1.0f / x; }
DEVICE uint32_t float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}
DEVICE float bits_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
