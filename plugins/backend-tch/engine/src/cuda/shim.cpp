// CUDA as libtorch uses it: devices, memory of its allocator, streams of its pool, events.
//
// Every function returns 0, or a code with a text: no exception leaves this file. The structs and
// the table are those of shim.rs.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

namespace {

using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;

enum Code : int32_t { DONE = 0, FAILED = 1, NO_MEMORY = 2 };

// Where a text goes. It is cut to `capacity - 1` bytes, and ends with a zero.
struct Text {
  char* start;
  uint64_t capacity;
};

struct Card {
  char name[256];
  uint64_t total_bytes;
  uint64_t free_bytes;
  int32_t major;
  int32_t minor;
  // As CUDART_VERSION.
  int32_t runtime;
  // Whether a copy from pageable memory may read it after the call: the device uses the host's
  // page tables.
  int32_t reads_pageable_later;
};

struct StreamName {
  int64_t id;
  int32_t device;
  void* native;
};

struct Failure {
  Code code;
  std::string text;
};

int32_t told(Text text, Code code, const char* what) noexcept {
  if (text.capacity > 0) {
    const size_t length = std::min<size_t>(std::strlen(what), text.capacity - 1);
    std::memcpy(text.start, what, length);
    text.start[length] = 0;
  }
  return code;
}

template <class Body>
int32_t guarded(Text text, Body body) noexcept {
  try {
    body();
    return DONE;
  } catch (const Failure& failure) {
    return told(text, failure.code, failure.text.c_str());
  } catch (const c10::OutOfMemoryError& error) {
    return told(text, NO_MEMORY, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return told(text, FAILED, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return told(text, FAILED, error.what());
  } catch (...) {
    return told(text, FAILED, "an exception of an unknown type");
  }
}

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) {
    return;
  }
  // The next call of libtorch on this thread would tell of it again.
  (void)cudaGetLastError();
  const Code code = error == cudaErrorMemoryAllocation ? NO_MEMORY : FAILED;
  throw Failure{code, std::string(call) + ": " + cudaGetErrorString(error)};
}

CUDAStream named(const StreamName& name) {
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(name.device));
  return CUDAStream(CUDAStream::UNCHECKED, c10::Stream(c10::Stream::UNSAFE, device, name.id));
}

// Whether a copy on a stream may read host memory after the call: pinned memory always, other
// memory where the device uses the host's page tables.
bool may_read_later(const void* from, int32_t device) {
  int tables = 0;
  check(
      cudaDeviceGetAttribute(
          &tables, cudaDevAttrPageableMemoryAccessUsesHostPageTables, device),
      "cudaDeviceGetAttribute");
  cudaPointerAttributes found{};
  const cudaError_t error = cudaPointerGetAttributes(&found, from);
  if (error == cudaErrorInvalidValue) {
    (void)cudaGetLastError();
    return tables != 0;
  }
  check(error, "cudaPointerGetAttributes");
  return tables != 0 || found.type != cudaMemoryTypeUnregistered;
}

namespace shim {

int32_t start(int32_t* devices, Text text) {
  return guarded(text, [&] {
    int runtime = 0;
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    if (runtime / 1000 != CUDART_VERSION / 1000) {
      throw Failure{
          FAILED,
          "built for the CUDA runtime " + std::to_string(CUDART_VERSION / 1000) + ", found " +
              std::to_string(runtime / 1000)};
    }
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    *devices = count;
    if (count == 0) {
      return;
    }
    // Fails where libtorch_cuda.so did not register itself.
    at::globalContext().lazyInitDevice(c10::kCUDA);
    // Sums of products are in f32: neither in bf16 nor of operands with fewer bits.
    at::globalContext().setAllowBF16ReductionCuBLAS(false);
    at::globalContext().setAllowFP16ReductionCuBLAS(false);
    at::globalContext().setAllowTF32CuBLAS(false);
  });
}

int32_t card(int32_t device, Card* card, Text text) {
  return guarded(text, [&] {
    const CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    std::memset(card->name, 0, sizeof(card->name));
    const size_t length = strnlen(properties.name, sizeof(card->name) - 1);
    std::memcpy(card->name, properties.name, length);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    card->free_bytes = free_bytes;
    card->total_bytes = total_bytes;
    card->major = properties.major;
    card->minor = properties.minor;
    int runtime = 0;
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    card->runtime = runtime;
    card->reads_pageable_later = properties.pageableMemoryAccessUsesHostPageTables;
  });
}

// Zeros, which are there when it returns.
int32_t alloc(const StreamName* stream, uint64_t bytes, void** address, Text text) {
  return guarded(text, [&] {
    const CUDAGuard guard(static_cast<c10::DeviceIndex>(stream->device));
    const cudaStream_t native = named(*stream).stream();
    void* made = c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, native);
    try {
      check(cudaMemsetAsync(made, 0, bytes, native), "cudaMemsetAsync");
      check(cudaStreamSynchronize(native), "cudaStreamSynchronize");
    } catch (...) {
      c10::cuda::CUDACachingAllocator::raw_delete(made);
      throw;
    }
    *address = made;
  });
}

int32_t release(void* address, Text text) {
  return guarded(text, [&] { c10::cuda::CUDACachingAllocator::raw_delete(address); });
}

