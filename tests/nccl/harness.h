// Ranks on devices of the double (tests/nccl_double), through the public C API.
#pragma once

#include <array>
#include <cstdlib>

#include "tests/comm/harness.h"
#include "tests/nccl_double/nccl_double.h"

namespace unisono::testing {

// Before the library reads its environment.
inline const bool kUsesDouble = setenv("UNISONO_NCCL_LIB", NCCL_DOUBLE, 1) == 0 &&
                                setenv("UNISONO_CUDART_LIB", NCCL_DOUBLE, 1) == 0;

struct DeviceSetup {
  int64_t timeout_ms = 60'000;
  const char* device = "cuda";
};

inline uniConfig_t device_config(const DeviceSetup& setup = {}) {
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  config.transports = "shm";
  config.device = setup.device;
  config.timeout_ms = setup.timeout_ms;
  return config;
}

// As Ranks, each rank on a device of its own, which is current in run()'s threads.
class DeviceRanks {
 public:
  explicit DeviceRanks(int ranks, const DeviceSetup& setup = {})
      : comms_(static_cast<size_t>(ranks)) {
    const uniConfig_t config = device_config(setup);
    result_ = uniCommInitAll(comms_.data(), ranks, &config);
    error_ = uniGetLastError(nullptr);
  }
  ~DeviceRanks() { destroy(); }
  DeviceRanks(const DeviceRanks&) = delete;

  bool ok() const { return result_ == uniSuccess; }
  uniResult_t result() const { return result_; }
  const std::string& error() const { return error_; }
  int count() const { return static_cast<int>(comms_.size()); }
  uniComm_t operator[](int rank) const { return comms_[static_cast<size_t>(rank)]; }
  // The first error.
  uniResult_t destroy() {
    uniResult_t first = uniSuccess;
    for (uniComm_t& comm : comms_) {
      const uniResult_t result = uniCommDestroy(std::exchange(comm, nullptr));
      if (first == uniSuccess) first = result;
    }
    return first;
  }

  void run(const std::function<void(int, uniComm_t)>& fn) const {
    std::vector<std::thread> threads;
    for (int r = 0; r < count(); r++) {
      threads.emplace_back([&, r] {
        EXPECT_EQ(nccl::cudaSetDevice(r), nccl::kCudaSuccess);
        fn(r, (*this)[r]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<uniComm_t> comms_;
  uniResult_t result_ = uniSuccess;
  std::string error_;
};

// A user's stream on the current device, and the same for the library.
struct UserStream {
  UserStream() {
    EXPECT_EQ(nccl::cudaStreamCreateWithFlags(&cuda, 0), nccl::kCudaSuccess);
    UNI_OK(uniStreamWrapCuda(&stream, cuda));
  }
  ~UserStream() {
    UNI_OK(uniStreamDestroy(stream));
    EXPECT_EQ(nccl::cudaStreamDestroy(cuda), nccl::kCudaSuccess);
  }
  UserStream(const UserStream&) = delete;
  nccl::Stream* cuda = nullptr;
  uniStream_t stream = nullptr;
};

// Memory of the device that holds `values`.
template <class Value>
class Device {
 public:
  explicit Device(const std::vector<Value>& values) : count_(values.size()) {
    void* pointer = nullptr;
    EXPECT_EQ(nccl::cudaMalloc(&pointer, count_ * sizeof(Value)), nccl::kCudaSuccess);
    data_ = static_cast<Value*>(pointer);
    std::copy(values.begin(), values.end(), data_);
  }
  ~Device() { EXPECT_EQ(nccl::cudaFree(data_), nccl::kCudaSuccess); }
  Device(const Device&) = delete;
  Value* get() const { return data_; }
  std::vector<Value> values() const { return {data_, data_ + count_}; }

 private:
  Value* data_ = nullptr;
  size_t count_;
};

// Starts from a clean double, and ends with nothing wrong and nothing left.
class OnDouble : public ::testing::Test {
 protected:
  void SetUp() override {
    nccl::nccl_double_reset();
    EXPECT_TRUE(kUsesDouble);
  }
  void TearDown() override {
    EXPECT_STREQ(nccl::nccl_double_violations(), "");
    const nccl::NcclDoubleLive live = nccl::nccl_double_live();
    EXPECT_EQ(live.comms, 0);
    EXPECT_EQ(live.streams, 0);
    EXPECT_EQ(live.events, 0);
    EXPECT_EQ(live.allocations, 0);
    EXPECT_EQ(live.ops, 0);
    EXPECT_EQ(live.registrations, 0);
  }
};

}  // namespace unisono::testing
