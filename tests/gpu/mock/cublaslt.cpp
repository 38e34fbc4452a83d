// A libcublasLt without a card, for tests: products on the host, queued in the streams of the mock libcuda like kernels.
//
// MOCK_CUBLASLT_BUG  what a backend would do wrong: beta, alpha, leading (dimension), transpose, workspace (that of a matrix), algorithm
//                    (the first one for every product), bias (none), early (before what the stream has to do)
// MOCK_CUBLASLT_OLD  where it is set, the driver is too old for the library, which does not start
// MOCK_CUBLASLT_LEAST  fewest rows, columns and depth of a product that has an algorithm, 1 where unset
// MOCK_CUBLASLT_CALLS  a file that gets a line for each start: the card
//
// What the library forbids is an error here: combinations of types that its documentation does not list, layouts that do not fit,
// addresses and workspaces that the algorithm was not chosen for, another card's context. An algorithm splits the sum where its
// workspace has room, and writes all of the workspace that it asked for.
#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

// `cublasStatus_t`.
enum Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
// `cudaDataType_t`, `cublasComputeType_t`, `cublasOperation_t`, `cublasLtEpilogue_t`.
enum Type { F32 = 0, F16 = 2, BF16 = 14 };
enum Compute { COMPUTE_32F = 68 };
enum Epilogue { EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4 };

// The combinations that are served: those of the table of cublasLtMatmul() in "cuBLAS", section "Using the cuBLASLt API", whose
// compute type is CUBLAS_COMPUTE_32F with a scale of CUDA_R_32F and matrices A and B of CUDA_R_16BF. C and D have one type, which is
// the bias's.
struct Combination {
  Type a, b, c, d;
};
const Combination COMBINATIONS[] = {{BF16, BF16, BF16, BF16}, {BF16, BF16, F32, F32}};

struct Handle {
  int device;
};
struct Operation {
  int compute, scale, transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = EPILOGUE_DEFAULT;
  uint64_t bias = 0;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7, alignment[4] = {256, 256, 256, 256};
};
// `cublasLtMatmulAlgo_t`: which product it is for, the alignment of addresses, the workspace.
struct Algorithm {
  uint64_t magic, product, alignment[4], workspace, unused;
};
static_assert(sizeof(Algorithm) == 64, "cublasLtMatmulAlgo_t");
struct Result {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
constexpr uint64_t MAGIC = 0x6d6f636b6c743133;

// What the mock libcuda offers.
struct Driver {
  int (*device)();
  int (*holds)(uintptr_t, size_t);
  int (*put)(void*, bool (*)(void*), void*);
};
const Driver* driver() {
  static const Driver found = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) return Driver{};
    return Driver{(int (*)())dlsym(library, "mock_cuda_device"), (int (*)(uintptr_t, size_t))dlsym(library, "mock_cuda_holds"),
                  (int (*)(void*, bool (*)(void*), void*))dlsym(library, "mock_cuda_put")};
  }();
  return found.device && found.holds && found.put ? &found : nullptr;
}

bool has_bug(const char* name) {
  const char* bug = getenv("MOCK_CUBLASLT_BUG");
  return bug && !strcmp(bug, name);
}

