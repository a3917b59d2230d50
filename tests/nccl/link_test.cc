// What transports/nccl/api.h says of NCCL and the CUDA runtime, against their own headers, where
// they are; and the real libraries loaded by the library's own loader. Nothing runs on a device.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdlib>
#include <type_traits>

#include "transports/nccl/library.h"

namespace unisono::nccl {
namespace {

// The same to the machine: pointers for pointers, whole numbers and enums of one size, structs of
// one size and alignment.
template <class Ours, class Theirs>
constexpr bool same_argument() {
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>) {
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  } else if constexpr (std::is_class_v<Ours> || std::is_class_v<Theirs>) {
    return std::is_class_v<Ours> && std::is_class_v<Theirs> && sizeof(Ours) == sizeof(Theirs) &&
           alignof(Ours) == alignof(Theirs);
  } else {
    constexpr bool whole = (std::is_integral_v<Ours> || std::is_enum_v<Ours>)&&(
        std::is_integral_v<Theirs> || std::is_enum_v<Theirs>);
    return whole && sizeof(Ours) == sizeof(Theirs);
  }
}

template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<R (*)(A...), S (*)(B...)>
    : std::bool_constant<same_argument<R, S>() && (same_argument<A, B>() && ...)> {
};

#define UNISONO_SAME(name, result, parameters) \
  static_assert(SameCall<decltype(Functions::name), decltype(&::name)>::value, #name);
#define UNISONO_SAME_PLAIN(name) \
  static_assert(SameCall<decltype(Functions::name), decltype(&::name)>::value, #name);
UNISONO_NCCL_CALLS(UNISONO_SAME)
UNISONO_SAME_PLAIN(ncclCommSplit)
#if NCCL_VERSION_CODE >= 21903
UNISONO_SAME_PLAIN(ncclCommRegister)
UNISONO_SAME_PLAIN(ncclCommDeregister)
#endif
#if NCCL_VERSION_CODE >= 22800
UNISONO_SAME_PLAIN(ncclAlltoAll)
UNISONO_SAME_PLAIN(ncclGather)
UNISONO_SAME_PLAIN(ncclScatter)
#endif

// The runtime's headers add overloads for C++.
#define UNISONO_SAME_CUDA(name, result, parameters)                             \
  static_assert(same_argument<result, ::cudaError_t>() || sizeof(result) == 8); \
  static_assert(requires(result(*ours) parameters) { ours; });
UNISONO_CUDA_CALLS(UNISONO_SAME_CUDA)
using Make = ::cudaError_t (*)(::cudaEvent_t*, unsigned);
using Queue = ::cudaError_t (*)(::cudaStream_t*, unsigned);
using Record = ::cudaError_t (*)(::cudaEvent_t, ::cudaStream_t);
using Capture = ::cudaError_t (*)(::cudaStream_t, ::cudaStreamCaptureStatus*);
using Malloc = ::cudaError_t (*)(void**, size_t);
[[maybe_unused]] constexpr Make kMake = &::cudaEventCreateWithFlags;
[[maybe_unused]] constexpr Queue kQueue = &::cudaStreamCreateWithFlags;
[[maybe_unused]] constexpr Record kRecord = &::cudaEventRecord;
[[maybe_unused]] constexpr Capture kCapture = &::cudaStreamIsCapturing;
[[maybe_unused]] constexpr Malloc kMalloc = &::cudaMalloc;
static_assert(SameCall<decltype(Functions::cudaEventCreateWithFlags), Make>::value);
static_assert(SameCall<decltype(Functions::cudaStreamCreateWithFlags), Queue>::value);
static_assert(SameCall<decltype(Functions::cudaEventRecord), Record>::value);
static_assert(SameCall<decltype(Functions::cudaStreamIsCapturing), Capture>::value);
static_assert(SameCall<decltype(Functions::cudaMalloc), Malloc>::value);

#define UNISONO_VALUE(ours, theirs) \
  static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
UNISONO_VALUE(kSuccess, ncclSuccess);
UNISONO_VALUE(kUnhandledCudaError, ncclUnhandledCudaError);
UNISONO_VALUE(kSystemError, ncclSystemError);
UNISONO_VALUE(kInternalError, ncclInternalError);
UNISONO_VALUE(kInvalidArgument, ncclInvalidArgument);
UNISONO_VALUE(kInvalidUsage, ncclInvalidUsage);
UNISONO_VALUE(kRemoteError, ncclRemoteError);
UNISONO_VALUE(kInProgress, ncclInProgress);
UNISONO_VALUE(kInt8, ncclInt8);
UNISONO_VALUE(kUint8, ncclUint8);
UNISONO_VALUE(kInt32, ncclInt32);
UNISONO_VALUE(kUint32, ncclUint32);
UNISONO_VALUE(kInt64, ncclInt64);
UNISONO_VALUE(kUint64, ncclUint64);
UNISONO_VALUE(kFloat16, ncclFloat16);
UNISONO_VALUE(kFloat32, ncclFloat32);
UNISONO_VALUE(kFloat64, ncclFloat64);
UNISONO_VALUE(kBfloat16, ncclBfloat16);
UNISONO_VALUE(kSum, ncclSum);
UNISONO_VALUE(kProd, ncclProd);
UNISONO_VALUE(kMax, ncclMax);
UNISONO_VALUE(kMin, ncclMin);
UNISONO_VALUE(kAvg, ncclAvg);
UNISONO_VALUE(kHostImmediate, ncclScalarHostImmediate);
UNISONO_VALUE(kUndefined, NCCL_CONFIG_UNDEF_INT);
UNISONO_VALUE(kNoColor, NCCL_SPLIT_NOCOLOR);
UNISONO_VALUE(kOldestVersion, NCCL_VERSION(2, 18, 0));
UNISONO_VALUE(kConfigVersion, NCCL_VERSION(2, 18, 0));
UNISONO_VALUE(kCudaSuccess, cudaSuccess);
UNISONO_VALUE(kCudaNotReady, cudaErrorNotReady);
UNISONO_VALUE(kCaptureNone, cudaStreamCaptureStatusNone);
UNISONO_VALUE(kEventDisableTiming, cudaEventDisableTiming);
UNISONO_VALUE(kStreamDefault, cudaStreamDefault);

// Ours is the beginning of theirs.
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(Config, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));

TEST(TheConfigOfNccl, HasTheMagicThatWeWrite) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(theirs.magic, kConfigMagic);
  EXPECT_EQ(theirs.cgaClusterSize, Config().cga_cluster_size);
}

TEST(TheRealLibraries, AreLoadedAndTellTheirVersions) {
  // Where they were found at build time.
  setenv("UNISONO_NCCL_LIB", NCCL_LIBRARY, 1);
  setenv("UNISONO_CUDART_LIB", CUDART_LIBRARY, 1);
  const auto loaded = Library::load();
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ((*loaded)->version(), NCCL_VERSION_CODE);
  EXPECT_NE((*loaded)->functions().ncclCommSplit, nullptr);
}

// Linked, as a program that uses NCCL itself would be.
TEST(TheRealLibraries, Link) {
  int version = 0;
  EXPECT_EQ(::ncclGetVersion(&version), ::ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

}  // namespace
}  // namespace unisono::nccl
