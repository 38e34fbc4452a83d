// A libcuda without a card, for tests: memory of the host, kernels of the emulator, and streams whose work runs when it must, as early
// as it can, or by chance.
//
// MOCK_CUDA_ORDER    late (default): work runs when somebody waits for it; early: as soon as what it waits for is done; or the seed of
//                    an order by chance
// MOCK_CUDA_THREADS  forward (default), backward, shuffled or greedy: the order of a block's threads
// MOCK_CUDA_DEVICES  cards, 1 where unset
// MOCK_CUDA_VERSION  the version of CUDA that the driver serves, 13000 for 13.0 where unset
// MOCK_CUDA_MEMORY   bytes of each, 1 GiB where unset
// MOCK_CUDA_CARD     compute capability, 8.0 where unset
// MOCK_CUDA_LARGEST  bytes above which device memory is refused
// MOCK_CUDA_PINNED   bytes above which host memory is not pinned, nor registered
// MOCK_CUDA_FAIL     the number of the launch that fails
// MOCK_CUDA_SHARED   bytes of shared memory of each multiprocessor, 228 KiB where unset
// MOCK_CUDA_CALLS    a file that gets a line with counts when the library is closed
//
// What a driver forbids is an error here: no current context, copies beyond memory, launches beyond the limits of sm_80, memory that is
// freed twice. Memory begins as NaNs, and lies before a page that nothing may touch.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace {

enum Result {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  INVALID_IMAGE = 200,
  NEWER_TEXT = 222,
  INVALID_CONTEXT = 201,
  ALREADY_REGISTERED = 712,
  NOT_REGISTERED = 713,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  INVALID_DEVICE = 101,
  LAUNCH_FAILED = 719,
};

using Kernel = void (*)(void**);
using Launch = const char* (*)(Kernel, void**, const unsigned*, const unsigned*, size_t, int, uint32_t, void*);

struct Context {
  int device = 0;
  // The first failure, which every later call gives again.
  int failed = 0;
};
struct Event;
struct Stream;
// Work that several streams do together, as the mock libnccl gives it.
struct Meeting {
  // At the head of its stream: 1 once the work is done, 0 where it waits for others, -1 where it failed.
  int (*come)(void*);
  // A stream that has not come so far, or none where its work is not put yet.
  void* (*missing)(void*);
  void* of;
};
struct Task {
  std::function<bool()> run;
  // An event that must be complete first.
  std::shared_ptr<Event> after;
  std::shared_ptr<Meeting> meeting = nullptr;
};
struct Event {
  Stream* stream = nullptr;
  // The number of tasks of its stream that must be done.
  uint64_t point = 0;
};
struct Stream {
  Context* context = nullptr;
  std::deque<Task> tasks;
  uint64_t put = 0, done = 0;
};
struct Module {
  void* library = nullptr;
};
struct Function {
  Kernel kernel = nullptr;
  const size_t* sizes = nullptr;
  Launch launch = nullptr;
  int shared_limit = 48 << 10;
  std::string name;
};
struct Allocation {
  size_t bytes, mapped;
  void* base;
  int device;
};
// The begin of a text of the mock compiler's.
const char PTX[] = "mock PTX ";
struct Counts {
  uint64_t launches = 0, allocations = 0, copies = 0, registrations = 0, syncs = 0;
};

struct Mock {
  std::recursive_mutex lock;
  std::vector<std::unique_ptr<Context>> contexts;
  std::map<uintptr_t, Allocation> memory;
  std::map<uintptr_t, size_t> pinned;
  std::map<uintptr_t, Allocation> host;
  std::vector<Stream*> streams;
  std::map<void*, std::shared_ptr<Event>> events;
  // The opened library of each image.
  std::map<std::string, void*> images;
  // Bytes of each device that are taken, and the most that were.
  size_t used[16] = {}, most[16] = {};
  bool started = false;
  std::mt19937 chance{1};
  Counts counts;
};
Mock& mock() {
  static Mock* the_mock = new Mock;
  return *the_mock;
}
thread_local Context* current = nullptr;

