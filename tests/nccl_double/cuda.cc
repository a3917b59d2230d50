// The CUDA runtime's side of the double, and its controls.
#include <cstdlib>
#include <utility>

#include "tests/nccl_double/state.h"

namespace unisono::nccl {
namespace nccl_double {
namespace {

thread_local int device = 0;
thread_local CudaResult last_error = kCudaSuccess;

constexpr CudaResult kInvalidValue = static_cast<CudaResult>(1);
constexpr CudaResult kInvalidDevice = static_cast<CudaResult>(101);

CudaResult leave(int code) {
  const auto result = static_cast<CudaResult>(code);
  if (result != kCudaSuccess) last_error = result;
  return result;
}

void work(Stream* stream) {
  State& s = state();
  std::unique_lock lock(s.mutex);
  for (;;) {
    s.changed.wait(lock, [&] { return stream->stop || !stream->queue.empty(); });
    if (stream->queue.empty()) return;
    const auto next = std::move(stream->queue.front());
    stream->queue.pop_front();
    next(lock);
    stream->done++;
    s.changed.notify_all();
  }
}

Stream* start_stream(int on) {
  auto* stream = new Stream(on);
  stream->worker = std::thread(work, stream);
  return stream;
}

// Ok, or a violation: a handle that is none.
template <class Handle>
bool known(const std::set<Handle*>& all, Handle* handle, const char* call) {
  if (all.count(handle) != 0) return true;
  violate(std::string(call) + " of a handle that is none");
  return false;
}

}  // namespace

State& state() {
  static auto* const instance = new State;
  return *instance;
}

int current_device() {
  return device;
}

void violate(const std::string& words) {
  state().violations.push_back(words);
}

int enter_locked(const char* call) {
  State& s = state();
  s.calls[call]++;
  s.changed.notify_all();
  const auto found = s.failures.find(call);
  if (found == s.failures.end() || --found->second.left > 0) return 0;
  const int code = found->second.code;
  s.failures.erase(found);
  return code;
}

int enter(const char* call) {
  const std::lock_guard lock(state().mutex);
  return enter_locked(call);
}

void check_buffer(const char* what, const void* data, size_t bytes) {
  if (bytes == 0 || state().any_buffer) return;
  const auto* const begin = static_cast<const char*>(data);
  for (const auto& [start, size] : state().allocations) {
    if (begin >= start && begin + bytes <= start + size) return;
  }
  violate(std::string(what) + ": a buffer is not within one allocation of the device");
}

Stream* stream_of(Stream* stream) {
  if (stream != nullptr) return stream;
  Stream*& made = state().default_streams[device];
  if (made == nullptr) {
    made = start_stream(device);
    made->worker.detach();
  }
  return made;
}

void push(Stream* stream, std::function<void(std::unique_lock<std::mutex>&)> work) {
  stream->queue.push_back(std::move(work));
  stream->queued++;
  state().changed.notify_all();
}

}  // namespace nccl_double

using namespace nccl_double;

#define ENTER(name)                                      \
  State& s = state();                                    \
  const std::lock_guard lock(s.mutex);                   \
  if (const int code = enter_locked(#name); code != 0) { \
    return leave(code);                                  \
  }

extern "C" {

CudaResult cudaRuntimeGetVersion(int* version) {
  ENTER(cudaRuntimeGetVersion)
  *version = 13000;
  return leave(0);
}

const char* cudaGetErrorString(CudaResult result) {
  return result == kCudaSuccess ? "no error" : "an error of the double's CUDA";
}

CudaResult cudaGetLastError() {
  return std::exchange(last_error, kCudaSuccess);
}

CudaResult cudaGetDeviceCount(int* count) {
  ENTER(cudaGetDeviceCount)
  *count = kDevices;
  return leave(0);
}

CudaResult cudaGetDevice(int* out) {
  ENTER(cudaGetDevice)
  *out = device;
  return leave(0);
}

CudaResult cudaSetDevice(int to) {
  ENTER(cudaSetDevice)
  if (to < 0 || to >= kDevices) return leave(kInvalidDevice);
  device = to;
  return leave(0);
}

CudaResult cudaMalloc(void** pointer, size_t bytes) {
  ENTER(cudaMalloc)
  *pointer = std::calloc(bytes == 0 ? 1 : bytes, 1);
  s.allocations.emplace(static_cast<char*>(*pointer), bytes);
  return leave(0);
}

CudaResult cudaFree(void* pointer) {
  ENTER(cudaFree)
  if (pointer == nullptr) return leave(0);
  if (s.allocations.erase(static_cast<char*>(pointer)) == 0) {
    violate("cudaFree of memory that is none");
    return leave(kInvalidValue);
  }
  std::free(pointer);
  return leave(0);
}

CudaResult cudaStreamCreateWithFlags(Stream** out, unsigned) {
  ENTER(cudaStreamCreateWithFlags)
  *out = start_stream(device);
  s.streams.insert(*out);
  return leave(0);
}

CudaResult cudaStreamDestroy(Stream* stream) {
  {
    ENTER(cudaStreamDestroy)
    if (!known(s.streams, stream, "cudaStreamDestroy")) return leave(kInvalidValue);
    s.streams.erase(stream);
    stream->stop = true;
    s.changed.notify_all();
  }
  stream->worker.join();
  delete stream;
  return leave(0);
}

CudaResult cudaStreamQuery(Stream* given) {
  ENTER(cudaStreamQuery)
  if (given != nullptr && !known(s.streams, given, "cudaStreamQuery")) return leave(kInvalidValue);
  const Stream* const stream = stream_of(given);
  return leave(stream->done == stream->queued ? kCudaSuccess : kCudaNotReady);
}

CudaResult cudaStreamIsCapturing(Stream* given, CaptureStatus* status) {
  ENTER(cudaStreamIsCapturing)
  *status = static_cast<CaptureStatus>(stream_of(given)->capturing ? 1 : 0);
  return leave(0);
}

CudaResult cudaEventCreateWithFlags(Event** out, unsigned) {
  ENTER(cudaEventCreateWithFlags)
  *out = new Event{device, nullptr};
  s.events.insert(*out);
  return leave(0);
}

CudaResult cudaEventDestroy(Event* event) {
  ENTER(cudaEventDestroy)
  if (!known(s.events, event, "cudaEventDestroy")) return leave(kInvalidValue);
  s.events.erase(event);
  delete event;
  return leave(0);
}

CudaResult cudaEventRecord(Event* event, Stream* given) {
  ENTER(cudaEventRecord)
  if (!known(s.events, event, "cudaEventRecord")) return leave(kInvalidValue);
  Stream* const stream = stream_of(given);
  if (event->device != stream->device)
    violate("cudaEventRecord: event and stream differ in device");
  if (stream->capturing) violate("cudaEventRecord on a stream that is being captured");
  event->reached = std::make_shared<bool>(false);
  push(stream, [reached = event->reached](std::unique_lock<std::mutex>&) { *reached = true; });
  return leave(0);
}

CudaResult cudaEventQuery(Event* event) {
  ENTER(cudaEventQuery)
  if (!known(s.events, event, "cudaEventQuery")) return leave(kInvalidValue);
  return leave(event->reached == nullptr || *event->reached ? kCudaSuccess : kCudaNotReady);
}

NcclDoubleLive nccl_double_live() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto size = [](const auto& all) { return static_cast<int>(all.size()); };
  return {size(s.comms),       size(s.streams), size(s.events),
          size(s.allocations), s.ops,           size(s.registrations)};
}

void nccl_double_reset() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.failures.clear();
  s.calls.clear();
  s.violations.clear();
  s.any_buffer = false;
}

void nccl_double_fail(const char* call, int nth, int code) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.failures[call] = {nth, code};
}

int nccl_double_calls(const char* call) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.calls[call];
}

const char* nccl_double_violations() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  static thread_local std::string text;
  text.clear();
  for (const std::string& line : s.violations) text += line + '\n';
  return text.c_str();
}

void nccl_double_any_buffer(int any) {
  const std::lock_guard lock(state().mutex);
  state().any_buffer = any != 0;
}

void nccl_double_hold(Stream* given) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const uint64_t gate = ++s.gates;
  push(stream_of(given), [&s, gate](std::unique_lock<std::mutex>& held) {
    s.changed.wait(held, [&] { return s.gate_opened >= gate; });
  });
}

void nccl_double_open() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.gate_opened = s.gates;
  s.changed.notify_all();
}

void nccl_double_capture(Stream* stream, int capturing) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  stream_of(stream)->capturing = capturing != 0;
}

void nccl_double_await_calls(const char* call, int times) {
  State& s = state();
  std::unique_lock lock(s.mutex);
  const int target = s.calls[call] + times;
  s.changed.wait(lock, [&] { return s.calls[call] >= target; });
}
}

}  // namespace unisono::nccl
