// A stand-in for the CUDA runtime, linked in its place: a program with the CMake property SHOAL_FAKE_CUDA and
// the sources of this folder. It has exactly the functions that gpu/cuda/ calls.
//
// What it models
//   Memory of a device. The host gets SIGSEGV if it reads or writes it.
//   Streams. What is given to one runs as late as the contract allows: when the host waits for it, or when
//   what the host waits for needs it. Work of several streams runs in an order that the seed draws among the
//   legal ones. Copies to the host overwrite their target when they are given, and again when they run, so
//   that whoever reads it in between gets wrong bytes. Pinned memory, by registration and by allocation.
//   Errors, at any call that a test names: one call fails, or the device is lost with that call. A device
//   that is lost runs nothing any more, and every later call returns an error.
//
// What it checks. A misuse that a real device would punish seldom or late is recorded; see misuses().
//   Work on the default stream; host memory in a copy that is not pinned; a copy by a stream of another
//   device; memory that is freed or unregistered while a copy uses it; memory unregistered twice; an object
//   destroyed twice; a call of the runtime from a host function.
//
// It models the kernels that pack and digest. It does not model those of the caller (see launch), graphs,
// managed memory, peers and several processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace shoal::fake_cuda {

struct Setup {
  uint64_t seed = 1;
  int devices = 2;
  uint64_t device_bytes_max = uint64_t{1} << 32;  // of each device
  uint64_t pinned_bytes_max = uint64_t{1} << 40;  // cudaHostRegister refuses more
  bool driver_is_older = false;                   // than the runtime: cudaGetDeviceCount fails
  bool has_batches = true;                        // false: cudaMemcpyBatchAsync requires a newer driver
};
// Forgets everything, also what leaks. No other thread may use the runtime.
void reset(const Setup& setup = {});

// A failure at the n-th call after this one, counted from 1, over all functions. `error` is a cudaError_t.
void fail_at(uint64_t call, int error);
void lose_device_at(uint64_t call);
void lose_device_now();
bool has_failed();          // whether the failure has happened
std::string failed_call();  // the name of the function that failed; "" if none has
uint64_t calls();           // of all functions since reset
uint64_t calls_of(const std::string& function);

std::vector<std::string> misuses();
// What was made and not given back: streams, events, allocations, registrations.
std::vector<std::string> leaks();
uint64_t registered_bytes();
uint64_t largest_registration();
// Bytes that were copied between devices and the host, and have arrived.
uint64_t bytes_copied();

// Memory of a device, filled with noise.
void* allocate(int device, uint64_t bytes);
void free(void* memory);
// A stream of the caller, as cudaStreamCreate makes it.
void* make_stream(int device);
void destroy_stream(void* stream);
// Access to memory of a device at once, as if a test looked into the device.
void write(void* memory, const void* from, uint64_t bytes);
void read(const void* memory, void* to, uint64_t bytes);
// Work of the caller on its stream, which may use write() and read().
void launch(void* stream, std::function<void()> kernel);
// The n-th launch of the kernel that digests, counted from 1, runs `then` before it, when its stream comes to
// it.
void before_digest(uint64_t n, std::function<void()> then);
// Runs everything that can run, on all streams.
void run_all();

}  // namespace shoal::fake_cuda
