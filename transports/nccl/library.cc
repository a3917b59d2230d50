#include "transports/nccl/library.h"

#include <dlfcn.h>

#include <vector>

#include "base/config.h"

namespace unisono::nccl {
namespace {

std::string load_error() {
  const char* const text = dlerror();
  return text == nullptr ? "cannot be loaded" : text;
}

// One that the program has loaded already is the right one; else the newest.
void* open_any(const std::vector<std::string>& names, std::string* why) {
  for (const int flags : {RTLD_NOW | RTLD_NOLOAD, static_cast<int>(RTLD_NOW)}) {
    for (const std::string& name : names) {
      if (void* file = dlopen(name.c_str(), flags)) return file;
      if ((flags & RTLD_NOLOAD) != 0) {
        (void)dlerror();
      } else if (const std::string text = load_error(); why->empty()) {
        *why = text;
      }
    }
  }
  return nullptr;
}

template <class Function>
void find(void* file, const char* name, Function& function, const char** missing) {
  function = reinterpret_cast<Function>(dlsym(file, name));
  if (function == nullptr && missing != nullptr && *missing == nullptr) *missing = name;
}

Code code_of(NcclResult result) {
  switch (result) {
    case kInternalError:
      return Code::kInternalError;
    case kInvalidArgument:
      return Code::kInvalidArgument;
    case kInvalidUsage:
      return Code::kInvalidUsage;
    case kRemoteError:
      return Code::kRemoteError;
    case kInProgress:
      return Code::kInProgress;
    default:
      return Code::kSystemError;
  }
}

}  // namespace

std::string version_words(int version) {
  const int major = version < 10000 ? 1000 : 10000;  // coded so until 2.8
  return fmt::format("{}.{}.{}", version / major, version % major / 100, version % 100);
}

Result<const Library*> Library::load() {
  // Leaked on purpose: its libraries have threads of their own.
  static auto* const library = new Library;
  static const Status opened = library->open();
  if (!opened.ok()) return opened;
  return static_cast<const Library*>(library);
}

Status Library::open() {
  const Environment& env = environment();
  std::string why;
  const bool cuda_given = !env.cudart_library.empty(), nccl_given = !env.nccl_library.empty();
  void* const cuda =
      open_any(cuda_given ? std::vector{env.cudart_library}
                          : std::vector<std::string>{"libcudart.so.13", "libcudart.so.12",
                                                     "libcudart.so.11.0", "libcudart.so"},
               &why);
  if (cuda == nullptr) return error(Code::kInvalidUsage, "no CUDA runtime: {}", why);
  why.clear();
  void* const nccl = open_any({nccl_given ? env.nccl_library : std::string("libnccl.so.2")}, &why);
  if (nccl == nullptr) return error(Code::kInvalidUsage, "no NCCL: {}", why);
  Functions& f = functions_;
  const char* missing = nullptr;
#define UNISONO_FIND(name, result, parameters) find(cuda, #name, f.name, &missing);
  UNISONO_CUDA_CALLS(UNISONO_FIND)
#undef UNISONO_FIND
  if (missing != nullptr) {
    return error(Code::kInvalidUsage, "this CUDA runtime has no {}: 11 or newer is needed",
                 missing);
  }
#define UNISONO_FIND(name, result, parameters) find(nccl, #name, f.name, &missing);
  UNISONO_NCCL_CALLS(UNISONO_FIND)
#undef UNISONO_FIND
#define UNISONO_FIND(name, result, parameters) find(nccl, #name, f.name, nullptr);
  UNISONO_NCCL_NEWER_CALLS(UNISONO_FIND)
#undef UNISONO_FIND
  if (f.ncclGetVersion != nullptr && f.ncclGetVersion(&version_) == kSuccess &&
      version_ < kOldestVersion) {
    return error(Code::kInvalidUsage, "NCCL {} is too old: {} or newer is needed",
                 version_words(version_), version_words(kOldestVersion));
  }
  if (missing != nullptr || version_ == 0) {
    return error(Code::kInvalidUsage, "this NCCL has no {}: {} or newer is needed",
                 missing == nullptr ? "version" : missing, version_words(kOldestVersion));
  }
  return check(f.cudaRuntimeGetVersion(&cuda_version_), "cudaRuntimeGetVersion");
}

std::string Library::describe() const {
  return fmt::format("NCCL {}, CUDA runtime {}.{}", version_words(version_), cuda_version_ / 1000,
                     cuda_version_ / 10 % 100);
}

Status Library::check(NcclResult result, const char* call, Comm* comm) const {
  if (result == kSuccess) return {};
  if (result == kInProgress) return error(Code::kInProgress, "{}: in progress", call);
  const char* const last = functions_.ncclGetLastError(comm);
  const std::string more = last == nullptr || *last == 0 ? "" : fmt::format(" ({})", last);
  return error(code_of(result), "{}: {}{}", call, functions_.ncclGetErrorString(result), more);
}

Status Library::check(CudaResult result, const char* call) const {
  if (result == kCudaSuccess) return {};
  (void)functions_.cudaGetLastError();
  return error(Code::kSystemError, "{}: {}", call, functions_.cudaGetErrorString(result));
}

}  // namespace unisono::nccl
