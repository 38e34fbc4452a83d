// A step of an optimizer, on flat runs of a param and its state.
#include "element.cuh"

// How a param of bf16 is rounded stochastically: 16 random bits for each element of the whole param, of which the launch has those
// from `first` on (core/interface/src/stochastic.rs).
struct Rounding {
  int32_t stochastic;
  uint32_t key0, key1, name0, name1;
  uint64_t first;
};

template <class P>
DEVICE P round_to(float x, int64_t, const Rounding&, P*) {
  return narrow<P>(x);
}
DEVICE bf16 round_to(float x, int64_t i, const Rounding& r, bf16*) {
  if (!r.stochastic) return narrow<bf16>(x);
  uint64_t at = r.first + (uint64_t)i, block = at / 8;
  Words drawn = philox(r.key0, r.key1, (uint32_t)block, r.name0, r.name1, (uint32_t)(block >> 32));
  uint32_t random = drawn.word[at % 8 / 2] >> (at % 2 * 16) & 0xffff, bits = float_bits(x);
  bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return bf16{(uint16_t)(nan ? bits >> 16 | 0x40 : (bits + random) >> 16)};
}

// Scalars of a step of AdamW, as kernels/src/adamw.rs derives them.
struct Adamw {
  float keep, beta1, beta2, rest1, rest2, correction, eps, step_size, gradient_scale;
  int32_t lerp_from_end;
};

// torch.optim.AdamW's order of operations. Gradients and moments are widened, and moments rounded once.
template <class P, class G, class M>
DEVICE void adamw(const G* gradient, P* param, M* m, M* v, const Adamw& s, const Rounding& r, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    float g = widen(gradient[i]) * s.gradient_scale, p = widen(param[i]) * s.keep, mean = widen(m[i]), difference = g - mean;
    float first = s.lerp_from_end ? g - difference * s.rest1 : mean + s.rest1 * difference;
    float second = widen(v[i]) * s.beta2 + s.rest2 * g * g;
    m[i] = narrow<M>(first);
    v[i] = narrow<M>(second);
    param[i] = round_to(p + s.step_size * first / (sqrtf(second) / s.correction + s.eps), i, r, param);
  }
}
#define ADAMW(P, G, M)                                                                                                       \
  extern "C" __global__ void adamw_##P##_##G##_##M(const G* gradient, P* param, M* m, M* v, const Adamw s, const Rounding r,   \
                                                   int64_t n) {                                                              \
    adamw<P, G, M>(gradient, param, m, v, s, r, n);                                                                          \
  }                                                                                                                          \
  EXPORT(adamw_##P##_##G##_##M)

// bitsandbytes' maps of 8-bit codes: the value of each code, and the code of each of 65536 steps of [-1, 1].
struct Map {
  const float* values;
  const uint8_t* code_of_step;
};

DEVICE int step_of(float x) {
  x = x > -1.0f ? x : -1.0f;
  x = x < 1.0f ? x : 1.0f;
  return (int)fmaf((x + 1.0f) * 0.5f, 65535.0f, 0.5f);
}

// The code of this thread's number, in a block of THREADS; `absmax` gets the largest magnitude. A NaN counts as the smallest number.
DEVICE void encode(float x, bool is_there, const Map& map, uint8_t* code, float* absmax, float* scratch) {
  float most = block_max(is_there ? fabsf(x) : 0.0f, scratch);
  if (threadIdx.x == 0) *absmax = most;
  if (is_there) *code = most == 0 ? 0 : map.code_of_step[step_of(x * (1.0f / most))];
}

// AdamW with moments of 8 bits, a block of THREADS elements a block of the moments: bitsandbytes' AdamW8bit as its CPU code has it,
// with its fused operations.
template <class P, class G>
DEVICE void adamw8bit(const G* gradient, P* param, uint8_t* m_codes, float* m_absmax, uint8_t* v_codes, float* v_absmax,
                      const Map& signed_map, const Map& unsigned_map, const Adamw& s, const Rounding& r, int64_t n) {
  SHARED(memory);
  int64_t block = blockIdx.x, i = block * THREADS + threadIdx.x;
  bool is_there = i < n;
  float m = 0, v = 0, m_scale = m_absmax[block], v_scale = v_absmax[block];
  if (is_there) {
    float g = widen(gradient[i]) * s.gradient_scale;
    m = fmaf(g, s.rest1, signed_map.values[m_codes[i]] * m_scale * s.beta1);
    v = fmaf(g * s.rest2, g, unsigned_map.values[v_codes[i]] * v_scale * s.beta2);
    param[i] = round_to(widen(param[i]) * s.keep + s.step_size * m / (sqrtf(v) / s.correction + s.eps), i, r, param);
  }
  __syncthreads();
  encode(m, is_there, signed_map, m_codes + i, m_absmax + block, (float*)memory);
  encode(v, is_there, unsigned_map, v_codes + i, v_absmax + block, (float*)memory);
}
#define ADAMW8BIT(P, G)                                                                                                   \
  extern "C" __global__ void adamw8bit_##P##_##G(const G* gradient, P* param, uint8_t* m_codes, float* m_absmax,            \
                                                 uint8_t* v_codes, float* v_absmax, const Map signed_map,                  \
                                                 const Map unsigned_map, const Adamw s, const Rounding r, int64_t n) {     \
    adamw8bit<P, G>(gradient, param, m_codes, m_absmax, v_codes, v_absmax, signed_map, unsigned_map, s, r, n);             \
  }                                                                                                                        \
  EXPORT(adamw8bit_##P##_##G)

// Scalars of a step of SGD, as kernels/src/sgd.rs derives them.
struct Sgd {
  float step_size, momentum, of_gradient, of_buffer, weight_decay, gradient_scale;
};

// torch.optim.SGD's order of operations with dampening 0. Without momentum there is no buffer.
template <class P, class G, class M>
DEVICE void sgd(const G* gradient, P* param, M* buffer, const Sgd& s, const Rounding& r, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    float p = widen(param[i]), g = widen(gradient[i]) * s.gradient_scale + s.weight_decay * p;
    if (buffer) {
      float b = widen(buffer[i]) * s.momentum + g;
      buffer[i] = narrow<M>(b);
      g = s.of_gradient * g + s.of_buffer * b;
    }
    param[i] = round_to(p + s.step_size * g, i, r, param);
  }
}
#define SGD(P, G, M)                                                                                                     \
  extern "C" __global__ void sgd_##P##_##G##_##M(const G* gradient, P* param, M* buffer, const Sgd s, const Rounding r,    \
                                                 int64_t n) {                                                            \
    sgd<P, G, M>(gradient, param, buffer, s, r, n);                                                                      \
  }                                                                                                                      \
  EXPORT(sgd_##P##_##G##_##M)

#define OF_STATE(P, G, M) ADAMW(P, G, M) SGD(P, G, M)
#define OF_GRADIENT(P, G) ADAMW8BIT(P, G) OF_STATE(P, G, f32) OF_STATE(P, G, bf16)
#define OF_PARAM(P) OF_GRADIENT(P, f32) OF_GRADIENT(P, bf16)
OF_PARAM(f32)
OF_PARAM(bf16)
OF_PARAM(f16)