int32_t alloc_pinned(int32_t device, uint64_t bytes, void** address, Text text) {
  return guarded(text, [&] {
    const CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    void* made = nullptr;
    check(cudaHostAlloc(&made, bytes, cudaHostAllocPortable), "cudaHostAlloc");
    std::memset(made, 0, bytes);
    *address = made;
  });
}

int32_t release_pinned(void* address, Text text) {
  return guarded(text, [&] { check(cudaFreeHost(address), "cudaFreeHost"); });
}

int32_t stream(int32_t device, StreamName* made, Text text) {
  return guarded(text, [&] {
    const auto index = static_cast<c10::DeviceIndex>(device);
    const CUDAGuard guard(index);
    const CUDAStream of_pool = c10::cuda::getStreamFromPool(false, index);
    *made = StreamName{of_pool.id(), device, of_pool.stream()};
  });
}

// What this thread asks of libtorch goes to the stream.
int32_t enter(const StreamName* stream, Text text) {
  return guarded(text, [&] {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(stream->device));
    c10::cuda::setCurrentCUDAStream(named(*stream));
  });
}

// `kind` is that of cudaMemcpyAsync.
int32_t copy(
    const StreamName* stream,
    const void* from,
    void* to,
    uint64_t bytes,
    int32_t kind,
    Text text) {
  return guarded(text, [&] {
    const CUDAGuard guard(static_cast<c10::DeviceIndex>(stream->device));
    check(
        cudaMemcpyAsync(
            to, from, bytes, static_cast<cudaMemcpyKind>(kind), named(*stream).stream()),
        "cudaMemcpyAsync");
  });
}

// A copy to the device whose host memory may be used again when it returns.
int32_t upload(
    const StreamName* stream, const void* from, void* to, uint64_t bytes, Text text) {
  return guarded(text, [&] {
    const CUDAGuard guard(static_cast<c10::DeviceIndex>(stream->device));
    const cudaStream_t native = named(*stream).stream();
    check(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, native), "cudaMemcpyAsync");
    if (may_read_later(from, stream->device)) {
      check(cudaStreamSynchronize(native), "cudaStreamSynchronize");
    }
  });
}

int32_t synchronize(const StreamName* stream, Text text) {
  return guarded(text, [&] {
    const CUDAGuard guard(static_cast<c10::DeviceIndex>(stream->device));
    check(cudaStreamSynchronize(named(*stream).stream()), "cudaStreamSynchronize");
  });
}

int32_t record(const StreamName* stream, void** event, Text text) {
  return guarded(text, [&] {
    const CUDAGuard guard(static_cast<c10::DeviceIndex>(stream->device));
    cudaEvent_t made = nullptr;
    check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreate");
    const cudaError_t error = cudaEventRecord(made, named(*stream).stream());
    if (error != cudaSuccess) {
      (void)cudaEventDestroy(made);
      check(error, "cudaEventRecord");
    }
    *event = made;
  });
}

int32_t wait(const StreamName* stream, void* event, Text text) {
  return guarded(text, [&] {
    const CUDAGuard guard(static_cast<c10::DeviceIndex>(stream->device));
    check(
        cudaStreamWaitEvent(named(*stream).stream(), static_cast<cudaEvent_t>(event), 0),
        "cudaStreamWaitEvent");
  });
}

int32_t query(void* event, int32_t* complete, Text text) {
  return guarded(text, [&] {
    const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (error == cudaErrorNotReady) {
      (void)cudaGetLastError();
      *complete = 0;
      return;
    }
    check(error, "cudaEventQuery");
    *complete = 1;
  });
}

// Work that was made to wait for it still does.
int32_t free_event(void* event, Text text) {
  return guarded(text, [&] {
    check(cudaEventDestroy(static_cast<cudaEvent_t>(event)), "cudaEventDestroy");
  });
}

// Throws as libtorch does, for tests: what leaves is a code and a text.
int32_t fail(int32_t how, Text text) {
  return guarded(text, [&] {
    TORCH_CHECK_WITH(OutOfMemoryError, how != 1, "asked to have no memory");
    TORCH_CHECK(how != 2, "asked to fail");
    if (how == 3) {
      throw how;
    }
    check(static_cast<cudaError_t>(how == 4 ? cudaErrorInvalidValue : cudaSuccess), "fail");
  });
}

} // namespace shim

struct Table {
  decltype(&shim::start) start = shim::start;
  decltype(&shim::card) card = shim::card;
  decltype(&shim::alloc) alloc = shim::alloc;
  decltype(&shim::release) release = shim::release;
  decltype(&shim::alloc_pinned) alloc_pinned = shim::alloc_pinned;
  decltype(&shim::release_pinned) release_pinned = shim::release_pinned;
  decltype(&shim::stream) stream = shim::stream;
  decltype(&shim::enter) enter = shim::enter;
  decltype(&shim::copy) copy = shim::copy;
  decltype(&shim::upload) upload = shim::upload;
  decltype(&shim::synchronize) synchronize = shim::synchronize;
  decltype(&shim::record) record = shim::record;
  decltype(&shim::wait) wait = shim::wait;
  decltype(&shim::query) query = shim::query;
  decltype(&shim::free_event) free_event = shim::free_event;
  decltype(&shim::fail) fail = shim::fail;
};

} // namespace

extern "C" __attribute__((visibility("default"))) const void* espalier_tch_cuda() {
  static const Table table{};
  return &table;
}
