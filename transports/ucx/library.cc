#include "transports/ucx/library.h"

#include <dlfcn.h>

namespace unisono::ucx {
namespace {

// The soname has not changed since 1.0.
constexpr const char* kLibrary = "libucp.so.0";
constexpr const char* kBase = "libucs.so.0";

Library functions;  // set once, by the first load

// UCX prints a backtrace when the process gets SIGSEGV and the like, and does so from when it is
// loaded: a library of ours must not change the handlers of its user. Only where nobody else had
// loaded it before.
void leave_signals_alone() {
  void* found = dlsym(RTLD_DEFAULT, "ucs_debug_disable_signals");
  if (found == nullptr) {
    void* base = dlopen(kBase, RTLD_NOW | RTLD_NOLOAD);
    if (base == nullptr) return;
    found = dlsym(base, "ucs_debug_disable_signals");
    dlclose(base);
  }
  if (found != nullptr) reinterpret_cast<void (*)()>(found)();
}

Status load() {
  void* loaded_before = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  void* handle = loaded_before != nullptr ? loaded_before : dlopen(kLibrary, RTLD_NOW);
  if (handle == nullptr) {
    const char* why = dlerror();
    return error(Code::kSystemError, "ucx: not installed: {}", why != nullptr ? why : kLibrary);
  }
  // Never closed: UCX leaves threads and handlers behind.
  std::string missing;
  const auto find = [&](const char* name) {
    void* found = dlsym(handle, name);
    if (found == nullptr && missing.empty()) missing = name;
    return found;
  };
#define UNI_UCX_FIND(name) functions.name = reinterpret_cast<decltype(&::name)>(find(#name));
  UNI_UCX_FUNCTIONS(UNI_UCX_FIND)
#undef UNI_UCX_FIND
  unsigned major = 0, minor = 0, release = 0;
  if (functions.ucp_get_version != nullptr) {
    functions.ucp_get_version(&major, &minor, &release);
    if (major < kLeastMajor || (major == kLeastMajor && minor < kLeastMinor)) {
      return error(Code::kSystemError, "ucx: UCX {}.{}.{} is too old: {}.{} is needed", major,
                   minor, release, kLeastMajor, kLeastMinor);
    }
  }
  if (!missing.empty()) {
    return error(Code::kSystemError, "ucx: UCX {}.{}.{} lacks {}", major, minor, release, missing);
  }
  if (loaded_before == nullptr) leave_signals_alone();
  return {};
}

}  // namespace

Result<const Library*> load_library() {
  static const Status outcome = load();
  if (!outcome.ok()) return outcome;
  return static_cast<const Library*>(&functions);
}

const Library& library() {
  return functions;
}

Status ucx_error(Code code, ucs_status_t status, const std::string& what) {
  return error(code, "{}: {}", what, functions.ucs_status_string(status));
}

}  // namespace unisono::ucx