const char* setting(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value && *value ? value : otherwise;
}
bool is_early() { return !strcmp(setting("MOCK_CUDA_ORDER", "late"), "early"); }
bool is_late() { return !strcmp(setting("MOCK_CUDA_ORDER", "late"), "late"); }
int thread_order() {
  const char* order = setting("MOCK_CUDA_THREADS", "forward");
  return !strcmp(order, "backward") ? 1 : !strcmp(order, "shuffled") ? 2 : !strcmp(order, "greedy") ? 3 : 0;
}
int device_count() { return atoi(setting("MOCK_CUDA_DEVICES", "1")); }
size_t number(const char* name, const char* otherwise) { return strtoull(setting(name, otherwise), nullptr, 10); }
size_t device_bytes() { return number("MOCK_CUDA_MEMORY", "1073741824"); }
bool is_refused(const char* bound, size_t bytes) { return bytes > number(bound, "18446744073709551615"); }

bool is_complete(const Event& event) { return !event.stream || event.stream->done >= event.point; }

// Runs the first task of a stream where it may run.
bool step(Stream& stream) {
  if (stream.tasks.empty()) return false;
  Task task = stream.tasks.front();
  if (task.after && !is_complete(*task.after)) return false;
  int& failed = stream.context->failed;
  if (task.meeting && failed == SUCCESS) {
    int came = task.meeting->come(task.meeting->of);
    if (!came) return false;
    if (came < 0) failed = LAUNCH_FAILED;
  }
  stream.tasks.pop_front();
  if (task.run && failed == SUCCESS && !task.run()) failed = LAUNCH_FAILED;
  stream.done++;
  return true;
}

// Streams that wait for one another in a ring, which no program ends.
constexpr int MOST_WAITS = 1000;

// Runs a stream until `point`, and what it waits for. Returns whether it came there: else it waits for work that is not put yet.
bool run_until(Stream& stream, uint64_t point, int waits = 0) {
  Mock& m = mock();
  if (waits > MOST_WAITS) return false;
  while (stream.done < point) {
    if (!is_late() && !is_early()) {
      // By chance: any stream that can go on, beginning with some.
      size_t count = m.streams.size(), first = m.chance() % count, tries = 0;
      while (tries < count && !step(*m.streams[(first + tries) % count])) tries++;
      if (tries == count) return false;
      continue;
    }
    if (step(stream)) continue;
    // Work of a group that is given up is never put.
    if (stream.tasks.empty()) return false;
    Task& front = stream.tasks.front();
    if (std::shared_ptr<Event> after = front.after; after && !is_complete(*after)) {
      if (!run_until(*after->stream, after->point, waits + 1)) return false;
      continue;
    }
    std::shared_ptr<Meeting> meeting = front.meeting;
    Stream* missing = meeting ? (Stream*)meeting->missing(meeting->of) : nullptr;
    if (!missing || !run_until(*missing, missing->done + 1, waits + 1)) return false;
  }
  return true;
}

// The same, however long it takes other threads to put what is waited for. The caller holds the lock once.
void wait_until(Stream& stream, uint64_t point) {
  while (!run_until(stream, point)) {
    mock().lock.unlock();
    usleep(100);
    mock().lock.lock();
  }
}

void put(Stream& stream, Task task) {
  stream.tasks.push_back(std::move(task));
  stream.put++;
  if (!is_early()) return;
  for (bool ran = true; ran;) {
    ran = false;
    for (Stream* each : mock().streams)
      while (step(*each)) ran = true;
  }
}

// All work that can be done without work that is not put yet.
void drain() {
  std::vector<Stream*> all = mock().streams;
  for (Stream* each : all) run_until(*each, each->put);
}