size_t size_of(int type) { return type == F32 ? 4 : 2; }
float read(int type, const char* at) {
  uint32_t bits = 0;
  if (type == F32) {
    memcpy(&bits, at, 4);
  } else {
    uint16_t half;
    memcpy(&half, at, 2);
    bits = uint32_t(half) << 16;
  }
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
// To the nearest, ties to even.
void write(int type, char* at, float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (type == F32) {
    memcpy(at, &bits, 4);
    return;
  }
  uint16_t half = std::isnan(value) ? 0x7fc0 : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  memcpy(at, &half, 2);
}

struct Shape {
  uint64_t m, n, k;
};
// Whether layouts fit an operation.
bool fits(const Operation& o, const Layout& a, const Layout& b, const Layout& c, const Layout& d, Shape* shape) {
  uint64_t m = o.transpose_a ? a.columns : a.rows, k = o.transpose_a ? a.rows : a.columns;
  uint64_t n = o.transpose_b ? b.rows : b.columns, deep = o.transpose_b ? b.columns : b.rows;
  *shape = Shape{m, n, k};
  for (const Layout* each : {&a, &b, &c, &d})
    if (!each->rows || !each->columns || each->leading < int64_t(each->rows)) return false;
  return k == deep && d.rows == m && d.columns == n && c.rows == m && c.columns == n;
}
bool is_served(const Operation& o, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  if (o.compute != COMPUTE_32F || o.scale != F32) return false;
  if (o.epilogue != EPILOGUE_DEFAULT && o.epilogue != EPILOGUE_BIAS) return false;
  for (const Combination& each : COMBINATIONS)
    if (each.a == a.type && each.b == b.type && each.c == c.type && each.d == d.type) return true;
  return false;
}
// A number for a product (FNV-1a).
uint64_t number(const Operation& o, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  uint64_t hash = 0xcbf29ce484222325;
  auto part = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  part(o.transpose_a), part(o.transpose_b), part(o.epilogue);
  for (const Layout* each : {&a, &b, &c, &d}) part(each->type), part(each->rows), part(each->columns), part(each->leading);
  return hash;
}
size_t bytes_of(const Layout& layout) { return ((layout.columns - 1) * layout.leading + layout.rows) * size_of(layout.type); }

// A product to compute.
struct Task {
  Operation operation;
  Layout a, b, c, d;
  Shape shape;
  const char *at_a, *at_b, *at_c;
  char *at_d, *workspace;
  size_t workspace_bytes;
  float alpha, beta;
};

bool run(void* given) {
  Task* t = (Task*)given;
  if (has_bug("workspace")) {
    t->workspace = (char*)t->at_a;
    t->workspace_bytes = t->workspace_bytes < bytes_of(t->a) ? t->workspace_bytes : bytes_of(t->a);
  }
  if (has_bug("leading")) t->a.leading -= 8;
  if (has_bug("beta")) t->beta = 0;
  if (has_bug("alpha")) t->alpha = 1;
  if (t->workspace_bytes) memset(t->workspace, 0xff, t->workspace_bytes);
  bool flips = has_bug("transpose");
  // A column of an operand, widened once.
  size_t size_a = bytes_of(t->a) / size_of(t->a.type);
  std::vector<float> a(t->shape.m * t->shape.k), b(t->shape.k);
  for (uint64_t i = 0; i < t->shape.m; i++)
    for (uint64_t k = 0; k < t->shape.k; k++) {
      size_t at = (t->operation.transpose_a != 0) != flips ? i * t->a.leading + k : k * t->a.leading + i;
      a[i * t->shape.k + k] = read(t->a.type, t->at_a + at % size_a * size_of(t->a.type));
    }
  for (uint64_t j = 0; j < t->shape.n; j++) {
    for (uint64_t k = 0; k < t->shape.k; k++) {
      size_t at = t->operation.transpose_b ? k * t->b.leading + j : j * t->b.leading + k;
      b[k] = read(t->b.type, t->at_b + at * size_of(t->b.type));
    }
    for (uint64_t i = 0; i < t->shape.m; i++) {
      double sum = 0;
      for (uint64_t k = 0; k < t->shape.k; k++) sum += double(a[i * t->shape.k + k]) * b[k];
      sum *= t->alpha;
      size_t at_c = (j * t->c.leading + i) * size_of(t->c.type);
      if (t->beta != 0) sum += double(t->beta) * read(t->c.type, t->at_c + at_c);
      if (t->operation.epilogue == EPILOGUE_BIAS && !has_bug("bias"))
        sum += read(t->d.type, (const char*)t->operation.bias + i * size_of(t->d.type));
      write(t->d.type, t->at_d + (j * t->d.leading + i) * size_of(t->d.type), float(sum));
    }
  }
  delete t;
  return true;
}

int refused(const char* why) {
  fprintf(stderr, "mock libcublasLt: %s\n", why);
  return INVALID_VALUE;
}

template <class T>
int set(T* field, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return INVALID_VALUE;
  return memcpy(field, value, bytes), SUCCESS;
}

}  // namespace

