#include "transports/nccl/nccl_runtime.h"

#include <cstring>

#include "transports/nccl/library.h"
#include "transports/nccl/nccl_provider.h"

namespace unisono {
namespace nccl {
namespace {

class Mark : public DeviceMark {
 public:
  Mark(const Library& library, Event* event) : library_(library), event_(event) {}
  ~Mark() override { (void)library_.functions().cudaEventDestroy(event_); }

  Status record(DeviceQueue queue) override {
    const auto stream = static_cast<Stream*>(queue);
    return library_.check(library_.functions().cudaEventRecord(event_, stream), "cudaEventRecord");
  }

  Result<bool> reached() override {
    const CudaResult result = library_.functions().cudaEventQuery(event_);
    if (result == kCudaSuccess) return true;
    if (Status status = library_.check(result, "cudaEventQuery"); result != kCudaNotReady) {
      return status;
    }
    return false;
  }

 private:
  const Library& library_;
  Event* event_;
};

class Runtime : public DeviceRuntime {
 public:
  explicit Runtime(const Library& library) : library_(library), f_(library.functions()) {}

  int32_t version() const override { return library_.version(); }
  std::string describe() const override { return library_.describe(); }
  bool can_split() const override { return f_.ncclCommSplit != nullptr; }

  Result<int32_t> current_device() override {
    int device = 0;
    TRY(library_.check(f_.cudaGetDevice(&device), "cudaGetDevice"));
    return device;
  }
  Status use_device(int32_t device) override {
    return library_.check(f_.cudaSetDevice(device), "cudaSetDevice");
  }
  Result<int32_t> device_count() override {
    int count = 0;
    TRY(library_.check(f_.cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
    return count;
  }

  Result<std::unique_ptr<DeviceMark>> make_mark() override {
    Event* event = nullptr;
    TRY(library_.check(f_.cudaEventCreateWithFlags(&event, kEventDisableTiming),
                       "cudaEventCreateWithFlags"));
    return std::unique_ptr<DeviceMark>(new Mark(library_, event));
  }
  Result<DeviceQueue> make_queue() override {
    Stream* stream = nullptr;
    TRY(library_.check(f_.cudaStreamCreateWithFlags(&stream, kStreamDefault),
                       "cudaStreamCreateWithFlags"));
    return static_cast<DeviceQueue>(stream);
  }
  Status destroy_queue(DeviceQueue queue) override {
    return library_.check(f_.cudaStreamDestroy(static_cast<Stream*>(queue)), "cudaStreamDestroy");
  }
  Result<bool> idle(DeviceQueue queue) override {
    const CudaResult result = f_.cudaStreamQuery(static_cast<Stream*>(queue));
    if (result == kCudaSuccess) return true;
    if (Status status = library_.check(result, "cudaStreamQuery"); result != kCudaNotReady) {
      return status;
    }
    return false;
  }
  Result<bool> capturing(DeviceQueue queue) override {
    CaptureStatus capture = kCaptureNone;
    TRY(library_.check(f_.cudaStreamIsCapturing(static_cast<Stream*>(queue), &capture),
                       "cudaStreamIsCapturing"));
    return capture != kCaptureNone;
  }

  Status group_start() override {
    return library_.check(f_.ncclGroupStart(), "ncclGroupStart", nullptr);
  }
  Status group_end() override {
    const NcclResult result = f_.ncclGroupEnd();
    return result == kInProgress ? ok_status() : library_.check(result, "ncclGroupEnd", nullptr);
  }

  Result<std::string> make_id() override {
    UniqueId id{};
    TRY(library_.check(f_.ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr));
    return std::string(id.internal, sizeof id.internal);
  }
  Result<std::unique_ptr<CollectiveProvider>> create(const std::string& bytes, int32_t ranks,
                                                     int32_t rank) override {
    UniqueId id{};
    if (bytes.size() != sizeof id.internal) {
      return error(Code::kRemoteError, "rank 0 sent a malformed id of NCCL");
    }
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    return make_nccl_provider(library_, id, ranks, rank);
  }

 private:
  const Library& library_;
  const Functions& f_;
};

}  // namespace
}  // namespace nccl

Result<DeviceRuntime*> nccl_runtime() {
  TRY_ASSIGN(const nccl::Library* library, nccl::Library::load());
  static auto* const runtime = new nccl::Runtime(*library);  // outlives the program's statics
  return static_cast<DeviceRuntime*>(runtime);
}

}  // namespace unisono
