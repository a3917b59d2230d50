// NCCL's and the CUDA runtime's C interfaces as far as they are used, with their names and numbers,
// so that nothing of CUDA is needed to build. tests/nccl/link_test.cc holds them against the real
// headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unisono::nccl {

struct Comm;  // ncclComm

enum NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum NcclType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

enum NcclOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };
enum Residence : int { kHostImmediate = 1 };

struct UniqueId {
  char internal[128];
};

// As of 2.18; later libraries take a shorter struct by its size and version.
inline constexpr int kUndefined = INT32_MIN;
inline constexpr unsigned kConfigMagic = 0xcafebeef, kConfigVersion = 21800;
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = kConfigMagic, version = kConfigVersion;
  int blocking = 0;
  int cga_cluster_size = kUndefined, min_ctas = kUndefined, max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

inline constexpr int kOldestVersion = 21800;  // 2.18.0
inline constexpr int kNoColor = -1;

struct Stream;  // CUstream_st
struct Event;   // CUevent_st
enum CudaResult : int { kCudaSuccess = 0, kCudaNotReady = 600 };
enum CaptureStatus : int { kCaptureNone = 0 };
inline constexpr unsigned kEventDisableTiming = 2, kStreamDefault = 0;

// X(name, type of the result, parameters)
#define UNISONO_NCCL_CALLS(X)                                                                      \
  X(ncclGetVersion, NcclResult, (int*))                                                            \
  X(ncclGetUniqueId, NcclResult, (UniqueId*))                                                      \
  X(ncclCommInitRankConfig, NcclResult, (Comm**, int, UniqueId, int, Config*))                     \
  X(ncclCommFinalize, NcclResult, (Comm*))                                                         \
  X(ncclCommDestroy, NcclResult, (Comm*))                                                          \
  X(ncclCommAbort, NcclResult, (Comm*))                                                            \
  X(ncclCommGetAsyncError, NcclResult, (Comm*, NcclResult*))                                       \
  X(ncclGetErrorString, const char*, (NcclResult))                                                 \
  X(ncclGetLastError, const char*, (Comm*))                                                        \
  X(ncclRedOpCreatePreMulSum, NcclResult, (NcclOp*, void*, NcclType, Residence, Comm*))            \
  X(ncclRedOpDestroy, NcclResult, (NcclOp, Comm*))                                                 \
  X(ncclAllReduce, NcclResult, (const void*, void*, size_t, NcclType, NcclOp, Comm*, Stream*))     \
  X(ncclReduce, NcclResult, (const void*, void*, size_t, NcclType, NcclOp, int, Comm*, Stream*))   \
  X(ncclBroadcast, NcclResult, (const void*, void*, size_t, NcclType, int, Comm*, Stream*))        \
  X(ncclAllGather, NcclResult, (const void*, void*, size_t, NcclType, Comm*, Stream*))             \
  X(ncclReduceScatter, NcclResult, (const void*, void*, size_t, NcclType, NcclOp, Comm*, Stream*)) \
  X(ncclSend, NcclResult, (const void*, size_t, NcclType, int, Comm*, Stream*))                    \
  X(ncclRecv, NcclResult, (void*, size_t, NcclType, int, Comm*, Stream*))                          \
  X(ncclGroupStart, NcclResult, ())                                                                \
  X(ncclGroupEnd, NcclResult, ())

// Used where they are: split is of 2.18 (of some builds), registration of 2.19, the three
// collectives of 2.28.
#define UNISONO_NCCL_NEWER_CALLS(X)                                                      \
  X(ncclCommSplit, NcclResult, (Comm*, int, int, Comm**, Config*))                       \
  X(ncclCommRegister, NcclResult, (const Comm*, void*, size_t, void**))                  \
  X(ncclCommDeregister, NcclResult, (const Comm*, void*))                                \
  X(ncclAlltoAll, NcclResult, (const void*, void*, size_t, NcclType, Comm*, Stream*))    \
  X(ncclGather, NcclResult, (const void*, void*, size_t, NcclType, int, Comm*, Stream*)) \
  X(ncclScatter, NcclResult, (const void*, void*, size_t, NcclType, int, Comm*, Stream*))

#define UNISONO_CUDA_CALLS(X)                                     \
  X(cudaRuntimeGetVersion, CudaResult, (int*))                    \
  X(cudaGetErrorString, const char*, (CudaResult))                \
  X(cudaGetLastError, CudaResult, ())                             \
  X(cudaGetDeviceCount, CudaResult, (int*))                       \
  X(cudaGetDevice, CudaResult, (int*))                            \
  X(cudaSetDevice, CudaResult, (int))                             \
  X(cudaMalloc, CudaResult, (void**, size_t))                     \
  X(cudaFree, CudaResult, (void*))                                \
  X(cudaStreamCreateWithFlags, CudaResult, (Stream**, unsigned))  \
  X(cudaStreamDestroy, CudaResult, (Stream*))                     \
  X(cudaStreamQuery, CudaResult, (Stream*))                       \
  X(cudaStreamIsCapturing, CudaResult, (Stream*, CaptureStatus*)) \
  X(cudaEventCreateWithFlags, CudaResult, (Event**, unsigned))    \
  X(cudaEventDestroy, CudaResult, (Event*))                       \
  X(cudaEventRecord, CudaResult, (Event*, Stream*))               \
  X(cudaEventQuery, CudaResult, (Event*))

// The loaded functions; newer ones may be null.
struct Functions {
#define UNISONO_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  UNISONO_NCCL_CALLS(UNISONO_MEMBER)
  UNISONO_NCCL_NEWER_CALLS(UNISONO_MEMBER)
  UNISONO_CUDA_CALLS(UNISONO_MEMBER)
#undef UNISONO_MEMBER
};

}  // namespace unisono::nccl
