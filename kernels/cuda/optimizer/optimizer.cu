// A step of an optimizer, on flat runs of a param and its state.
#include "element.cuh"

// Scalars of a step of AdamW, as kernels/src/adamw.rs derives them.
struct Adamw {
  float keep, beta1, beta2, rest1, rest2, correction, eps, step_size, gradient_scale;
  int32_t lerp_from_end;
};

// torch.optim.AdamW's order of operations.
template <class P>
DEVICE void adamw(const float* gradient, P* param, float* m, float* v, const Adamw& s, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    float g = gradient[i] * s.gradient_scale, p = widen(param[i]) * s.keep, difference = g - m[i];
    float first = s.lerp_from_end ? g - difference * s.rest1 : m[i] + s.rest1 * difference;
    float second = v[i] * s.beta2 + s.rest2 * g * g;
    m[i] = first;
    v[i] = second;
    param[i] = narrow<P>(p + s.step_size * first / (sqrtf(second) / s.correction + s.eps));
  }
}
#define ADAMW(P)                                                                                                         \
  extern "C" __global__ void adamw_##P(const float* gradient, P* param, float* m, float* v, const Adamw s, int64_t n) {    \
    adamw<P>(gradient, param, m, v, s, n);                                                                               \
  }                                                                                                                      \
  EXPORT(adamw_##P)
ADAMW(f32)
ADAMW(bf16)
ADAMW(f16)

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
template <class P>
DEVICE void adamw8bit(const float* gradient, P* param, uint8_t* m_codes, float* m_absmax, uint8_t* v_codes, float* v_absmax,
                      const Map& signed_map, const Map& unsigned_map, const Adamw& s, int64_t n) {
  SHARED(memory);
  int64_t block = blockIdx.x, i = block * THREADS + threadIdx.x;
  bool is_there = i < n;
  float m = 0, v = 0, m_scale = m_absmax[block], v_scale = v_absmax[block];
  if (is_there) {
    float g = gradient[i] * s.gradient_scale;
    m = fmaf(g, s.rest1, signed_map.values[m_codes[i]] * m_scale * s.beta1);
    v = fmaf(g * s.rest2, g, unsigned_map.values[v_codes[i]] * v_scale * s.beta2);
    param[i] = narrow<P>(widen(param[i]) * s.keep + s.step_size * m / (sqrtf(v) / s.correction + s.eps));
  }
  __syncthreads();
  encode(m, is_there, signed_map, m_codes + i, m_absmax + block, (float*)memory);
  encode(v, is_there, unsigned_map, v_codes + i, v_absmax + block, (float*)memory);
}
#define ADAMW8BIT(P)                                                                                                   \
  extern "C" __global__ void adamw8bit_##P(const float* gradient, P* param, uint8_t* m_codes, float* m_absmax,          \
                                           uint8_t* v_codes, float* v_absmax, const Map signed_map,                    \
                                           const Map unsigned_map, const Adamw s, int64_t n) {                         \
    adamw8bit<P>(gradient, param, m_codes, m_absmax, v_codes, v_absmax, signed_map, unsigned_map, s, n);               \
  }                                                                                                                    \
  EXPORT(adamw8bit_##P)
ADAMW8BIT(f32)
ADAMW8BIT(bf16)
ADAMW8BIT(f16)

// Scalars of a step of SGD, as kernels/src/sgd.rs derives them.
struct Sgd {
  float step_size, momentum, of_gradient, of_buffer, weight_decay, gradient_scale;
};

// torch.optim.SGD's order of operations with dampening 0. Without momentum there is no buffer.
template <class P>
DEVICE void sgd(const float* gradient, P* param, float* buffer, const Sgd& s, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    float p = widen(param[i]), g = gradient[i] * s.gradient_scale + s.weight_decay * p;
    if (buffer) {
      float b = buffer[i] * s.momentum + g;
      buffer[i] = b;
      g = s.of_gradient * g + s.of_buffer * b;
    }
    param[i] = narrow<P>(p + s.step_size * g);
  }
}
#define SGD(P)                                                                                                        \
  extern "C" __global__ void sgd_##P(const float* gradient, P* param, float* buffer, const Sgd s, int64_t n) {         \
    sgd<P>(gradient, param, buffer, s, n);                                                                            \
  }                                                                                                                   \
  EXPORT(sgd_##P)
SGD(f32)
SGD(bf16)
SGD(f16)
