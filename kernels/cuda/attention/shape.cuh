// The shape of an attention and what a query sees, as the host gives it to every kernel.
#pragma once
#include "device.cuh"

struct Shape {
  int32_t heads, kv_heads, width, causal;
  // Tokens back that a query sees, itself included; 0 for all.
  int32_t window;
  float scale;
  // 0 for none.
  float softcap;
};
