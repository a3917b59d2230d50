// Status and Result: how every fallible function of the library reports.
//
// A Status is one pointer: null means success, so the fast path costs one comparison. Errors carry
// a code (the C API's own values) and a sentence that names the argument, the peer or the system
// call. Immutable, so copies may cross threads.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace unisono {

// Values equal uniResult_t's (comm/c_api.cc asserts it).
enum class Code : int {
  kOk = 0,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,
  kAborted = 9,
  kMismatch = 10,
};
const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message);

  bool ok() const { return detail_ == nullptr; }
  Code code() const;
  const std::string& message() const;  // empty when ok
  // The same error with `context` and ": " put before its message. Ok stays ok.
  Status annotate(std::string_view context) const;

 private:
  struct Detail {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Detail> detail_;
};

inline Status ok_status() {
  return {};
}

template <class... Args>
Status error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}
// kSystemError with `what` and the text of `error_number` (an errno).
Status system_error(int error_number, std::string_view what);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(runtime/explicit)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(runtime/explicit)
    CHECK(!status_.ok());
  }
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace unisono

#define UNI_CONCAT_INNER(a, b) a##b
#define UNI_CONCAT(a, b) UNI_CONCAT_INNER(a, b)
// Returns the Status of `expression` from the enclosing function unless it is ok.
#define TRY(expression)                                       \
  do {                                                        \
    if (auto try_status_ = (expression); !try_status_.ok()) { \
      return try_status_;                                     \
    }                                                         \
  } while (0)
// `declaration` = the value of a Result, or returns its Status.
#define TRY_ASSIGN(declaration, expression)                                               \
  auto UNI_CONCAT(result_, __LINE__) = (expression);                                      \
  if (!UNI_CONCAT(result_, __LINE__).ok()) return UNI_CONCAT(result_, __LINE__).status(); \
  declaration = std::move(*UNI_CONCAT(result_, __LINE__))