// The allocation that holds `bytes` bytes at `address`, if there is one.
const Allocation* device_memory(uintptr_t address, size_t bytes) {
  auto& memory = mock().memory;
  auto next = memory.upper_bound(address);
  if (next == memory.begin()) return nullptr;
  auto found = std::prev(next);
  return address + bytes <= found->first + found->second.bytes ? &found->second : nullptr;
}
bool is_pinned(uintptr_t address, size_t bytes) {
  auto& pinned = mock().pinned;
  auto next = pinned.upper_bound(address);
  if (next == pinned.begin()) return false;
  auto found = std::prev(next);
  return address + bytes <= found->first + found->second;
}

// Memory of NaNs that ends at a page which nothing may touch, begun at a multiple of 64.
Allocation guarded(size_t bytes, uintptr_t* address, int fill) {
  size_t page = 4096, len = (bytes + 63) / 64 * 64, mapped = (len + page - 1) / page * page + page;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return Allocation{0, 0, nullptr, 0};
  mprotect((char*)base + mapped - page, page, PROT_NONE);
  *address = (uintptr_t)base + mapped - page - len;
  if (fill) memset((void*)*address, fill, len);
  return Allocation{bytes, mapped, base, 0};
}

struct Entry {
  std::lock_guard<std::recursive_mutex> held{mock().lock};
};
// Every call but the first ones needs a current context, and gives an earlier failure again.
#define ENTER                                    \
  Entry entry;                                   \
  if (!mock().started) return NOT_INITIALIZED;   \
  if (!current) return INVALID_CONTEXT;          \
  if (current->failed != SUCCESS) return current->failed;

struct Report {
  ~Report() {
    const char* path = getenv("MOCK_CUDA_CALLS");
    if (!path) return;
    if (FILE* file = fopen(path, "a")) {
      Counts& c = mock().counts;
      fprintf(file, "{\"launches\": %lu, \"allocations\": %lu, \"copies\": %lu, \"registrations\": %lu, \"syncs\": %lu, \"live\": %zu, \"most\": %zu}\n",
              c.launches, c.allocations, c.copies, c.registrations, c.syncs, mock().memory.size(), mock().most[0]);
      fclose(file);
    }
  }
} report_at_end;

}  // namespace

