#include "tests/gpu/fake_cuda/fake_cuda.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include "gpu/kernels/emulate.h"
#include "gpu/kernels/launch.h"

namespace {

struct Operation {
  enum class Kind { work, host_function, record, wait } kind = Kind::work;
  std::function<void()> run;
  std::shared_ptr<bool> reached;  // by a record: what a wait waits for
  const std::byte* host = nullptr;
  uint64_t host_bytes = 0;
  const std::byte* device = nullptr;
};
struct FakeStream {
  int device = 0;
  bool is_default = false, is_blocking = true;
  std::deque<Operation> operations;
};
struct FakeEvent {
  int device = 0;
  std::shared_ptr<bool> reached;  // whether a stream has come to the newest recording; nullptr: there is none
};
struct DeviceMemory {
  int device = 0;
  uint64_t bytes = 0, mapped_bytes = 0;
  std::byte* shadow = nullptr;  // the same pages, for the fake
};

struct Fake {
  shoal::fake_cuda::Setup setup;
  std::recursive_mutex mutex;
  std::mt19937_64 random{1};
  uint64_t calls = 0;
  std::map<std::string, uint64_t> calls_of;
  uint64_t fails_at = 0;
  int error = 0;
  bool loses_device = false, is_lost = false;
  std::string failed_call;
  std::vector<std::string> misuses;
  std::map<int, std::unique_ptr<FakeStream>> default_streams;
  std::map<void*, std::unique_ptr<FakeStream>> streams;
  std::set<void*> shoals_streams;
  std::map<void*, std::unique_ptr<FakeEvent>> events;
  std::map<const std::byte*, DeviceMemory> memory;
  std::set<const std::byte*> shoals_memory;                    // on devices
  std::map<const std::byte*, uint64_t> registered, allocated;  // bytes, by begin
  uint64_t largest_registration = 0;
  uint64_t bytes_copied = 0;
  uint64_t digests_until_hook = 0;
  std::function<void()> hook;
};

Fake& fake() {
  static Fake* const one = new Fake;
  return *one;
}
thread_local int current_device = 0;
thread_local bool is_in_host_function = false;

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

void misuse(std::string what) {
  fake().misuses.push_back(std::move(what));
}

// Counts the call. An error: the call fails with it.
cudaError_t begin_call(const char* name) {
  Fake& f = fake();
  if (is_in_host_function) misuse(text(name, " in a host function"));
  ++f.calls;
  ++f.calls_of[name];
  if (f.fails_at != 0 && f.calls == f.fails_at) {
    f.failed_call = name;
    if (f.loses_device) f.is_lost = true;
    if (!f.loses_device) return static_cast<cudaError_t>(f.error);
  }
  return f.is_lost ? cudaErrorDevicesUnavailable : cudaSuccess;
}

FakeStream* stream_of(cudaStream_t handle) {
  Fake& f = fake();
  if (handle == nullptr || handle == cudaStreamLegacy) {
    auto& stream = f.default_streams[current_device];
    if (stream == nullptr) {
      stream = std::make_unique<FakeStream>();
      stream->device = current_device;
      stream->is_default = true;
    }
    return stream.get();
  }
  const auto found = f.streams.find(handle);
  return found == f.streams.end() ? nullptr : found->second.get();
}

FakeEvent* event_of(cudaEvent_t handle) {
  const auto found = fake().events.find(handle);
  return found == fake().events.end() ? nullptr : found->second.get();
}

// The device memory that all these bytes lie in.
const std::pair<const std::byte* const, DeviceMemory>* device_memory(const void* at, uint64_t bytes) {
  const auto* begin = static_cast<const std::byte*>(at);
  auto after = fake().memory.upper_bound(begin);
  if (after == fake().memory.begin()) return nullptr;
  const auto& found = *std::prev(after);
  const auto offset = static_cast<uint64_t>(begin - found.first);
  return offset < found.second.bytes && bytes <= found.second.bytes - offset ? &found : nullptr;
}

std::byte* shadow_of(const void* at) {
  const auto* memory = device_memory(at, 1);
  return memory == nullptr ? nullptr
                           : memory->second.shadow + (static_cast<const std::byte*>(at) - memory->first);
}

bool is_pinned(const std::map<const std::byte*, uint64_t>& ranges, const void* at, uint64_t bytes) {
  const auto* begin = static_cast<const std::byte*>(at);
  auto after = ranges.upper_bound(begin);
  if (after == ranges.begin()) return false;
  const auto& [from, size] = *std::prev(after);
  const auto offset = static_cast<uint64_t>(begin - from);
  return offset < size && bytes <= size - offset;
}

bool touches_pinned(const void* at, uint64_t bytes) {
  const auto* begin = static_cast<const std::byte*>(at);
  for (const auto& [from, size] : fake().registered) {
    if (begin < from + size && from < begin + bytes) return true;
  }
  return false;
}

bool can_run(const FakeStream& stream) {
  if (stream.operations.empty()) return false;
  const Operation& next = stream.operations.front();
  return next.kind != Operation::Kind::wait || next.reached == nullptr || *next.reached;
}

void run_one(FakeStream& stream) {
  Operation next = std::move(stream.operations.front());
  stream.operations.pop_front();
  if (next.kind == Operation::Kind::record) *next.reached = true;
  if (next.run) {
    is_in_host_function = next.kind == Operation::Kind::host_function;
    next.run();
    is_in_host_function = false;
  }
}

std::vector<FakeStream*> runnable() {
  std::vector<FakeStream*> out;
  for (auto& [handle, stream] : fake().streams) {
    if (can_run(*stream)) out.push_back(stream.get());
  }
  for (auto& [device, stream] : fake().default_streams) {
    if (can_run(*stream)) out.push_back(stream.get());
  }
  std::ranges::sort(out, {}, [](FakeStream* s) { return std::pair(s->device, s->operations.size()); });
  return out;
}

// Runs operations in a random legal order until `is_done`.
template <class Done>
cudaError_t run_until(Done&& is_done) {
  Fake& f = fake();
  while (!is_done()) {
    if (f.is_lost) return cudaErrorDevicesUnavailable;
    const std::vector<FakeStream*> ready = runnable();
    if (ready.empty()) {
      misuse("a wait that nothing can end");
      return cudaErrorUnknown;
    }
    run_one(*ready[f.random() % ready.size()]);
  }
  return cudaSuccess;
}

// A fault that is reported by a call that waits has happened before, on the device.
cudaError_t lose_if(cudaError_t error) {
  if (error != cudaSuccess) fake().is_lost = true;
  return error;
}

struct Transfer {
  const char* call;
  void* target;
  const void* source;
  uint64_t row_bytes = 0, rows = 1, source_stride = 0, target_stride = 0;
  cudaMemcpyKind kind = cudaMemcpyDefault;
};

uint64_t extent(uint64_t row_bytes, uint64_t rows, uint64_t stride) {
  return rows == 0 ? 0 : (rows - 1) * stride + row_bytes;
}

cudaError_t check_transfer(const Transfer& t, const FakeStream& stream) {
  if (t.kind != cudaMemcpyDeviceToHost && t.kind != cudaMemcpyHostToDevice)
    return cudaErrorInvalidMemcpyDirection;
  const bool to_host = t.kind == cudaMemcpyDeviceToHost;
  const uint64_t source_bytes = extent(t.row_bytes, t.rows, t.source_stride);
  const uint64_t target_bytes = extent(t.row_bytes, t.rows, t.target_stride);
  const void* const on_device = to_host ? t.source : t.target;
  const void* const on_host = to_host ? t.target : t.source;
  const auto* memory = device_memory(on_device, to_host ? source_bytes : target_bytes);
  if (memory == nullptr) return cudaErrorInvalidValue;
  if (!stream.is_default && !fake().shoals_streams.contains(const_cast<FakeStream*>(&stream))) {
    return cudaSuccess;  // a copy of the caller
  }
  if (memory->second.device != stream.device) misuse(text(t.call, " by a stream of another device"));
  if (stream.is_default || stream.is_blocking)
    misuse(text(t.call, " on a stream that is the default one or waits for it"));
  const uint64_t host_bytes = to_host ? target_bytes : source_bytes;
  if (is_pinned(fake().allocated, on_host, host_bytes)) return cudaSuccess;
  if (is_pinned(fake().registered, on_host, host_bytes)) return cudaSuccess;
  if (touches_pinned(on_host, host_bytes)) return cudaErrorInvalidValue;
  misuse(text(t.call, " with host memory that is not pinned"));
  return cudaSuccess;
}

void run_transfer(const Transfer& t) {
  const bool to_host = t.kind == cudaMemcpyDeviceToHost;
  const uint64_t bytes = extent(t.row_bytes, t.rows, to_host ? t.source_stride : t.target_stride);
  if (device_memory(to_host ? t.source : t.target, bytes) == nullptr) {
    return misuse(text(t.call, ": device memory was freed before the copy ran"));
  }
  for (uint64_t row = 0; row < t.rows; ++row) {
    const auto* source = static_cast<const std::byte*>(t.source) + row * t.source_stride;
    auto* target = static_cast<std::byte*>(t.target) + row * t.target_stride;
    std::memcpy(to_host ? target : shadow_of(target), to_host ? shadow_of(source) : source, t.row_bytes);
  }
  fake().bytes_copied += t.row_bytes * t.rows;
}

cudaError_t give(const Transfer& t, cudaStream_t handle) {
  FakeStream* const stream = stream_of(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (t.row_bytes == 0 || t.rows == 0) return cudaSuccess;
  if (const cudaError_t error = check_transfer(t, *stream); error != cudaSuccess) return error;
  const bool to_host = t.kind == cudaMemcpyDeviceToHost;
  Operation operation;
  operation.run = [t] { run_transfer(t); };
  operation.host = static_cast<const std::byte*>(to_host ? t.target : t.source);
  operation.host_bytes = extent(t.row_bytes, t.rows, to_host ? t.target_stride : t.source_stride);
  operation.device = static_cast<const std::byte*>(to_host ? t.source : t.target);
  if (to_host && is_pinned(fake().registered, t.target, operation.host_bytes)) {
    for (uint64_t row = 0; row < t.rows; ++row) {
      std::memset(static_cast<std::byte*>(t.target) + row * t.target_stride, 0xDB, t.row_bytes);
    }
  }
  stream->operations.push_back(std::move(operation));
  return cudaSuccess;
}

// Records a misuse if an operation that has not run yet uses the host memory.
void check_unused(const char* call, const std::byte* begin, uint64_t bytes) {
  if (fake().is_lost) return;
  for (const auto& [handle, stream] : fake().streams) {
    for (const Operation& operation : stream->operations) {
      if (operation.host_bytes != 0 && operation.host < begin + bytes &&
          begin < operation.host + operation.host_bytes) {
        return misuse(text(call, " of memory that a copy uses"));
      }
    }
  }
}

}  // namespace

namespace shoal::fake_cuda {

void reset(const Setup& setup) {
  Fake& f = fake();
  std::lock_guard lock(f.mutex);
  for (auto& [at, memory] : f.memory) {
    ::munmap(const_cast<std::byte*>(at), memory.mapped_bytes);
    ::munmap(memory.shadow, memory.mapped_bytes);
  }
  for (auto& [at, bytes] : f.allocated) std::free(const_cast<std::byte*>(at));
  f.setup = setup;
  f.random.seed(setup.seed);
  f.calls = f.fails_at = f.bytes_copied = f.largest_registration = 0;
  f.calls_of.clear();
  f.digests_until_hook = 0;
  f.loses_device = f.is_lost = false;
  f.failed_call.clear();
  f.misuses.clear();
  f.default_streams.clear();
  f.streams.clear();
  f.shoals_streams.clear();
  f.events.clear();
  f.memory.clear();
  f.shoals_memory.clear();
  f.registered.clear();
  f.allocated.clear();
  current_device = 0;
}

void fail_at(uint64_t call, int error) {
  std::lock_guard lock(fake().mutex);
  fake().fails_at = fake().calls + call;
  fake().error = error;
  fake().loses_device = false;
}

void lose_device_at(uint64_t call) {
  std::lock_guard lock(fake().mutex);
  fake().fails_at = fake().calls + call;
  fake().loses_device = true;
}

void lose_device_now() {
  std::lock_guard lock(fake().mutex);
  fake().is_lost = true;
}

bool has_failed() {
  std::lock_guard lock(fake().mutex);
  return !fake().failed_call.empty();
}

std::string failed_call() {
  std::lock_guard lock(fake().mutex);
  return fake().failed_call;
}

uint64_t calls() {
  std::lock_guard lock(fake().mutex);
  return fake().calls;
}

uint64_t calls_of(const std::string& function) {
  std::lock_guard lock(fake().mutex);
  return fake().calls_of[function];
}

std::vector<std::string> misuses() {
  std::lock_guard lock(fake().mutex);
  return fake().misuses;
}

std::vector<std::string> leaks() {
  std::lock_guard lock(fake().mutex);
  std::vector<std::string> out;
  for (void* const stream : fake().shoals_streams) out.push_back(text("stream ", stream));
  for (const auto& [event, state] : fake().events) out.push_back(text("event ", event));
  for (const std::byte* const at : fake().shoals_memory) {
    out.push_back(text(fake().memory[at].bytes, " bytes of a device"));
  }
  for (const auto& [at, bytes] : fake().registered) out.push_back(text(bytes, " registered bytes"));
  for (const auto& [at, bytes] : fake().allocated) out.push_back(text(bytes, " pinned bytes"));
  return out;
}

uint64_t registered_bytes() {
  std::lock_guard lock(fake().mutex);
  uint64_t sum = 0;
  for (const auto& [at, bytes] : fake().registered) sum += bytes;
  return sum;
}

uint64_t largest_registration() {
  std::lock_guard lock(fake().mutex);
  return fake().largest_registration;
}

uint64_t bytes_copied() {
  std::lock_guard lock(fake().mutex);
  return fake().bytes_copied;
}

void* allocate(int device, uint64_t bytes) {
  std::lock_guard lock(fake().mutex);
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t mapped = (std::max<uint64_t>(bytes, 1) + page - 1) / page * page;
  const int fd = ::memfd_create("fake-device", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(mapped)) != 0) std::abort();
  void* const at = ::mmap(nullptr, mapped, PROT_NONE, MAP_SHARED, fd, 0);
  void* const shadow = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (at == MAP_FAILED || shadow == MAP_FAILED) std::abort();
  std::memset(shadow, 0xA7, mapped);
  fake().memory[static_cast<std::byte*>(at)] = {device, bytes, mapped, static_cast<std::byte*>(shadow)};
  return at;
}

void free(void* memory) {
  std::lock_guard lock(fake().mutex);
  const auto found = fake().memory.find(static_cast<std::byte*>(memory));
  if (found == fake().memory.end()) return misuse("device memory was freed twice");
  ::munmap(memory, found->second.mapped_bytes);
  ::munmap(found->second.shadow, found->second.mapped_bytes);
  fake().memory.erase(found);
}

void* make_stream(int device) {
  std::lock_guard lock(fake().mutex);
  auto stream = std::make_unique<FakeStream>();
  stream->device = device;
  void* const handle = stream.get();
  fake().streams[handle] = std::move(stream);
  return handle;
}

void destroy_stream(void* stream) {
  std::lock_guard lock(fake().mutex);
  fake().streams.erase(stream);
}

void write(void* memory, const void* from, uint64_t bytes) {
  std::lock_guard lock(fake().mutex);
  if (bytes == 0) return;
  if (device_memory(memory, bytes) == nullptr) return misuse("a test writes beyond device memory");
  std::memcpy(shadow_of(memory), from, bytes);
}

void read(const void* memory, void* to, uint64_t bytes) {
  std::lock_guard lock(fake().mutex);
  if (bytes == 0) return;
  if (device_memory(memory, bytes) == nullptr) return misuse("a test reads beyond device memory");
  std::memcpy(to, shadow_of(memory), bytes);
}

void launch(void* stream, std::function<void()> kernel) {
  std::lock_guard lock(fake().mutex);
  Operation operation;
  operation.run = std::move(kernel);
  stream_of(static_cast<cudaStream_t>(stream))->operations.push_back(std::move(operation));
}

void before_digest(uint64_t n, std::function<void()> then) {
  std::lock_guard lock(fake().mutex);
  fake().digests_until_hook = n;
  fake().hook = std::move(then);
}

void run_all() {
  std::lock_guard lock(fake().mutex);
  (void)run_until([] { return runnable().empty(); });
}

}  // namespace shoal::fake_cuda

