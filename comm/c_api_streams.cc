// Host streams and events of unisono.h.
#include "base/net/event_loop.h"
#include "comm/device_stream.h"
#include "comm/group.h"
#include "comm/handles.h"

using unisono::Code;
using unisono::error;
using unisono::Status;

namespace {

Status need(const void* pointer, const char* name) {
  if (pointer == nullptr) return error(Code::kInvalidArgument, "{}: is null", name);
  // The threads that would complete anything are the parent's.
  if (unisono::net::is_forked_child()) {
    return error(Code::kInvalidUsage, "{}: belongs to the parent of this forked process", name);
  }
  return {};
}

Status not_own_thread(uniStream_t stream, const char* what) {
  if (!stream->stream.on_own_thread()) return {};
  return error(Code::kInvalidUsage, "stream: a host function must not {} its own stream", what);
}

// What CUDA's own calls do on such a stream.
Status on_host(uniStream_t stream, const char* instead) {
  if (stream->stream.device() == nullptr) return {};
  return error(Code::kInvalidUsage, "stream: wraps a CUDA stream; {} does this", instead);
}

Status synchronize(uniStream_t stream) {
  const auto& device = stream->stream.device();
  return device ? device->synchronize() : stream->stream.synchronize();
}

}  // namespace

uniResult_t uniStreamCreate(uniStream_t* stream) {
  const Status status = need(stream, "stream");
  if (status.ok()) *stream = new uniStream;
  return unisono::report(status);
}

uniResult_t uniStreamDestroy(uniStream_t stream) {
  if (stream == nullptr || unisono::net::is_forked_child()) return uniSuccess;
  Status status = not_own_thread(stream, "destroy");
  if (status.ok() && unisono::group_uses(stream->stream)) {
    status = error(Code::kInvalidUsage,
                   "stream: calls on it wait in the open group; destroy it after uniGroupEnd");
  }
  if (!status.ok()) return unisono::report(status);
  if (stream->stream.device() != nullptr) (void)synchronize(stream);
  delete stream;
  return uniSuccess;
}

uniResult_t uniStreamSynchronize(uniStream_t stream) {
  Status status = need(stream, "stream");
  if (status.ok()) status = not_own_thread(stream, "wait for");
  if (status.ok()) status = synchronize(stream);
  return unisono::report(status);
}

uniResult_t uniStreamQuery(uniStream_t stream) {
  const Status status = need(stream, "stream");
  if (!status.ok()) return unisono::report(status);
  if (const auto& device = stream->stream.device()) {
    const unisono::Result<bool> idle = device->idle();
    if (!idle.ok()) return unisono::report(idle.status());
    return *idle ? uniSuccess : uniInProgress;
  }
  return stream->stream.idle() ? uniSuccess : uniInProgress;
}

uniResult_t uniStreamWaitEvent(uniStream_t stream, uniEvent_t event) {
  Status status = need(stream, "stream");
  if (status.ok()) status = need(event, "event");
  if (status.ok()) status = on_host(stream, "cudaStreamWaitEvent");
  if (!status.ok()) return unisono::report(status);
  unisono::StreamWork work;
  work.wait = event->event;
  work.event_record = event->event->last_record();
  return unisono::report(stream->stream.enqueue(std::move(work)));
}

uniResult_t uniStreamLaunchHostFunc(uniStream_t stream, uniHostFn_t fn, void* arg) {
  Status status = need(stream, "stream");
  if (status.ok()) status = need(reinterpret_cast<const void*>(fn), "fn");
  if (status.ok()) status = on_host(stream, "cudaLaunchHostFunc");
  if (!status.ok()) return unisono::report(status);
  unisono::StreamWork work;
  work.host = [fn, arg](const Status& so_far) { fn(arg, static_cast<uniResult_t>(so_far.code())); };
  return unisono::report(stream->stream.enqueue(std::move(work)));
}

uniResult_t uniStreamWrapCuda(uniStream_t* stream, void* cuda_stream) {
  const Status status = [&]() -> Status {
    TRY(need(stream, "stream"));
    *stream = nullptr;
    TRY_ASSIGN(auto device, unisono::DeviceStream::wrap("cuda", cuda_stream));
    *stream = new uniStream(std::move(device));
    return {};
  }();
  return unisono::report(status.annotate("uniStreamWrapCuda (CUDA)"));
}

uniResult_t uniEventCreate(uniEvent_t* event) {
  const Status status = need(event, "event");
  if (status.ok()) *event = new uniEvent;
  return unisono::report(status);
}

uniResult_t uniEventRecord(uniEvent_t event, uniStream_t stream) {
  Status status = need(event, "event");
  if (status.ok()) status = need(stream, "stream");
  if (status.ok()) status = on_host(stream, "cudaEventRecord");
  if (status.ok()) status = stream->stream.record(event->event);
  return unisono::report(status);
}

uniResult_t uniEventQuery(uniEvent_t event) {
  const Status status = need(event, "event");
  if (!status.ok()) return unisono::report(status);
  return event->event->reached(event->event->last_record()) ? uniSuccess : uniInProgress;
}

uniResult_t uniEventSynchronize(uniEvent_t event, int64_t timeout_ms) {
  const Status status = need(event, "event");
  if (!status.ok()) return unisono::report(status);
  if (event->event->wait(event->event->last_record(), timeout_ms)) return uniSuccess;
  return unisono::report(error(Code::kTimeout, "event: not reached within {} ms", timeout_ms));
}

uniResult_t uniEventDestroy(uniEvent_t event) {
  if (!unisono::net::is_forked_child()) delete event;
  return uniSuccess;
}