extern "C" {

int cuInit(unsigned) {
  Entry entry;
  Mock& m = mock();
  if (!m.started) {
    for (int i = 0; i < device_count(); i++) {
      m.contexts.emplace_back(new Context);
      m.contexts.back()->device = i;
    }
    m.chance.seed(unsigned(atoi(setting("MOCK_CUDA_ORDER", "1"))));
    m.started = true;
  }
  return m.contexts.empty() ? 100 : SUCCESS;
}
int cuDriverGetVersion(int* version) { return *version = atoi(setting("MOCK_CUDA_VERSION", "13000")), SUCCESS; }
int cuGetErrorName(int error, const char** text) {
  static const std::map<int, const char*> names = {
      {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},     {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"}, {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
      {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},     {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
      {100, "CUDA_ERROR_NO_DEVICE"}};
  auto found = names.find(error);
  *text = found == names.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
  return SUCCESS;
}
int cuGetErrorString(int error, const char** text) { return cuGetErrorName(error, text); }
int cuDeviceGetCount(int* count) { return *count = device_count(), SUCCESS; }
int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= device_count()) return INVALID_DEVICE;
  return *device = ordinal, SUCCESS;
}
int cuDeviceGetName(char* name, int len, int device) {
  snprintf(name, size_t(len), "Mock %d without a card", device);
  return SUCCESS;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 75: *value = atoi(setting("MOCK_CUDA_CARD", "8.0")); break;                   // compute capability, major
    case 76: *value = atoi(strchr(setting("MOCK_CUDA_CARD", "8.0"), '.') + 1); break;  // minor
    case 16: *value = 4; break;          // multiprocessors
    case 97: *value = 99 << 10; break;   // shared memory of a block, opted in
    case 81: *value = atoi(setting("MOCK_CUDA_SHARED", "233472")); break;  // shared memory of a multiprocessor
    case 41: *value = 1; break;          // unified addressing
    default: *value = 0;
  }
  return SUCCESS;
}
int cuDevicePrimaryCtxRetain(Context** context, int device) {
  Entry entry;
  if (device < 0 || device >= int(mock().contexts.size())) return INVALID_DEVICE;
  return *context = mock().contexts[size_t(device)].get(), SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
int cuCtxSetCurrent(Context* context) { return current = context, SUCCESS; }
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER
  *total = device_bytes();
  *free = *total - mock().used[current->device];
  return SUCCESS;
}
int cuMemAlloc_v2(uintptr_t* address, size_t bytes) {
  ENTER
  Mock& m = mock();
  if (!bytes) return INVALID_VALUE;
  if (m.used[current->device] + bytes > device_bytes() || is_refused("MOCK_CUDA_LARGEST", bytes)) return OUT_OF_MEMORY;
  Allocation made = guarded(bytes, address, 0xff);
  if (!made.base) return OUT_OF_MEMORY;
  made.device = current->device;
  m.used[current->device] += bytes;
  m.most[current->device] = std::max(m.most[current->device], m.used[current->device]);
  m.memory[*address] = made;
  m.counts.allocations++;
  return SUCCESS;
}
int cuMemFree_v2(uintptr_t address) {
  ENTER
  Mock& m = mock();
  auto found = m.memory.find(address);
  if (found == m.memory.end()) return INVALID_VALUE;
  drain();
  munmap(found->second.base, found->second.mapped);
  m.used[found->second.device] -= found->second.bytes;
  m.memory.erase(found);
  return SUCCESS;
}
int cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  ENTER
  if (is_refused("MOCK_CUDA_PINNED", bytes)) return OUT_OF_MEMORY;
  uintptr_t at;
  Allocation made = guarded(bytes, &at, 0xff);
  if (!made.base) return OUT_OF_MEMORY;
  mock().host[at] = made;
  mock().pinned[at] = bytes;
  return *address = (void*)at, SUCCESS;
}
int cuMemFreeHost(void* address) {
  ENTER
  Mock& m = mock();
  auto found = m.host.find((uintptr_t)address);
  if (found == m.host.end()) return INVALID_VALUE;
  drain();
  munmap(found->second.base, found->second.mapped);
  m.host.erase(found);
  m.pinned.erase((uintptr_t)address);
  return SUCCESS;
}
int cuMemHostRegister_v2(void* address, size_t bytes, unsigned) {
  ENTER
  if (is_refused("MOCK_CUDA_PINNED", bytes)) return OUT_OF_MEMORY;
  if (is_pinned((uintptr_t)address, 1)) return ALREADY_REGISTERED;
  mock().pinned[(uintptr_t)address] = bytes;
  mock().counts.registrations++;
  return SUCCESS;
}
int cuMemHostUnregister(void* address) {
  ENTER
  return mock().pinned.erase((uintptr_t)address) ? SUCCESS : NOT_REGISTERED;
}
int cuMemcpyHtoDAsync_v2(uintptr_t to, const void* from, size_t bytes, Stream* stream) {
  ENTER
  if (!device_memory(to, bytes)) return INVALID_VALUE;
  mock().counts.copies++;
  if (is_pinned((uintptr_t)from, bytes)) {
    put(*stream, {[=] { return memcpy((void*)to, from, bytes), true; }, nullptr});
  } else {
    // Pageable memory is read before the call returns.
    auto staged = std::make_shared<std::vector<char>>((const char*)from, (const char*)from + bytes);
    put(*stream, {[=] { return memcpy((void*)to, staged->data(), bytes), true; }, nullptr});
  }
  return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void* to, uintptr_t from, size_t bytes, Stream* stream) {
  ENTER
  if (!device_memory(from, bytes)) return INVALID_VALUE;
  mock().counts.copies++;
  put(*stream, {[=] { return memcpy(to, (void*)from, bytes), true; }, nullptr});
  return SUCCESS;
}
int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, Stream* stream) {
  ENTER
  if (!device_memory(from, bytes) || !device_memory(to, bytes)) return INVALID_VALUE;
  mock().counts.copies++;
  put(*stream, {[=] { return memmove((void*)to, (void*)from, bytes), true; }, nullptr});
  return SUCCESS;
}
int cuMemsetD8Async(uintptr_t to, unsigned char value, size_t bytes, Stream* stream) {
  ENTER
  if (!device_memory(to, bytes)) return INVALID_VALUE;
  put(*stream, {[=] { return memset((void*)to, value, bytes), true; }, nullptr});
  return SUCCESS;
}
int cuStreamCreate(Stream** stream, unsigned) {
  ENTER
  *stream = new Stream;
  (*stream)->context = current;
  mock().streams.push_back(*stream);
  return SUCCESS;
}
int cuStreamDestroy_v2(Stream* stream) {
  ENTER
  wait_until(*stream, stream->put);
  auto& streams = mock().streams;
  for (size_t i = 0; i < streams.size(); i++)
    if (streams[i] == stream) {
      // Events may name it.
      streams.erase(streams.begin() + long(i));
      return SUCCESS;
    }
  return INVALID_HANDLE;
}
int cuStreamSynchronize(Stream* stream) {
  ENTER
  mock().counts.syncs++;
  wait_until(*stream, stream->put);
  return stream->context->failed;
}
int cuStreamWaitEvent(Stream* stream, void* event, unsigned) {
  ENTER
  auto found = mock().events.find(event);
  if (found == mock().events.end()) return INVALID_HANDLE;
  put(*stream, {nullptr, std::make_shared<Event>(*found->second)});
  return SUCCESS;
}
int cuEventCreate(void** event, unsigned) {
  ENTER
  auto made = std::make_shared<Event>();
  *event = made.get();
  mock().events[*event] = made;
  return SUCCESS;
}
int cuEventRecord(void* event, Stream* stream) {
  ENTER
  auto found = mock().events.find(event);
  if (found == mock().events.end()) return INVALID_HANDLE;
  found->second->stream = stream;
  found->second->point = stream->put;
  return SUCCESS;
}
int cuEventQuery(void* event) {
  ENTER
  auto found = mock().events.find(event);
  if (found == mock().events.end()) return INVALID_HANDLE;
  Event& of = *found->second;
  if (is_complete(of)) return current->failed;
  // Time passes between queries.
  for (int i = 0; i < 64 && !is_complete(of) && run_until(*of.stream, of.stream->done + 1); i++) {
  }
  return current->failed != SUCCESS ? current->failed : is_complete(of) ? SUCCESS : NOT_READY;
}
int cuEventDestroy_v2(void* event) {
  ENTER
  return mock().events.erase(event) ? SUCCESS : INVALID_HANDLE;
}
int cuModuleLoadData(Module** module, const void* image) {
  ENTER
  // A text of the mock compiler's: its version, and digits of the bytes that it would have given otherwise.
  std::string made;
  const char* text = (const char*)image;
  if (const size_t begin = sizeof PTX - 1; !strncmp(text, PTX, begin)) {
    if (strtoull(text + begin, nullptr, 10) > number("MOCK_CUDA_VERSION", "13000")) return NEWER_TEXT;
    text = strchr(text + begin, ' ') + 1;
    for (; *text; text += 2) made += char(std::stoi(std::string(text, 2), nullptr, 16));
  }
  const unsigned char* elf = (const unsigned char*)(made.empty() ? image : made.data());
  if (memcmp(elf, "\177ELF", 4)) return INVALID_IMAGE;
  uint64_t sections;
  uint16_t size, count;
  memcpy(&sections, elf + 40, 8);
  memcpy(&size, elf + 58, 2);
  memcpy(&count, elf + 60, 2);
  std::string bytes((const char*)elf, sections + size_t(size) * count);
  // A library is opened once and stays open: its file's number names it.
  auto& images = mock().images;
  auto found = images.find(bytes);
  if (found == images.end()) {
    int file = memfd_create("kernel", 0);
    for (size_t done = 0; done < bytes.size();) {
      ssize_t wrote = write(file, bytes.data() + done, bytes.size() - done);
      if (wrote <= 0) return INVALID_IMAGE;
      done += size_t(wrote);
    }
    void* library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      fprintf(stderr, "mock libcuda: %s\n", dlerror());
      return INVALID_IMAGE;
    }
    found = images.emplace(bytes, library).first;
  }
  *module = new Module{found->second};
  return SUCCESS;
}
int cuModuleUnload(Module* module) {
  ENTER
  drain();
  delete module;
  return SUCCESS;
}
int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  ENTER
  std::string text = name;
  Kernel kernel = (Kernel)dlsym(module->library, ("emulator_kernel_" + text).c_str());
  auto sizes = (const size_t* (*)())dlsym(module->library, ("emulator_sizes_" + text).c_str());
  Launch launch = (Launch)dlsym(module->library, "emulator_launch");
  if (!kernel || !sizes || !launch) return NOT_FOUND;
  *function = new Function;
  (*function)->kernel = kernel;
  (*function)->sizes = sizes();
  (*function)->launch = launch;
  (*function)->name = text;
  return SUCCESS;
}
int cuFuncSetAttribute(Function* function, int attribute, int value) {
  ENTER
  if (attribute == 9) return value < 0 || value > 100 ? INVALID_VALUE : SUCCESS;  // share of shared memory, in percent
  if (attribute != 8 || value > 99 << 10) return INVALID_VALUE;                   // dynamic shared memory
  return function->shared_limit = value, SUCCESS;
}
int cuLaunchKernel(Function* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   Stream* stream, void** parameters, void**) {
  ENTER
  if (!gx || !gy || !gz || gx > 0x7fffffffu || gy > 65535 || gz > 65535) return INVALID_VALUE;
  if (!bx || !by || !bz || bx * by * bz > 1024 || int(shared) > f->shared_limit) return INVALID_VALUE;
  auto values = std::make_shared<std::vector<std::vector<char>>>();
  size_t bytes = 0;
  for (size_t i = 0; f->sizes[i]; i++) {
    bytes += f->sizes[i];
    values->emplace_back((const char*)parameters[i], (const char*)parameters[i] + f->sizes[i]);
  }
  if (bytes > 4096) return INVALID_VALUE;
  mock().counts.launches++;
  uint32_t seed = uint32_t(mock().counts.launches);
  Function by_value = *f;
  put(*stream, {[=] {
                  std::vector<void*> arguments;
                  for (auto& value : *values) arguments.push_back(value.data());
                  unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
                  const char* why = seed == number("MOCK_CUDA_FAIL", "0") ? "MOCK_CUDA_FAIL asks for it"
                                    : by_value.launch(by_value.kernel, arguments.data(), grid, block, shared, thread_order(), seed, nullptr);
                  if (why) fprintf(stderr, "mock libcuda: kernel %s: %s\n", by_value.name.c_str(), why);
                  return !why;
                },
                nullptr});
  return SUCCESS;
}

// For the mock libcublasLt and libnccl: the number of the current context's card or -1, whether a card has this memory, and work for a stream.
int mock_cuda_device() { return current ? current->device : -1; }
int mock_cuda_holds(uintptr_t address, size_t bytes) {
  Entry entry;
  return device_memory(address, bytes) != nullptr;
}
int mock_cuda_put(Stream* stream, bool (*run)(void*), void* task) {
  Entry entry;
  if (stream->context->failed != SUCCESS) return 0;
  mock().counts.launches++;
  put(*stream, {[=] { return run(task); }, nullptr});
  return 1;
}
// For the mock libnccl: work that several streams do together, as in Meeting; and the lock of all work, held while `body` runs.
int mock_cuda_meet(Stream* stream, int (*come)(void*), void* (*missing)(void*), void* of) {
  Entry entry;
  if (stream->context->failed != SUCCESS) return 0;
  mock().counts.launches++;
  put(*stream, {nullptr, nullptr, std::make_shared<Meeting>(Meeting{come, missing, of})});
  return 1;
}
void mock_cuda_locked(void (*body)(void*), void* of) {
  Entry entry;
  body(of);
}
}
