#include "comm/bootstrap/pmix_client.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/env.h"

namespace unisono::bootstrap {
namespace {

// PMIx's C interface as far as it is used, with names and numbers of its standard.
struct Process {
  char space[256];
  uint32_t rank;
};
struct Value {
  uint16_t type = 0;
  union {
    char* string;
    int integer;
    char most_bytes[24];
  } data = {};
};
struct Info {
  char key[512] = {};
  uint32_t flags = 0;
  Value value;
};
constexpr uint16_t kString = 3, kInt = 6;
constexpr uint8_t kGlobal = 3;  // a scope: to ranks of this host and of others
constexpr int kSuccess = 0;

// As {"pmix.timeout", seconds}: without it a missing rank would be waited for without end.
Info timeout_until(int64_t deadline_ns) {
  constexpr int64_t kNsPerS = 1'000'000'000;
  const int64_t left_s = (deadline_ns - real_env().now_ns() + kNsPerS - 1) / kNsPerS;
  Info info;
  constexpr std::string_view kKey = "pmix.timeout";
  kKey.copy(info.key, sizeof(info.key) - 1);
  info.value.type = kInt;
  info.value.data.integer = static_cast<int>(std::clamp<int64_t>(left_s, 1, INT32_MAX));
  return info;
}

}  // namespace

struct PmixClient::Library {
  int (*init)(Process*, Info*, size_t) = nullptr;
  int (*finalize)(const Info*, size_t) = nullptr;
  int (*put)(uint8_t, const char*, Value*) = nullptr;
  int (*commit)() = nullptr;
  int (*fence)(const Process*, size_t, const Info*, size_t) = nullptr;
  int (*get)(const Process*, const char*, const Info*, size_t, Value**) = nullptr;
  const char* (*error_text)(int) = nullptr;

  template <class Function>
  bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }

  // Once a process, never unloaded: the library has threads of its own. Null: not here.
  static const Library* load(std::string* why) {
    // RTLD_GLOBAL: PMIx's own plugins look for its symbols.
    void* const file = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (file == nullptr) {
      const char* const text = dlerror();
      *why = text == nullptr ? "libpmix.so.2 cannot be loaded" : text;
      return nullptr;
    }
    static Library library;
    if (library.find(file, "PMIx_Init", library.init) &&
        library.find(file, "PMIx_Finalize", library.finalize) &&
        library.find(file, "PMIx_Put", library.put) &&
        library.find(file, "PMIx_Commit", library.commit) &&
        library.find(file, "PMIx_Fence", library.fence) &&
        library.find(file, "PMIx_Get", library.get) &&
        library.find(file, "PMIx_Error_string", library.error_text)) {
      return &library;
    }
    *why = "libpmix.so.2 lacks a function of PMIx";
    return nullptr;
  }

  Status check(int code, const char* what) const {
    if (code == kSuccess) return ok_status();
    return error(Code::kRemoteError, "PMIx: {}: {}", what, error_text(code));
  }
};

Result<PmixClient> PmixClient::start() {
  std::string why;
  const Library* const library = Library::load(&why);
  if (library == nullptr) return error(Code::kInvalidUsage, "PMIx: {}", why);
  Process self{};
  TRY(library->check(library->init(&self, nullptr, 0), "PMIx_Init"));
  PmixClient client(library);
  static_assert(sizeof(client.space_) == sizeof(self.space));
  std::memcpy(client.space_, self.space, sizeof(self.space));
  return client;
}

Status PmixClient::put(const std::string& key, const std::string& value) {
  std::string text = value;
  Value given;
  given.type = kString;
  given.data.string = text.data();
  TRY(library_->check(library_->put(kGlobal, key.c_str(), &given), "PMIx_Put"));
  return library_->check(library_->commit(), "PMIx_Commit");
}

Status PmixClient::fence(int64_t deadline_ns) {
  const Info timeout = timeout_until(deadline_ns);
  return library_->check(library_->fence(nullptr, 0, &timeout, 1),
                         "PMIx_Fence (not all ranks have come?)");
}

Result<std::string> PmixClient::get(int32_t rank, const std::string& key, int64_t deadline_ns) {
  Process from{};
  std::memcpy(from.space, space_, sizeof(space_));
  from.rank = static_cast<uint32_t>(rank);
  const Info timeout = timeout_until(deadline_ns);
  Value* value = nullptr;
  TRY(library_->check(library_->get(&from, key.c_str(), &timeout, 1, &value), "PMIx_Get"));
  if (value == nullptr || value->type != kString || value->data.string == nullptr) {
    return error(Code::kRemoteError, "PMIx: '{}' of rank {} is no text", key, rank);
  }
  std::string text = value->data.string;
  std::free(value->data.string);  // as PMIX_VALUE_RELEASE does
  std::free(value);
  return text;
}

void PmixClient::finish() {
  (void)library_->finalize(nullptr, 0);
}

}  // namespace unisono::bootstrap