// --- the functions of the runtime ---

#define FAKE_CALL(name)               \
  std::lock_guard lock(fake().mutex); \
  if (const cudaError_t injected = begin_call(name); injected != cudaSuccess) return injected

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  FAKE_CALL("cudaGetDeviceCount");
  if (fake().setup.driver_is_older) return cudaErrorInsufficientDriver;
  if (fake().setup.devices == 0) return cudaErrorNoDevice;
  *count = fake().setup.devices;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  FAKE_CALL("cudaGetDevice");
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  FAKE_CALL("cudaSetDevice");
  if (device < 0 || device >= fake().setup.devices) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorDevicesUnavailable:
      return "cudaErrorDevicesUnavailable";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    default:
      return "an error of the fake";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "the fake refuses";
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  FAKE_CALL("cudaStreamCreateWithFlags");
  auto stream = std::make_unique<FakeStream>();
  stream->device = current_device;
  stream->is_blocking = (flags & cudaStreamNonBlocking) == 0;
  *out = reinterpret_cast<cudaStream_t>(stream.get());
  fake().shoals_streams.insert(stream.get());
  fake().streams[stream.get()] = std::move(stream);
  return cudaSuccess;
}

// What a trainer calls.
cudaError_t cudaStreamCreate(cudaStream_t* out) {
  *out = static_cast<cudaStream_t>(shoal::fake_cuda::make_stream(current_device));
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** out, size_t bytes) {
  *out = shoal::fake_cuda::allocate(current_device, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  shoal::fake_cuda::free(memory);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  std::lock_guard lock(fake().mutex);
  const cudaError_t injected = begin_call("cudaStreamDestroy");
  FakeStream* const stream = stream_of(handle);
  if (stream == nullptr || stream->is_default) {
    misuse("a stream was destroyed twice");
    return cudaErrorInvalidResourceHandle;
  }
  const bool has_work = std::ranges::any_of(stream->operations, [](const Operation& operation) {
    return operation.kind == Operation::Kind::work || operation.kind == Operation::Kind::host_function;
  });
  if (has_work && !fake().is_lost) misuse("a stream was destroyed before its copies had ended");
  fake().shoals_streams.erase(handle);
  fake().streams.erase(handle);
  return injected;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  std::lock_guard lock(fake().mutex);
  if (const cudaError_t injected = lose_if(begin_call("cudaStreamSynchronize")); injected != cudaSuccess) {
    return injected;
  }
  FakeStream* const stream = stream_of(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->is_default) misuse("the default stream was synchronised");
  return run_until([stream] { return stream->operations.empty(); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  FAKE_CALL("cudaStreamWaitEvent");
  FakeStream* const stream = stream_of(handle);
  FakeEvent* const event = event_of(event_handle);
  if (stream == nullptr || event == nullptr) return cudaErrorInvalidResourceHandle;
  Operation operation;
  operation.kind = Operation::Kind::wait;
  operation.reached = event->reached;
  stream->operations.push_back(std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  FAKE_CALL("cudaEventCreateWithFlags");
  if ((flags & cudaEventDisableTiming) == 0) misuse("an event keeps times");
  auto event = std::make_unique<FakeEvent>();
  event->device = current_device;
  *out = reinterpret_cast<cudaEvent_t>(event.get());
  fake().events[event.get()] = std::move(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  FAKE_CALL("cudaEventRecord");
  FakeStream* const stream = stream_of(stream_handle);
  FakeEvent* const event = event_of(handle);
  if (stream == nullptr || event == nullptr || stream->device != event->device) {
    return cudaErrorInvalidResourceHandle;
  }
  Operation operation;
  operation.kind = Operation::Kind::record;
  operation.reached = event->reached = std::make_shared<bool>(false);
  stream->operations.push_back(std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  std::lock_guard lock(fake().mutex);
  if (const cudaError_t injected = lose_if(begin_call("cudaEventSynchronize")); injected != cudaSuccess) {
    return injected;
  }
  FakeEvent* const event = event_of(handle);
  if (event == nullptr) return cudaErrorInvalidResourceHandle;
  const std::shared_ptr<bool> reached = event->reached;
  return run_until([&reached] { return reached == nullptr || *reached; });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  std::lock_guard lock(fake().mutex);
  const cudaError_t injected = begin_call("cudaEventDestroy");
  FakeEvent* const event = event_of(handle);
  if (event == nullptr) {
    misuse("an event was destroyed twice");
    return cudaErrorInvalidResourceHandle;
  }
  fake().events.erase(handle);
  return injected;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  FAKE_CALL("cudaMemcpyAsync");
  return give({"cudaMemcpyAsync", target, source, bytes, 1, bytes, bytes, kind}, stream);
}

cudaError_t cudaMemcpy2DAsync(void* target, size_t target_stride, const void* source, size_t source_stride,
                              size_t row_bytes, size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  FAKE_CALL("cudaMemcpy2DAsync");
  if (target_stride < row_bytes || source_stride < row_bytes) return cudaErrorInvalidPitchValue;
  if (target_stride > INT32_MAX || source_stride > INT32_MAX) return cudaErrorInvalidPitchValue;
  return give({"cudaMemcpy2DAsync", target, source, row_bytes, rows, source_stride, target_stride, kind},
              stream);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void* const* targets, const void* const* sources, const size_t* sizes,
                                 size_t count, cudaMemcpyAttributes* attributes, size_t* first,
                                 size_t numbers, cudaStream_t stream) {
#elif CUDART_VERSION >= 12080
cudaError_t cudaMemcpyBatchAsync(void** targets, void** sources, size_t* sizes, size_t count,
                                 cudaMemcpyAttributes* attributes, size_t* first, size_t numbers, size_t*,
                                 cudaStream_t stream) {
#endif
#if CUDART_VERSION >= 12080
  FAKE_CALL("cudaMemcpyBatchAsync");
  if (!fake().setup.has_batches) return cudaErrorCallRequiresNewerDriver;
  if (stream == nullptr || stream == cudaStreamLegacy) return cudaErrorInvalidResourceHandle;
  if (count == 0 || numbers != 1 || first[0] != 0) return cudaErrorInvalidValue;
  if (attributes[0].srcAccessOrder != cudaMemcpySrcAccessOrderStream) {
    misuse("a batch reads its sources before its turn");
  }
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  std::ranges::shuffle(order, fake().random);  // the copies of a batch have no order
  for (const size_t i : order) {
    if (sizes[i] == 0) return cudaErrorInvalidValue;
    const bool to_host = device_memory(sources[i], 1) != nullptr;
    const cudaError_t given = give({"cudaMemcpyBatchAsync", targets[i], sources[i], sizes[i], 1, sizes[i],
                                    sizes[i], to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice},
                                   stream);
    if (given != cudaSuccess) return given;
  }
  return cudaSuccess;
}
#endif

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  FAKE_CALL("cudaLaunchHostFunc");
  FakeStream* const stream = stream_of(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  Operation operation;
  operation.kind = Operation::Kind::host_function;
  operation.run = [function, argument] { function(argument); };
  stream->operations.push_back(std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  FAKE_CALL("cudaHostRegister");
  if (touches_pinned(memory, bytes)) {
    misuse("memory was registered twice");
    return cudaErrorHostMemoryAlreadyRegistered;
  }
  if (shoal::fake_cuda::registered_bytes() + bytes > fake().setup.pinned_bytes_max) {
    return cudaErrorMemoryAllocation;
  }
  fake().registered[static_cast<std::byte*>(memory)] = bytes;
  fake().largest_registration = std::max<uint64_t>(fake().largest_registration, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* memory) {
  std::lock_guard lock(fake().mutex);
  const cudaError_t injected = begin_call("cudaHostUnregister");
  const auto found = fake().registered.find(static_cast<std::byte*>(memory));
  if (found == fake().registered.end()) {
    misuse("memory was unregistered that is not registered");
    return cudaErrorHostMemoryNotRegistered;
  }
  check_unused("cudaHostUnregister", found->first, found->second);
  fake().registered.erase(found);
  return injected;
}

cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t handle) {
  FAKE_CALL("cudaMallocAsync");
  FakeStream* const stream = stream_of(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  *out = shoal::fake_cuda::allocate(stream->device, bytes);
  fake().shoals_memory.insert(static_cast<std::byte*>(*out));
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t handle) {
  std::lock_guard lock(fake().mutex);
  const cudaError_t injected = begin_call("cudaFreeAsync");
  FakeStream* const stream = stream_of(handle);
  if (stream == nullptr || fake().shoals_memory.erase(static_cast<std::byte*>(memory)) == 0) {
    misuse("memory of a device was freed twice, or on no stream");
    return cudaErrorInvalidValue;
  }
  Operation operation;
  operation.kind = Operation::Kind::record;  // the stream may be destroyed before it comes to it
  operation.reached = std::make_shared<bool>(false);
  operation.run = [memory] { shoal::fake_cuda::free(memory); };
  stream->operations.push_back(std::move(operation));
  return injected;
}

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) {
  FAKE_CALL("cudaHostAlloc");
  auto* const memory = static_cast<std::byte*>(std::malloc(bytes));
  fake().allocated[memory] = bytes;
  *out = memory;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  std::lock_guard lock(fake().mutex);
  const cudaError_t injected = begin_call("cudaFreeHost");
  const auto found = fake().allocated.find(static_cast<std::byte*>(memory));
  if (found == fake().allocated.end()) {
    misuse("pinned memory was freed twice");
    return cudaErrorInvalidValue;
  }
  check_unused("cudaFreeHost", found->first, found->second);
  fake().allocated.erase(found);
  std::free(memory);
  return injected;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* at) {
  FAKE_CALL("cudaPointerGetAttributes");
  *attributes = {};
  const auto* memory = device_memory(at, 1);
  attributes->type = memory == nullptr ? cudaMemoryTypeUnregistered : cudaMemoryTypeDevice;
  attributes->device = memory == nullptr ? -2 : memory->second.device;
  return cudaSuccess;
}

}  // extern "C"

// --- the kernels that gpu/cuda/ launches, gpu/kernels/launch.h ---

int shoal::gpu::launch_row_copies(const RowCopyList& list, CUstream_st* handle) {
  FAKE_CALL("cudaLaunchKernel");
  FakeStream* const stream = stream_of(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  Operation operation;
  operation.run = [list] {
    for (uint32_t i = 0; i < list.count; ++i) {
      const RowCopy& piece = list.pieces[i];
      for (uint64_t row = 0; row < piece.rows; ++row) {
        const std::byte* const source = piece.source + row * piece.source_stride;
        std::byte* const target = piece.target + row * piece.target_stride;
        const auto* from = device_memory(source, piece.row_bytes);
        const auto* to = device_memory(target, piece.row_bytes);
        if (from == nullptr || to == nullptr || from->second.device != to->second.device) {
          return misuse("a kernel reads or writes beyond the memory of its device");
        }
        std::memcpy(shadow_of(target), shadow_of(source), piece.row_bytes);
      }
    }
  };
  stream->operations.push_back(std::move(operation));
  return cudaSuccess;
}

int shoal::gpu::launch_digests(const DigestList& list, uint64_t* leaf_hashes, uint64_t* digests,
                               CUstream_st* handle) {
  FAKE_CALL("cudaLaunchKernel");
  FakeStream* const stream = stream_of(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  Operation operation;
  std::function<void()> hook;
  if (fake().digests_until_hook != 0 && --fake().digests_until_hook == 0) hook = std::move(fake().hook);
  operation.run = [list, leaf_hashes, digests, hook] {
    if (hook) hook();
    DigestList in_shadow = list;
    bool is_valid = device_memory(leaf_hashes, list.leaves * sizeof(uint64_t)) != nullptr &&
                    device_memory(digests, list.blocks * sizeof(uint64_t)) != nullptr;
    for (uint32_t i = 0; i < list.count; ++i) {
      is_valid = is_valid && device_memory(list.pieces[i].source, list.pieces[i].bytes) != nullptr;
      in_shadow.pieces[i].source = shadow_of(list.pieces[i].source);
    }
    if (!is_valid) return misuse("a kernel reads or writes beyond the memory of its device");
    emulate_digests({in_shadow.pieces, list.count, list.leaves, list.blocks},
                    reinterpret_cast<uint64_t*>(shadow_of(leaf_hashes)),
                    reinterpret_cast<uint64_t*>(shadow_of(digests)), fake().setup.seed);
  };
  stream->operations.push_back(std::move(operation));
  return cudaSuccess;
}