extern "C" {

int cublasLtGetProperty(int which, int* value) {
  const int version[] = {13, 0, 2};
  if (which < 0 || which > 2) return INVALID_VALUE;
  return *value = version[which], SUCCESS;
}
int cublasLtCreate(Handle** handle) {
  if (!driver() || driver()->device() < 0 || getenv("MOCK_CUBLASLT_OLD")) return NOT_INITIALIZED;
  int device = driver()->device();
  if (const char* calls = getenv("MOCK_CUBLASLT_CALLS")) std::ofstream(calls, std::ios::app) << std::to_string(device) + "\n";
  return *handle = new Handle{device}, SUCCESS;
}
int cublasLtDestroy(Handle* handle) { return delete handle, SUCCESS; }

int cublasLtMatmulDescCreate(Operation** made, int compute, int scale) {
  return *made = new Operation{compute, scale}, SUCCESS;
}
int cublasLtMatmulDescDestroy(Operation* operation) { return delete operation, SUCCESS; }
int cublasLtMatmulDescSetAttribute(Operation* operation, int attribute, const void* value, size_t bytes) {
  switch (attribute) {
    case 3: return set(&operation->transpose_a, value, bytes);
    case 4: return set(&operation->transpose_b, value, bytes);
    case 7: return set(&operation->epilogue, value, bytes);
    case 8: return set(&operation->bias, value, bytes);
    default: return NOT_SUPPORTED;
  }
}
int cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  return *made = new Layout{type, rows, columns, leading}, SUCCESS;
}
int cublasLtMatrixLayoutDestroy(Layout* layout) { return delete layout, SUCCESS; }
int cublasLtMatmulPreferenceCreate(Preference** made) { return *made = new Preference, SUCCESS; }
int cublasLtMatmulPreferenceDestroy(Preference* preference) { return delete preference, SUCCESS; }
int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value, size_t bytes) {
  switch (attribute) {
    case 1: return set(&preference->workspace, value, bytes);
    case 3: return set(&preference->reductions, value, bytes);
    case 5: case 6: case 7: case 8: return set(&preference->alignment[attribute - 5], value, bytes);
    default: return NOT_SUPPORTED;
  }
}

int cublasLtMatmulAlgoGetHeuristic(Handle* handle, Operation* operation, Layout* a, Layout* b, Layout* c, Layout* d,
                                   Preference* preference, int wanted, Result* results, int* count) {
  *count = 0;
  if (!handle || driver()->device() != handle->device) return refused("the context of another card is current");
  Shape shape;
  if (wanted < 1 || !fits(*operation, *a, *b, *c, *d, &shape)) return refused("layouts do not fit");
  if (operation->epilogue == EPILOGUE_BIAS && !operation->bias) return refused("no bias");
  const char* least = getenv("MOCK_CUBLASLT_LEAST");
  uint64_t extent = least ? strtoull(least, nullptr, 10) : 1;
  if (shape.m < extent || shape.n < extent || shape.k < extent) return NOT_SUPPORTED;
  if (!is_served(*operation, *a, *b, *c, *d)) return NOT_SUPPORTED;
  size_t parts = 2 * shape.m * shape.n * 4;
  Algorithm made{MAGIC, number(*operation, *a, *b, *c, *d), {}, parts <= preference->workspace ? parts : 0, 0};
  for (int i = 0; i < 4; i++) made.alignment[i] = preference->alignment[i];
  static Algorithm first = made;
  if (has_bug("algorithm")) made = first;
  *results = Result{made, made.workspace, SUCCESS, 1, {}};
  return *count = 1, SUCCESS;
}

int cublasLtMatmul(Handle* handle, Operation* operation, const float* alpha, const char* at_a, Layout* a, const char* at_b, Layout* b,
                   const float* beta, const char* at_c, Layout* c, char* at_d, Layout* d, const Algorithm* algorithm, char* workspace,
                   size_t workspace_bytes, void* stream) {
  if (!handle || driver()->device() != handle->device) return refused("the context of another card is current");
  Shape shape;
  if (!fits(*operation, *a, *b, *c, *d, &shape)) return refused("layouts do not fit");
  if (!is_served(*operation, *a, *b, *c, *d)) return NOT_SUPPORTED;
  if (!algorithm || algorithm->magic != MAGIC) return refused("no algorithm");
  if (algorithm->product != number(*operation, *a, *b, *c, *d)) return refused("an algorithm of another product");
  const char* addresses[] = {at_a, at_b, at_c, at_d};
  const Layout* layouts[] = {a, b, c, d};
  for (int i = 0; i < 4; i++) {
    uintptr_t at = (uintptr_t)addresses[i];
    if (at % algorithm->alignment[i]) return refused("an address that is less aligned than was said");
    if (!driver()->holds(at, bytes_of(*layouts[i]))) return refused("a matrix outside of memory");
  }
  if (operation->epilogue == EPILOGUE_BIAS)
    if (operation->bias % 16 || !driver()->holds(operation->bias, shape.m * size_of(d->type))) return refused("a bias outside of memory");
  if (workspace_bytes < algorithm->workspace) return refused("too little workspace");
  if (algorithm->workspace && ((uintptr_t)workspace % 256 || !driver()->holds((uintptr_t)workspace, workspace_bytes)))
    return refused("a workspace that is not aligned, or outside of memory");
  if (!stream) return refused("the default stream");
  Task* task = new Task{*operation, *a, *b, *c, *d, shape, at_a, at_b, at_c, at_d, workspace, algorithm->workspace, *alpha, *beta};
  if (has_bug("early")) return run(task), SUCCESS;
  return driver()->put(stream, run, task) ? SUCCESS : INVALID_VALUE;
}
}
