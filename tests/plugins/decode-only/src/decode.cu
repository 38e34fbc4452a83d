// The value of each code.
__constant__ float TABLE[8] = {-1.0f, -0.5783f, -0.3202f, 0.0f, 0.2123f, 0.4418f, 0.6923f, 1.0f};

// 16 codes of 3 bits fill 6 bytes, and share the scale of a block of 64.
DEVICE void decode_elements(const Segments& segments, const Shape&, uint64_t first, int count, float* values) {
  const uint8_t* bytes = segments.start[0] + first / 8 * 3;
  float scale = number<f32>(segments.start[1], first / 64);
  uint64_t codes = 0;
  for (int k = 0; k < 6; k++) codes |= (uint64_t)bytes[k] << (8 * k);
  for (int k = 0; k < count; k++) values[k] = TABLE[codes >> (3 * k) & 7] * scale;
}
